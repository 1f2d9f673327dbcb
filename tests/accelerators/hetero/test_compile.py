"""compile: devices, affinities, calls, fallback when a device fails, configuration, pictures."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.building import subgraphs
from partita.accelerators.building.subgraphs import Builder
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import RanOnDevice, device
from tests.graphs.networks import conv_relu
from tests.graphs.topologies import alternating

X = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)


def right(m: pt.CompiledModel, g: pt.Graph, *inputs) -> None:
    """The model gives what the interpreter gives, under the graph's output names."""
    outputs = m(*inputs)
    for name, mine, wanted in zip(g.output_names, outputs, interpret(g, list(inputs)), strict=True):
        assert mine is outputs[name]
        assert mine.dtype == wanted.dtype and mine.shape == wanted.shape
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)


def test_one_device_is_one_subgraph(beta):
    m = pt.compile(alternating(), "beta")
    assert [unit.name for unit in m.units] == ["beta_0"]
    right(m, alternating(), X)


def test_unconnected_parts_of_one_device_are_one_subgraph(beta):
    x, y = pt.variable("x", "float32", (4,)), pt.variable("y", "float32", (4,))
    g = pt.Graph([pt.op("Relu", x), pt.op("Exp", y)])
    m = pt.compile(g, "beta")
    assert len(m.units) == 1
    right(m, g, X, X)


def test_two_devices(alpha, beta):
    m = pt.compile(alternating(), "HETERO:alpha,beta")
    assert [(unit.device.label, unit.ops) for unit in m.units] == [
        ("alpha", ("a",)),
        ("beta", ("b",)),
        ("alpha", ("c",)),
        ("beta", ("d",)),
    ]
    right(m, alternating(), X)
    assert m.report.automatic and m.report.why("b").endswith("not on alpha: alpha has no Softmax")
    assert m.graph.attrs["partition_report"] is m.report.partition


def test_subgraphs_that_need_each_other_are_cut(alpha, beta):
    x = pt.variable("x", "float32", (4,))
    a = pt.op("Relu", x, name="a")
    g = pt.Graph([pt.op("Add", a, pt.op("Softmax", a, name="s"), name="sum")])
    m = pt.compile(g, "HETERO:alpha,beta")
    assert [unit.ops for unit in m.units] == [("a",), ("s",), ("sum",)]
    right(m, g, X)


@pytest.mark.parametrize("where", ["alpha", "HETERO:alpha,beta", "reference"])
def test_outputs_of_all_kinds(alpha, beta, where):
    x, unused = pt.variable("x", "float32", (4,)), pt.variable("unused", "int64", (2,))
    k = pt.constant(np.arange(3.0), name="k")
    y = pt.op("Relu", x, name="y")
    g = pt.Graph([y, x, k, y, x], [unused, x], output_names=["y", "x_out", "k_out", "y_again", "x_again"])
    m = pt.compile(g, where)
    right(m, g, np.zeros(2, np.int64), X)
    first, second = m(np.zeros(2, np.int64), X), m(np.zeros(2, np.int64), X)
    everything = [*first, *second, X, k.value]
    for i, a in enumerate(everything):
        assert not any(np.shares_memory(a, b) for b in everything[:i])


def test_graphs_without_ops(beta):
    x = pt.variable("x", "float32", (4,))
    right(pt.compile(pt.Graph([x]), "beta"), pt.Graph([x]), X)
    k = pt.Graph([pt.constant(np.ones(2), name="k")])
    right(pt.compile(k, "beta"), k)
    nothing = pt.compile(pt.Graph([], [x]), "HETERO:beta,reference")
    assert len(nothing(X)) == 0 and nothing.profile().rows == ()


def test_dead_nodes_are_neither_placed_nor_run(alpha):
    x = pt.variable("x", "float32", (4,))
    g = pt.Graph([pt.op("Relu", x, name="y")], nodes=[pt.op("Softmax", x, name="dead")])
    m = pt.compile(g, "alpha")
    right(m, g, X)
    assert [(row.node, row.status) for row in m.profile(X).rows] == [("y", "EXECUTED"), ("dead", "NOT_RUN")]
    with pytest.raises(pt.AcceleratorError, match="node 'dead' is gone: no output needs it"):
        pt.compile(g, "alpha", forbid={"dead": "alpha"})


