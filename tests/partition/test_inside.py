"""`inside=`: subgraphs in the bodies of calls, of If, Loop and Scan, at any depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.graph import Graph, Node, PartitaError, call, constant, op, variable
from partita.graph.nested import graphs_in
from partita.graph.verify import verify
from partita.partition import ContainOpSelector, PatternProperty
from partita.passes import apply_pass
from tests.graphs.drawn import graphs
from tests.graphs.topologies import SHAPE

from .making import check_same, ops


def inside(g: Graph, *names: str, **options: Any) -> Graph:
    """The bodies partitioned by these ops, and the whole verified."""
    options = {"inside": True, **options}
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector(set(names)), "in"), **options)
    verify(result)
    return result


def row(value: Node, prefix: str, *kinds: str) -> Node:
    """Unary ops one after the other."""
    for i, kind in enumerate(kinds):
        value = op(kind, value, name=f"{prefix}{i}")
    return value


def an_if(name: str, read: Node, flag: Node, then: Graph, other: Graph) -> Node:
    return op("If", flag, name=name, captures=[read], then_branch=then, else_branch=other)


def body(name: str, *kinds: str) -> Graph:
    a = variable(f"{name}_in", "float32", SHAPE)
    return Graph([row(a, name, *kinds)], [a], name)


def with_if() -> Graph:
    x, flag = variable("x", "float32", SHAPE), variable("flag", "bool", ())
    choice = an_if("choice", op("Abs", x, name="pre"), flag, body("t", "Exp", "Neg", "Relu"), body("e", "Relu", "Neg"))
    return Graph([op("Relu", choice, name="post")], [x, flag], "net")


def with_loop() -> Graph:
    """A Loop whose body holds an If, beside a Scan; the body reads an outer value."""
    x, flag = variable("x", "float32", SHAPE), variable("flag", "bool", ())
    outer = op("Abs", x, name="outer")
    step, go, value = variable("step", "int64", ()), variable("go", "bool", ()), variable("value", "float32", SHAPE)
    seen, inner_flag = variable("seen", "float32", SHAPE), variable("inner_flag", "bool", ())
    less = row(op("Sub", value, seen, name="less"), "m", "Neg", "Relu")
    choice = an_if("choice", less, inner_flag, body("t", "Neg", "Relu"), body("e", "Neg"))
    turn = Graph([op("Identity", go, name="again"), choice], [step, go, value, seen, inner_flag], "turn")
    loop = op("Loop", constant(np.array(3), "count"), None, x, name="loop", captures=[outer, flag], body=turn)
    state, item = variable("state", "float32", (3,)), variable("item", "float32", (3,))
    total = op("Add", state, row(item, "s", "Neg", "Relu"), name="total")
    scanned = Graph([total, op("Identity", total, name="copy")], [state, item], "scanned")
    start = constant(np.zeros(3, np.float32), "start")
    scan = op("Scan", start, loop, name="scan", body=scanned, num_scan_inputs=1, n_outputs=2)
    return Graph([scan[0], scan[1]], [x, flag], "net")


def calls_in(g: Graph) -> dict[str, list[str]]:
    """The ops in the body of each call, at any depth."""
    calls = [node for inner in graphs_in(g) for node in inner.nodes if node.subgraph is not None]
    return {node.name: [n.name for n in node.subgraph.nodes if n.is_op] for node in calls if node.subgraph is not None}


def feeds() -> list[dict[str, np.ndarray]]:
    x = np.array([[1.5, -2, 3], [-0.5, 2, -3]], np.float32)
    return [{"x": x, "flag": np.array(flag)} for flag in (True, False)]


@pytest.mark.parametrize("make", [with_if, with_loop])
def test_the_original_without_calls_comes_back(make: Any) -> None:
    g = make()
    result = inside(g, "Neg", "Relu")
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)
    assert str(pt.parse(str(result))) == str(result)


def test_in_the_branches_of_an_if() -> None:
    result = inside(with_if(), "Neg", "Relu")
    assert calls_in(result) == {"in_0": ["t1", "t2"], "in_0_1": ["e0", "e1"]}
    assert [node.name for node in result.nodes if node.is_op] == ["pre", "choice", "post"]
    report = result["choice"].attrs["then_branch"].attrs["partition_report"]
    assert report.explain("t1") == "t1 is in in_0\n  t0 -> t1: unsupported: 'in' does not take 't0' (Exp)"


def test_in_a_loop_an_if_within_it_and_a_scan() -> None:
    result = inside(with_loop(), "Neg", "Relu")
    assert sorted(map(tuple, calls_in(result).values())) == [("e0",), ("m0", "m1"), ("s0", "s1"), ("t0", "t1")]
    names = [node.name for inner in graphs_in(result) for node in inner.nodes if node.is_op]
    assert len(names) == len(set(names))


def test_in_control_flow_within_a_call() -> None:
    outer = apply_pass(with_loop(), "PartitionGraph", subgraph_property=ops("Loop", "Abs"))
    assert calls_in(outer) == {"mine_0": ["outer", "loop"]}
    result = inside(outer, "Neg", "Relu", "Abs")
    loop = result["mine_0"].subgraph["loop"]  # type: ignore[index]
    assert [n.op for n in loop.attrs["body"].nodes if n.is_op] == ["Sub", "Call", "If", "Identity"]
    assert ["outer"] in calls_in(result).values()


@pytest.mark.parametrize("engine", ["", "cpu", "onnxruntime", "openvino"])
@pytest.mark.parametrize("make", [with_if, with_loop])
def test_it_runs_on_devices_and_after_a_file(make: Any, engine: str, tmp_path: Any) -> None:
    if engine not in ("", "cpu"):
        pytest.importorskip(engine)
    g = make()
    result = inside(g, "Neg", "Relu")
    path = tmp_path / "inside.onnx"
    pt.save(result, path)
    loaded = pt.load(path)
    assert calls_in(loaded) == calls_in(result)
    wanted = pt.compile(g, "reference")
    for which in (result, loaded):
        model = pt.compile(which, f"HETERO:{engine},reference" if engine else "reference")
        for feed in feeds():
            for value, expected in zip(model(feed), wanted(feed), strict=True):
                np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_affinities_within_bodies() -> None:
    g = with_if()
    for name, device in {"t0": "gpu", "t1": "gpu", "t2": "cpu"}.items():
        g["choice"].attrs["then_branch"][name].affinity = device
    result = apply_pass(g, "PartitionGraph", inside=True)
    assert calls_in(result) == {"gpu_0": ["t0", "t1"], "cpu_1": ["t2"]}


def test_a_predicate_is_asked_of_each_node_with_a_body_at_any_depth() -> None:
    asked = []

    def choice(node: Node) -> bool:
        asked.append(node.name)
        return node.name == "choice"

    result = inside(with_loop(), "Neg", "Relu", inside=choice)
    assert sorted(asked) == ["choice", "loop", "scan"]
    assert sorted(map(tuple, calls_in(result).values())) == [("e0",), ("t0", "t1")]


def test_a_body_that_is_shared_is_partitioned_once() -> None:
    x, shared = variable("x", "float32", SHAPE), body("b", "Neg", "Relu")
    g = Graph([call(shared, call(shared, x, name="first"), name="second")])
    result = inside(g, "Neg")
    assert result["first"].subgraph is result["second"].subgraph
    assert [n.is_call for n in result["first"].subgraph.nodes if n.is_op] == [True, False]
    one = inside(g, "Neg", inside=lambda node: node.name == "first")
    assert str(one) == str(result) and one["first"].subgraph is one["second"].subgraph


def test_the_report_of_the_whole_notes_what_happened_inside() -> None:
    result = inside(with_if(), "Neg", "Relu", "Convolution")
    first, second = result.attrs["partition_report"].notes
    assert first == "Inside, 2 bodies got 2 subgraphs; each body has its own report"
    assert "did you mean Conv?" in second
    outer = apply_pass(with_if(), "PartitionGraph", subgraph_property=ops("Relu"))
    report = inside(outer, "Neg").attrs["partition_report"]
    assert [group.nodes for group in report.groups] == [("post",)]
    assert report.notes == ("Inside, 3 bodies got 2 subgraphs; each body has its own report",)


def test_inside_that_reaches_nothing_is_noted() -> None:
    x = variable("x", "float32", SHAPE)
    result = inside(Graph([op("Relu", x)]), "Relu")
    assert result.attrs["partition_report"].notes == (
        "Nothing was partitioned: inside= looks for calls, If, Loop and Scan, and the graph has none",
    )
    result = inside(with_if(), "Relu", inside=lambda node: node.is_call)
    assert result.attrs["partition_report"].notes == (
        "Nothing was partitioned: inside= said no to 1 node with a body ('choice'), and there is no other",
    )


def test_inside_is_a_choice_of_nodes() -> None:
    with pytest.raises(PartitaError, match="inside='choice' says nothing about nodes\n  Give True, or a function"):
        inside(with_if(), "Relu", inside="choice")


def broken(node: Node) -> bool:
    raise KeyError(node.op)


@pytest.mark.parametrize(
    ("which", "cause"),
    [(broken, "it raised KeyError: 'If'"), (lambda node: None, "it returned None (NoneType), not a bool\n  Answer True or")],
)
def test_a_choice_of_nodes_that_does_not_answer(which: Any, cause: str) -> None:
    with pytest.raises(PartitaError) as caught:
        inside(with_if(), "Relu", inside=which)
    assert f"option inside, node 'choice' (If): {cause}" in str(caught.value)


def test_a_plan_is_of_one_graph() -> None:
    with pytest.raises(PartitaError, match="option inside: a plan is of one graph, not of the bodies in it\n  Plan each body"):
        pt.plan(with_if(), inside=True, subgraph_property=ops("Relu"))


@settings(max_examples=60, deadline=None)
@given(g=graphs(devices=[None]), first=st.sets(st.sampled_from(["Add", "Sub", "Neg", "If", "Relu"])))
def test_on_random_graphs(g: Graph, first: set[str]) -> None:
    result = apply_pass(g, "PartitionGraph", subgraph_property=ops(*first)) if first else g
    result = inside(result, "Add", "Sub", "Relu")
    check_same(g, result)
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)
    names = [node.name for inner in graphs_in(result) for node in inner.nodes if node.is_op]
    assert len(names) == len(set(names))