# -- manual affinity --------------------------------------------------------------------------------------


def placed(**affinities: str) -> pt.Graph:
    g = alternating()
    for name, label in affinities.items():
        g[name].affinity = label
    return g


def test_affinities_decide_where_they_are_set(alpha, beta):
    m = pt.compile(placed(a="beta", b="beta", c="alpha", d="beta"), "HETERO:alpha,beta")
    assert [(u.device.label, u.ops) for u in m.units] == [("beta", ("a", "b")), ("alpha", ("c",)), ("beta", ("d",))]
    assert not m.report.automatic
    assert m.report.why("a") == "a (Relu) is on beta: it had this affinity\n  not on alpha: it had this affinity"


def test_affinity_on_some_nodes_only(alpha, beta):
    with pytest.raises(pt.PartitaError) as caught:
        pt.compile(placed(a="alpha"), "HETERO:alpha,beta")
    assert str(caught.value) == (
        "graph 'chain': some ops have an affinity and these have none: b, c, d\n"
        "  Give every op an affinity (placement = query(g, ...); g = placement.apply(g)), or none."
    )


@pytest.mark.parametrize("where", ["beta", "HETERO:beta,reference"])
def test_an_affinity_for_a_device_not_asked_for(alpha, beta, where):
    g = placed(a="alpha", b="beta", c="beta", d="beta")
    with pytest.raises(pt.UnknownDevice, match=r"the affinity of node 'a' \(Relu\): 'alpha' is none of the devices asked for"):
        pt.compile(g, where)


def test_an_affinity_for_a_device_that_does_not_run_it(alpha, beta):
    with pytest.raises(pt.NotSupported) as caught:
        pt.compile(placed(a="alpha", b="alpha", c="alpha", d="beta"), "HETERO:alpha,beta")
    assert "node 'b' (Softmax): its affinity puts it on 'alpha', which does not run it: alpha has no Softmax" in str(caught.value)


def test_pin_and_affinities_contradict(alpha, beta):
    g = placed(a="beta", b="beta", c="beta", d="beta")
    with pytest.raises(pt.PartitaError, match="the graph's affinities decide, so that pin, forbid and min_subgraph_size"):
        pt.compile(g, "HETERO:alpha,beta", pin={"a": "alpha"})


# -- calls that a user's own property made ----------------------------------------------------------------


def with_call(affinity: str | None) -> pt.Graph:
    mine = pt.PatternProperty(pt.Pattern("Relu", "Softmax"), name="mine")
    g = pt.apply_pass(alternating(), "PartitionGraph", subgraph_property=mine)
    g["mine_0"].affinity = affinity
    return g


def test_a_call_with_an_affinity_is_a_fixed_unit(alpha, beta):
    m = pt.compile(with_call("beta"), "HETERO:alpha,beta")
    assert [(u.name, u.device.label, u.ops) for u in m.units] == [
        ("mine_0", "beta", ("a", "b")),
        ("alpha_0", "alpha", ("c",)),
        ("beta_1", "beta", ("d",)),
    ]
    right(m, alternating(), X)
    with pytest.raises(pt.NotSupported, match=r"node 'mine_0' \(Call\): its affinity puts it on 'alpha', which does not run it"):
        pt.compile(with_call("alpha"), "HETERO:alpha,beta")


def test_a_call_without_is_placed_whole_or_inlined(alpha, beta):
    m = pt.compile(with_call(None), "HETERO:alpha,beta")
    assert next((u.name, u.device.label) for u in m.units) == ("mine_0", "beta")
    right(m, alternating(), X)
    with device("soft", "Softmax"):
        m = pt.compile(with_call(None), "HETERO:alpha,soft")
        assert [u.ops for u in m.units] == [("a",), ("b",), ("c",), ("d",)]
        reasons = "alpha: its body holds 'b': alpha has no Softmax; soft: its body holds 'a': soft has no Relu"
        assert m.report.notes == (f"inlined: no device takes the call 'mine_0' whole: {reasons}",)
        right(m, alternating(), X)


def test_the_devices_own_property_makes_the_calls(beta):
    class Named(pt.SubgraphProperty):
        name = "fancy"

        def create_subgraph_node(self, subgraph, index):
            return pt.call(subgraph, name=f"my_{index}") if len(subgraph.nodes) > 2 else None

    with device("alpha", "Relu Add Exp", subgraph_property=lambda self: Named()):
        x = pt.variable("x", "float32", (4,))
        s = pt.op("Softmax", pt.op("Exp", pt.op("Relu", x, name="r"), name="e"), name="s")
        g = pt.Graph([pt.op("Exp", s, name="last")])
        m = pt.compile(g, "HETERO:alpha,beta")
        assert [(u.name, u.ops) for u in m.units] == [("my_0", ("r", "e")), ("beta_0", ("s", "last"))]
        reason = "its property 'fancy' gave it back: create_subgraph_node returned None for its subgraph"
        assert m.report.why("last") == f"last (Exp) is on beta\n  not on alpha: {reason}"
        right(m, g, X)


# -- a device takes an op and then fails ------------------------------------------------------------------


def test_the_op_that_a_device_cannot_compile_goes_to_the_next(beta):
    with device("gamma", breaks="Softmax"), pytest.warns(UserWarning, match="moved to beta: gamma could not compile") as warned:
        m = pt.compile(alternating(), "HETERO:gamma,beta")
    right(m, alternating(), X)
    assert len([one for one in warned if "moved" in str(one.message)]) == 1, "said once"
    moved = {name for move in m.report.moves for name in move.nodes}
    assert moved == {node.name for node in alternating().nodes if node.op == "Softmax"}
    assert {name for u in m.units if u.device.label == "gamma" for name in u.ops} == {"a", "b", "c", "d"} - moved
    assert "ValueError: cannot compile Softmax" in str(m.report)
    assert "of the FLOPs moved to beta: gamma could not compile what it took" in str(m.report)
    name = min(moved)
    assert "not on gamma: it took the op and could not compile it: ValueError: cannot compile Softmax" in m.report.why(name)


def test_of_many_ops_one_moves(beta):
    """One of 40 is at fault: it is found by halving."""
    x = pt.variable("x", "float32", (4,))
    y = x
    for i in range(40):
        y = pt.op("Exp" if i == 17 else "Tanh", y, name=f"n{i}")
    graph = pt.Graph([y], name="long")
    with device("gamma", breaks="Exp") as gamma, pytest.warns(UserWarning, match=r"long: 1 op \(n17\) with 2% of the FLOPs"):
        m = pt.compile(graph, "HETERO:gamma,beta")
    assert [(u.device.label, len(u.ops)) for u in m.units] == [("gamma", 17), ("beta", 1), ("gamma", 22)]
    assert len(gamma.compiled) <= 9
    right(m, graph, X)


def test_ops_that_move_one_after_the_other_are_one_subgraph(beta):
    x = pt.variable("x", "float32", (4,))
    y = x
    for i in range(20):
        y = pt.op("Exp" if i in (7, 8, 9, 15) else "Tanh", y, name=f"n{i}")
    graph = pt.Graph([y], name="long")
    with device("gamma", breaks="Exp"), pytest.warns(UserWarning, match=r"long: 4 ops \(n7, n8, n9, n15\) with 20% of the FLOPs"):
        m = pt.compile(graph, "HETERO:gamma,beta")
    assert [(u.device.label, len(u.ops)) for u in m.units] == [("gamma", 7), ("beta", 3), ("gamma", 5), ("beta", 1), ("gamma", 4)]
    assert [len(group.nodes) for group in m.report.partition.groups] == [7, 3, 5, 1, 4]
    right(m, graph, X)


def test_a_device_that_compiles_nothing_is_left_at_once(beta):
    def refuse(self, graph, config):
        raise pt.NotSupported("not today")

    with device("gamma", compile=refuse), pytest.warns(UserWarning, match="4 ops .* with 100% of the FLOPs moved to beta"):
        m = pt.compile(alternating(), "HETERO:gamma,beta")
    (move,) = m.report.moves
    assert (move.subgraph, move.nodes, set(move.to.values())) == ("gamma_0", ("a", "b", "c", "d"), {"beta"})


def test_strict_makes_it_an_error(beta):
    with device("gamma", breaks="Exp"), pytest.raises(pt.CompileError) as caught:
        pt.compile(alternating(), "HETERO:gamma,beta", strict=True)
    message = str(caught.value)
    assert message.startswith("subgraph 'gamma_0' on 'gamma': ValueError: cannot compile Exp\n    (not placed elsewhere: strict")
    assert "Keep the ops off it with forbid={...: 'gamma'}, or name a device behind it" in message


def test_nowhere_to_go():
    with device("gamma", breaks="Exp"), pytest.raises(pt.CompileError) as caught:
        pt.compile(alternating(), "gamma")
    assert "cannot compile Exp\n    (not placed elsewhere: no other device takes it" in str(caught.value)


def test_what_is_forced_does_not_move(beta):
    with device("gamma", breaks="Exp"):
        with pytest.raises(pt.CompileError, match="its place was forced"):
            pt.compile(alternating(), "HETERO:beta,gamma", pin={"c": "gamma"})
        with pytest.warns(UserWarning, match="moved to beta"):
            m = pt.compile(placed(a="gamma", b="gamma", c="gamma", d="gamma"), "HETERO:gamma,beta")
        assert "beta" in {u.device.label for u in m.units}, "placed by hand, but not forced"


def test_compile_must_return_a_compiled_subgraph(beta):
    with device("gamma", compile=lambda self, graph, config: 7), pytest.raises(pt.CompileError) as caught:
        pt.compile(alternating(), "HETERO:gamma,beta")
    assert "subgraph 'gamma_0' on 'gamma': its compile returned int, not a CompiledSubgraph" in str(caught.value)
    assert "Fix the device's own code" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("KeyError", lambda: {}["weights"]),
        ("TypeError", lambda: len(5)),
        ("AttributeError", lambda: X.weights),
        ("NameError", lambda: undefined),  # noqa: F821
    ],
)
def test_a_mistake_in_a_devices_own_code_is_raised(beta, kind, wrong):
    """Another device that took over would hide it; what a library raises that the device calls says what that cannot do."""
    with device("gamma", compile=lambda self, graph, config: wrong()), pytest.raises(pt.CompileError) as caught:
        pt.compile(alternating(), "HETERO:gamma,beta")
    assert f"subgraph 'gamma_0' on 'gamma': {kind}: " in str(caught.value)
    with device("gamma", compile=lambda self, graph, config: json.dumps(graph)), pytest.warns(UserWarning, match="moved to beta"):
        m = pt.compile(alternating(), "HETERO:gamma,beta")
    assert {u.device.label for u in m.units} == {"beta"}


# -- configuration ----------------------------------------------------------------------------------------


def test_configuration_is_flat_for_one_device_and_by_device_for_several(alpha, beta):
    pt.compile(alternating(), "beta", {"KEY_LEVEL": 3})
    assert beta.configs[-1]["LEVEL"] == 3
    pt.compile(alternating(), "beta", {"beta": {"LEVEL": 4}})
    assert beta.configs[-1]["LEVEL"] == 4
    pt.compile(alternating(), "HETERO:alpha.1,beta", {"alpha": {"LEVEL": 5}, "HETERO": {"NUM_REQUESTS": 2}})
    assert (alpha.configs[-1]["LEVEL"], alpha.configs[-1]["DEVICE_ID"], beta.configs[-1]["LEVEL"]) == (5, "1", 1)
    beta.set_config({"LEVEL": 9})
    pt.compile(alternating(), "beta")
    assert beta.configs[-1]["LEVEL"] == 9


@pytest.mark.parametrize(
    ("where", "config", "message"),
    [
        ("beta", {"LEVLE": 3}, "'beta' has no configuration key 'LEVLE'\n  Did you mean 'LEVEL'?"),
        ("HETERO:alpha,beta", {"LEVEL": 3}, "'LEVEL' is none of the devices asked for\n  Configure by device: config={'alpha'"),
        ("HETERO:alpha,beta", {"alhpa": {}}, "config: 'alhpa' is none of the devices asked for\n  Did you mean 'alpha'"),
        ("beta", {"HETERO": {"HETERO_DUMP": 1}}, "no configuration key 'HETERO_DUMP'\n  Did you mean 'HETERO_DUMP_GRAPH_DOT'"),
        ("beta", 5, "config: it is a dictionary by key, not 5"),
        ("beta", [], "config: it is a dictionary by key, not []"),
        ("beta", {5: 1}, "config: it is a dictionary by key, not {5: 1}"),
        ("HETERO:alpha,beta", {"alpha": 5}, "config of device 'alpha': it is a dictionary by key, not 5"),
        ("beta", {"HETERO": "x"}, "config of HETERO: it is a dictionary by key, not 'x'"),
        ("beta", {"PRECISION": []}, "config of device 'beta': PRECISION cannot be []\n  It can be f32, f16, bf16"),
        ("beta", {"NUM_REQUESTS": 0}, "config of HETERO: NUM_REQUESTS cannot be 0\n  Give a whole number from 1 on"),
        ("beta", {"PERF_COUNT": "maybe"}, "config of device 'beta': PERF_COUNT cannot be 'maybe'\n  Give True or False"),
        ("beta", {"PRECISION": "f13"}, "PRECISION cannot be 'f13'\n  Did you mean 'f32', 'f16'? It can be f32, f16, bf16"),
        ("beta", {"PRECISION": "bf16"}, "device 'beta': the device cannot compute in bf16\n  Its capabilities are FP32"),
    ],
)
def test_configuration_errors(alpha, beta, where, config, message):
    with pytest.raises(pt.PartitaError) as caught:
        pt.compile(alternating(), where, config)
    assert message in str(caught.value)


def test_dot_files(alpha, beta, tmp_path):
    pt.compile(alternating(), "HETERO:alpha,beta", {"HETERO": {"KEY_HETERO_DUMP_GRAPH_DOT": tmp_path}}, name="a/net")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hetero_affinity_a_net.dot", "hetero_subgraphs_a_net.dot"]
    assert "alpha" in (tmp_path / "hetero_affinity_a_net.dot").read_text()
    assert "beta_1 @beta" in (tmp_path / "hetero_subgraphs_a_net.dot").read_text()


def test_the_picture_of_affinities_needs_the_automatic_policy(alpha, beta, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = {"HETERO": {"HETERO_DUMP_GRAPH_DOT": "YES"}}
    pt.compile(placed(a="beta", b="beta", c="alpha", d="beta"), "HETERO:alpha,beta", config)
    assert [path.name for path in tmp_path.iterdir()] == ["hetero_subgraphs_chain.dot"]


# -- sizes, options, threads ------------------------------------------------------------------------------


def dynamic() -> pt.Graph:
    x = pt.variable("x", "float32", ("n", 4))
    return pt.Graph([pt.op("Softmax", pt.op("Relu", x, name="r"), name="s")], name="dynamic")


def test_devices_that_want_static_sizes_get_one_subgraph_for_each():
    with device("static", dynamic_shapes=False) as static:
        m = pt.compile(dynamic(), "static")
        assert static.compiled == [], "nothing is compiled before a size is known"
        for n in (1, 2, 1, 3):
            right(m, dynamic(), np.ones((n, 4), np.float32))
        assert [str(graph.inputs[0][0].type) for graph in static.compiled] == ["float32[1, 4]", "float32[2, 4]", "float32[3, 4]"]
        for n in (4, 5, 6, 7, 8, 9, 1):
            m(np.ones((n, 4), np.float32))
        assert len(m.units[0].compiled.sizes) == 8 and len(static.compiled) == 9
        m(np.ones((2, 4), np.float32))
        assert len(static.compiled) == 10, "the size not used for longest had to go"


def test_shapes_and_optimize(beta):
    m = pt.compile(dynamic(), "beta", shapes={"x": (3, 4)})
    assert str(m.properties.inputs[0][1]) == "float32[3, 4]"
    k = pt.op("Exp", pt.constant(np.zeros(4, np.float32), name="k"), name="folded")
    g = pt.Graph([pt.op("Add", pt.variable("x", "float32", (4,)), k, name="sum")])
    assert "folded" in pt.compile(g, "beta").report.placement
    assert "folded" not in pt.compile(g, "beta", optimize=True).report.placement


def test_subgraphs_compile_side_by_side(beta):
    together = threading.Barrier(2, timeout=300)

    def compiled(self, graph, config):
        together.wait()
        return type(self).subgraph_type(graph)

    with device("gamma", "Softmax", compile=compiled):
        right(pt.compile(alternating(), "HETERO:gamma,beta"), alternating(), X)


def test_devices_that_compile_one_at_a_time(beta):
    running = []

    def compiled(self, graph, config):
        running.append(1)
        assert len(running) == 1
        time.sleep(0.02)
        running.pop()
        return type(self).subgraph_type(graph)

    with device("gamma", "Softmax", compile=compiled, parallel_compile=False):
        assert not pt.compile(alternating(), "HETERO:gamma,beta").report.moves


def test_an_interrupt_leaves_nothing_behind(beta, monkeypatch):
    def interrupted(self, call):
        raise KeyboardInterrupt

    monkeypatch.setattr(Builder, "_compile_one", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pt.compile(alternating(), "beta")
    left = [thread for thread in threading.enumerate() if thread.name.startswith("partita-compile")]
    for thread in left:
        thread.join(300)
    assert not any(thread.is_alive() for thread in left)


def test_identical_bodies_are_compiled_once(beta):
    v = pt.variable("v", "float32", (4,))
    body = pt.Graph([pt.op("Exp", v, name="e")], name="body")
    x = pt.variable("x", "float32", (4,))
    g = pt.Graph([pt.call(body, pt.call(body, x, name="first"), name="second")])
    m = pt.compile(g, "beta")
    assert len(m.units) == 2 and len(beta.compiled) == 1
    right(m, g, X)


def test_a_transform_that_changes_the_border(beta):
    def drop(self, graph):
        return graph.evolve(outputs=[], output_names=[], nodes=())

    message = "'gamma': its transform changed the number of inputs or outputs"
    taken = device("gamma", "Softmax", transform=drop, query=lambda self, graph: {"b": True})
    with taken, pytest.raises(pt.CompileError, match=message):
        pt.compile(alternating(), "HETERO:gamma,beta")


def test_the_default_devices_are_the_host_and_the_reference():
    from partita.accelerators.interface.device_list import DEFAULT

    assert DEFAULT == "HETERO:cpu,reference"


def test_memory_of_a_devices_own(beta):
    with device("toy", "Softmax", subgraph_type=RanOnDevice):
        m = pt.compile(alternating(), "HETERO:toy,beta")
        right(m, alternating(), X)
        rows = m.profile(X).rows
        assert [(row.node, row.exec_type) for row in rows if row.layer_type == "Copy"] == [
            ("a", "host to toy"),
            ("b", "toy to host"),
            ("c", "host to toy"),
            ("d", "toy to host"),
        ]


def test_values_stay_on_the_device_between_its_subgraphs(beta):
    with device("toy", subgraph_type=RanOnDevice):
        m = pt.compile(placed(a="toy", b="toy", c="toy.1", d="toy.1"), "HETERO:toy,toy.1")
        right(m, alternating(), X)
        assert [row.node for row in m.profile(X).rows if row.layer_type == "Copy"] == ["x", "d"]


def test_an_affinity_inside_a_body_is_not_obeyed_and_the_report_says_so() -> None:
    x, condition = pt.variable("x", "float32", (2,)), pt.variable("c", "bool", ())
    value = pt.variable("v", "float32", (2,))
    bodies = [pt.Graph([pt.op(kind, value, name=kind.lower())], name=kind) for kind in ("Relu", "Neg")]
    bodies[0]["relu"].affinity = "onnxruntime"
    branch = pt.op("If", condition, captures=[x], then_branch=bodies[0], else_branch=bodies[1], name="branch")
    model = pt.compile(pt.Graph([branch], inputs=[condition, x]), "HETERO:reference,onnxruntime")
    note = "branch (If) runs as a whole on reference: the affinity 'onnxruntime' of 'relu' in its body is not obeyed"
    assert model.report.notes == (note,)
    np.testing.assert_array_equal(model(np.array(True), np.array([-1, 2], "float32"))[0], [0, 2])


def test_a_torch_that_another_thread_is_still_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert pt.compile(conv_relu(), "reference").report.subgraphs


@pytest.mark.parametrize(
    ("quiet", "patience", "counts", "is_shown"),
    [(False, 0.0, (0, 1, 2), True), (False, 0.0, (2,), False), (False, 60.0, (0, 1, 2), False), (True, 0.0, (0, 1, 2), False)],
)
def test_progress_is_shown_on_a_terminal_once_it_takes_long(
    quiet: bool, patience: float, counts: Sequence[int], is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(subgraphs, "at_a_terminal", lambda: True)
    monkeypatch.setattr(subgraphs, "PATIENCE", patience)
    with subgraphs._progress(2, quiet) as shown:
        for count in counts:
            shown(count)
    assert ("compiling" in capsys.readouterr().err) is is_shown
