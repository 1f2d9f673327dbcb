"""What a device is asked: its transform followed back, calls by their bodies, configurations, and what its property says."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.graph.rewrite import rewrite
from tests.accelerators.hetero.small_devices import device
from tests.close import assert_close
from tests.graphs.topologies import with_tanh

X = np.array([-1.5, -0.5, 0.5, 2.0], np.float32)


def variable():
    return pt.variable("x", "float32", (4,))


def renaming(self, graph):
    """Every node and every value gets another name."""

    def visit(node, rewriter):
        if not node.is_op:
            return rewriter.keep(node)
        names = tuple(f"{name}_v" for name in node.output_names)
        return rewriter.keep(node, rewriter.rebuilt(node, name=f"{node.name}_n", output_names=names))

    return rewrite(graph, visit)


def hard_swish_split(self, graph):
    """HardSwish as x·HardSigmoid(x), under names of its own."""

    def visit(node, rewriter):
        if node.op != "HardSwish":
            rewriter.keep(node)
            return
        x = rewriter.value(node.inputs[0])
        half = pt.op("HardSigmoid", x, alpha=1 / 6, beta=0.5, name=f"{node.name}_half")
        rewriter.replace(node[0], pt.op("Mul", x, half, name=f"{node.name}_product")[0])

    return rewrite(graph, visit)


def identities_removed(self, graph):
    def visit(node, rewriter):
        if node.op == "Identity":
            rewriter.replace(node[0], rewriter.value(node.inputs[0]))
        else:
            rewriter.keep(node)

    return rewrite(graph, visit)


def test_a_transform_that_renames_all_hides_no_refusal():
    y = pt.op("Tanh", pt.op("Exp", pt.op("Relu", variable(), name="r"), name="e"), name="t")
    with device("alpha", "", transform=renaming):
        answers = pt.accelerator("alpha").query(pt.Graph([y]))
    assert answers == {op: f"its transform makes '{op}_n' ({kind}) of it: alpha has no {kind}"
                       for op, kind in (("r", "Relu"), ("e", "Exp"), ("t", "Tanh"))}
    with device("alpha", "Relu Tanh", transform=renaming):
        answers = pt.accelerator("alpha").query(pt.Graph([y]))
    assert [name for name, answer in answers.items() if answer is True] == ["r", "t"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_split_node_is_refused_for_its_part_and_its_neighbour_is_not(order):
    if order == "before":
        y = pt.op("HardSwish", pt.op("Relu", variable(), name="r"), name="h")
    else:
        y = pt.op("Relu", pt.op("HardSwish", variable(), name="h"), name="r")
    with device("alpha", "Relu Mul", transform=hard_swish_split):
        answers = pt.accelerator("alpha").query(pt.Graph([y]))
    assert answers["r"] is True
    assert answers["h"] == (
        "its transform makes 'h_half' (HardSigmoid) next to it without naming its origin: alpha has no HardSigmoid"
    )
    with device("alpha", "Relu Mul HardSigmoid", transform=hard_swish_split):
        assert set(pt.accelerator("alpha").query(pt.Graph([y])).values()) == {True}


def test_a_node_that_merges_without_saying_so_is_refused():
    def merged(self, graph, says=""):
        def visit(node, rewriter):
            if node.op == "Relu":
                whole = pt.op("AddRelu", *map(rewriter.value, node.inputs[0].node.inputs), domain="acc", name="relu")
                rewriter.replace(node[0], whole.evolve(metadata={"partita.fused": says} if says else {})[0])
            elif node.op != "Add":
                rewriter.keep(node)

        return rewrite(graph, visit)

    x = variable()
    g = pt.Graph([pt.op("Relu", pt.op("Add", x, x, name="add"), name="relu")], name="g")
    with device("alpha", "AddRelu", transform=merged):
        answers = pt.accelerator("alpha").query(g)
    nothing = "its transform leaves nothing of it: no node of its name, none that lists it as fused, and no value 'add'"
    assert answers == {"add": nothing, "relu": True}
    with device("alpha", "AddRelu", transform=lambda self, graph: merged(self, graph, "add\nrelu")):
        assert pt.accelerator("alpha").query(g) == {"add": True, "relu": True}


LOSSES = {
    "one": ("a = Exp(x)\n y = Neg(a)", "y = Neg(x)", {"a"}),
    "two in a row": ("a = Exp(x)\n b = Abs(a)\n y = Neg(b)", "y = Neg(x)", {"a", "b"}),
    "with an Identity between": ("a = Exp(x)\n i = Identity(a)\n b = Abs(i)\n y = Neg(b)", "y = Neg(x)", {"a", "b"}),
    "behind an op": ("z = Relu(x)\n a = Exp(z)\n b = Abs(a)\n y = Neg(b)", "z = Relu(x)\n y = Neg(z)", {"a", "b"}),
    "at the end": ("z = Relu(x)\n a = Exp(z)\n y = Abs(a)", "z = Relu(x)", {"a", "y"}),
    "all": ("a = Exp(x)\n y = Abs(a)", "", {"a", "y"}),
    "taken in by what is before": ("z = Relu(x)\n a = Exp(z)\n b = Abs(a)\n y = Neg(b)", "z = my.All(x)\n y = Neg(z)", set()),
    "taken in as a factor": ("m = Mul(x, w)\n s = Mul(m, w)\n y = Neg(s)", "m = Mul(x, v)\n y = Neg(m)", set()),
    "values that are only moved": ("a = Transpose(x)\n b = Transpose(a)\n y = Neg(b)", "y = Neg(x)", set()),
    "a factor of 1": ("o = Mul(x, one)\n y = Neg(o)", "y = Neg(x)", set()),
    "nobody needs it": ("a = Exp(x)\n b = Abs(a)\n y = Neg(x)", "y = Neg(x)", set()),
    "of constants": ("e = Exp(w)\n s = Abs(e)\n y = Mul(x, s)", "y = Mul(x, v)", set()),
}


@pytest.mark.parametrize("case", LOSSES)
def test_a_chain_that_a_transform_loses_is_refused_if_it_changes_values_and_nothing_took_it_in(case):
    before, after, lost = LOSSES[case]
    arrays = {"w": np.full(3, 2, np.float32), "v": np.full(3, 4, np.float32), "one": np.ones(3, np.float32)}

    def graph(lines, last):
        x = pt.variable("x", "float32", (3,))
        there = {"x": x, **{name: pt.constant(array, name=name) for name, array in arrays.items()}}
        for line in filter(None, lines.split("\n ")):
            name, call = line.split(" = ")
            op, given = call.rstrip(")").split("(")
            domain, _, op = op.rpartition(".")
            there[name] = pt.op(op, *(there[part] for part in given.split(", ")), name=name, domain=domain)
        return pt.Graph([there[last]], [x], name="g")

    last = "y" if "y =" in after else "z" if "z =" in after else "x"
    with device("alpha", transform=lambda self, g: graph(after, last)):
        answers = pt.accelerator("alpha").query(pt.apply_pass(graph(before, "y"), "InferShape"))
    said = "its transform leaves nothing of it: it changes values, "
    said += "and no op beside it has become another that could have taken it in"
    assert {name for name, answer in answers.items() if answer == said} == lost
    assert lost or set(answers.values()) == {True}


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("kind", ["Add", "Neg"])
def test_an_op_of_one_kind_is_not_merged_with_another_that_reads_something_else(kind, renamed):
    """Nor is it part of an op beside it that has another name alone."""

    def losing(self, graph):
        def visit(node, rewriter):
            if node.name == "second":
                rewriter.replace(node[0], rewriter.value(node.inputs[0]))
            elif node.is_op and renamed:
                rewriter.keep(node, rewriter.rebuilt(node, name=f"{node.name}_n"))
            else:
                rewriter.keep(node)

        return rewrite(graph, visit)

    x = variable()
    first = pt.op(kind, *[x, x][: 2 if kind == "Add" else 1], name="first")
    second = pt.op(kind, *[first, first][: 2 if kind == "Add" else 1], name="second")
    graph = pt.Graph([pt.op("Exp", second, name="e"), pt.op("Tanh", first, name="t")])
    with device("alpha", transform=losing, supports=lambda self, node, graph: True):
        answers = pt.accelerator("alpha").query(graph)
    assert answers.pop("second") != True and set(answers.values()) == {True}  # noqa: E712  (a reason is true too)


def test_a_node_that_is_removed_is_found_by_its_value():
    y = pt.op("Tanh", pt.op("Identity", pt.op("Relu", variable(), name="r"), name="same"), name="t")
    with device("alpha", "Relu Tanh", transform=identities_removed):
        assert set(pt.accelerator("alpha").query(pt.Graph([y])).values()) == {True}
    with device("alpha", "Relu", transform=identities_removed):
        answers = pt.accelerator("alpha").query(pt.Graph([y]))
    assert answers == {
        "r": True,
        "same": "its transform leaves it out, and refused is 't' (Tanh), which reads it: alpha has no Tanh",
        "t": "alpha has no Tanh",
    }


def in_call(g, name="mine", **options):
    ops = {node.op for node in g.nodes if node.is_op}
    mine = pt.PatternProperty(pt.ContainOpSelector(ops), name)
    mine.inline = options.pop("inline", True)
    return pt.apply_pass(g, "PartitionGraph", subgraph_property=mine, **options)


def inlining(self, graph):
    return pt.apply_pass(graph, "InlineSubgraphs")


def test_a_call_that_a_transform_inlines_is_asked_by_its_body():
    with device("alpha", "Relu Exp", transform=inlining):
        alpha = pt.accelerator("alpha")
        assert alpha.query(in_call(with_tanh())) == {"mine_0": "its body holds 'c': alpha has no Tanh"}
        nested = in_call(in_call(with_tanh(), "inner", min_subgraph_size=2), "outer", inside=False)
        assert set(alpha.query(nested).values()) == {"its body holds 'c': alpha has no Tanh"}


def test_functions_of_the_model_are_asked_in_their_places():
    inner = pt.variable("i", "float32", (4,))
    body = pt.Graph([pt.op("Tanh", inner, name="t")], name="Twice", inputs=[inner])

    def function(x, name):
        result = pt.call(body, x, name=name)
        return result.evolve(op="Twice", domain="mine", output_names=(f"{name}_out",))

    g = pt.Graph([pt.op("Relu", function(function(variable(), "f1"), "f2"), name="r")])
    with device("alpha", "Relu", transform=inlining):
        answers = pt.accelerator("alpha").query(g)
        assert answers["r"] is True
        assert answers["f1"].endswith("alpha has no Tanh") and answers["f2"].endswith("alpha has no Tanh")
        placement = pt.query(g, "HETERO:alpha,reference")
        assert placement["r"] == "alpha" and placement.inlined == ("f1", "f2")
    with device("alpha", "Relu Tanh"):  # takes no call as an op
        m = pt.compile(g, "HETERO:alpha,reference")
        assert {unit.device.label for unit in m.units} == {"alpha"}
        np.testing.assert_array_equal(m(X)[0], np.maximum(np.tanh(np.tanh(X)), 0))


def test_a_call_within_a_call_is_taken_apart_where_the_device_takes_no_calls():
    inner = pt.variable("i", "float32", (4,))
    deep = pt.Graph([pt.op("Relu", inner, name="r")], name="deep", inputs=[inner])
    middle = pt.variable("m", "float32", (4,))
    outer = pt.Graph([pt.op("Exp", pt.call(deep, middle, name="within"), name="e")], name="outer", inputs=[middle])
    g = pt.Graph([pt.call(outer, variable(), name="whole")])
    with device("alpha", "Relu Exp"):
        m = pt.compile(g, "HETERO:alpha,reference")
        assert {unit.device.label for unit in m.units} == {"alpha"}
        assert m.report.notes == (
            "inlined: no device takes the call 'whole' whole: alpha: its body holds 'within': alpha has no Call",
        )
        np.testing.assert_allclose(m(X)[0], np.exp(np.maximum(X, 0)), rtol=1e-6)


@pytest.mark.parametrize("ratio", [None, 0.5])
def test_tvm_is_asked_about_what_is_inside_calls(ratio):
    pytest.importorskip("tvm")
    if ratio is None:
        x = pt.variable("x", "float32", (2, 3, 4, 4))
        c = [pt.constant(np.linspace(0.5, 1.5, 3, dtype=np.float32) + i, name=f"c{i}") for i in range(4)]
        g = pt.Graph([pt.op("BatchNormalization", x, *c, training_mode=1, n_outputs=3, name="n")[0]])
    else:
        x = pt.variable("x", "float32", (2, 3, 4, 4))
        result = pt.op("Dropout", x, pt.constant(np.float32(ratio)), n_outputs=2, name="n")
        g = pt.Graph([result[0], result[1]])
    called = in_call(g)
    assert called["mine_0"].is_call
    array = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    wanted = pt.compile(g, "reference")(array)
    for model in (g, called):
        m = pt.compile(model, "HETERO:cpu,reference")
        for mine, true in zip(m(array), wanted, strict=True):
            assert_close(mine, true)
    flat = pt.query(g, "HETERO:cpu,reference")["n"]
    assert set(pt.query(called, "HETERO:cpu,reference").values()) == {flat}


# -- calls in part ---------------------------------------------------------------------------------------


def test_a_call_taken_in_part_is_inlined_and_not_given_to_the_last_resort():
    called = in_call(with_tanh())
    with device("alpha", "Relu Exp"):
        m = pt.compile(called, "HETERO:alpha,reference")
        assert [(unit.device.label, unit.ops) for unit in m.units] == [
            ("alpha", ("a", "b")), ("reference", ("c",)), ("alpha", ("d",)),
        ]
        reason = "alpha: its body holds 'c': alpha has no Tanh"
        assert m.report.notes == (f"inlined: no device takes the call 'mine_0' whole: {reason}",)
        assert m.report.notes[0] in str(pt.query(called, "HETERO:alpha,reference"))
        with device("beta"):
            assert dict(pt.query(called, "HETERO:alpha,beta,reference")) == {"mine_0": "beta"}
    assert dict(pt.query(called, "reference")) == {"mine_0": "reference"}
    assert pt.compile(called, "reference").report.notes == ()


def test_a_property_may_insist_on_one_piece(tmp_path):
    called = in_call(with_tanh(), inline=False)
    assert called["mine_0"].metadata == {"partita.inline": "no"}
    pt.save(called, tmp_path / "called.onnx")
    for g in (called, pt.load(tmp_path / "called.onnx"), pt.parse(str(called))):
        with device("alpha", "Relu Exp"):
            m = pt.compile(g, "HETERO:alpha,reference")
            assert [(unit.name, unit.device.label) for unit in m.units] == [("mine_0", "reference")]
            assert m.report.notes == (
                "kept whole: the call 'mine_0' on reference, because it has inline=False: "
                "alpha: its body holds 'c': alpha has no Tanh",
            )
            with pytest.raises(pt.NotSupported, match="its body holds 'c': alpha has no Tanh"):
                pt.compile(g, "alpha")
    by_hand = pt.call(called["mine_0"].subgraph, variable(), name="f", inline=False)
    with device("alpha", "Relu Exp"):
        assert dict(pt.query(pt.Graph([by_hand]), "HETERO:alpha,reference")) == {"f": "reference"}


def test_an_affinity_insists_too_and_the_report_says_so():
    called = in_call(with_tanh())
    called["mine_0"].affinity = "reference"
    with device("alpha", "Relu Exp"):
        m = pt.compile(called, "HETERO:alpha,reference")
    assert [unit.device.label for unit in m.units] == ["reference"]
    assert m.report.notes == ("kept whole: the call 'mine_0' on reference, by its affinity",)


def test_what_is_forbidden_a_call_is_forbidden_its_ops():
    with device("alpha"), device("beta", "Relu Exp"):
        placement = pt.query(in_call(with_tanh()), "HETERO:alpha,beta,reference", forbid={"mine_0": "alpha"})
        assert dict(placement) == {"a": "beta", "b": "beta", "c": "reference", "d": "beta"}
        assert placement.refusals("c") == {"alpha": "forbid 'mine_0'", "beta": "beta has no Tanh"}


def test_rules_about_ops_inside_a_call_hold():
    called = in_call(with_tanh())
    with device("alpha"), device("beta"):
        assert dict(pt.query(called, "HETERO:alpha,beta")) == {"mine_0": "alpha"}
        placement = pt.query(called, "HETERO:alpha,beta", forbid={"Tanh": "alpha"})
        assert dict(placement) == {"mine_0": "beta"}
        assert placement.refusals("mine_0") == {"alpha": "forbid 'Tanh' inside, of 'c'"}
        assert dict(pt.query(called, "HETERO:alpha,beta", pin={"c": "beta"})) == {"mine_0": "beta"}
        placement = pt.query(called, "HETERO:alpha,beta", pin={"c": "beta", "d": "alpha"})
        assert dict(placement) == {"a": "alpha", "b": "alpha", "c": "beta", "d": "alpha"}
        assert placement.notes == (
            "inlined: no device takes the call 'mine_0' whole: alpha: pin 'c' inside, of 'c'; beta: pin 'd' inside, of 'd'",
        )
        with pytest.raises(pt.PartitaError, match="no op node has such a name"):
            pt.query(called, "HETERO:alpha,beta", pin={"e": "beta"})


def test_only_the_first_of_many_notes_are_printed():
    y = variable()
    for i in range(20):
        body = pt.variable(f"i{i}", "float32", (4,))
        y = pt.call(pt.Graph([pt.op("Tanh", body, name=f"t{i}")], inputs=[body]), y, name=f"c{i}")
    with device("alpha", "Relu"):
        placement = pt.query(pt.Graph([y]), "HETERO:alpha,reference")
    assert len(placement.notes) == 20
    assert str(placement).count("inlined: ") == 12 and str(placement).endswith("... and 8 more notes")


# -- an accelerator's own property -----------------------------------------------------------------------


def own(**members):
    cls = type("Own", (pt.SubgraphProperty,), {"name": "own", **members})
    return lambda self: cls()


def gives_back(**members):
    """The chain on a device whose property is this, all else on the reference -> the model."""
    with device("alpha", "Relu Exp", subgraph_property=own(**members)):
        m = pt.compile(with_tanh(), "HETERO:alpha,reference")
        np.testing.assert_allclose(m(X)[0], pt.compile(with_tanh(), "reference")(X)[0], rtol=1e-6)
        return m


def places(m):
    return {name: unit.device.label for unit in m.units for name in unit.ops}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"min_subgraph_size": 2}, "it was in a subgraph of 1 op, fewer than min_subgraph_size=2"),
        ({"max_subgraphs": 1}, "it was in a subgraph of 1 op, beyond max_subgraphs=1"),
        ({"review_subgraph": lambda self, subgraph, index: index == 0}, "review_subgraph said no for its subgraph"),
        (
            {"create_subgraph_node": lambda self, subgraph, index: None if index else pt.call(subgraph)},
            "create_subgraph_node returned None for its subgraph",
        ),
    ],
)
def test_what_a_property_gives_back_goes_to_the_next_device(members, reason):
    m = gives_back(**members)
    assert places(m) == {"a": "alpha", "b": "alpha", "c": "reference", "d": "reference"}
    assert m.report.why("d") == f"d (Relu) is on reference\n  not on alpha: its property 'own' gave it back: {reason}"
    assert m.report.notes == (f"moved from alpha to reference: 1 op (d): its property 'own' gave it back: {reason}",)
    assert [unit.ops for unit in m.units][-1] == ("c", "d"), "what came back joins its neighbours there"


def test_subgraphs_of_fewer_ops_than_asked_for_go_to_the_next_device():
    with device("alpha", "Relu Exp"), device("beta", "Relu Exp Tanh"):
        m = pt.compile(with_tanh(), "HETERO:alpha,beta,reference", min_subgraph_size=2)
        assert places(m) == {"a": "alpha", "b": "alpha", "c": "beta", "d": "beta"}
        assert m.report.why("d").endswith("not on alpha: it was in a subgraph of 1 op, fewer than min_subgraph_size=2")
        m = pt.compile(with_tanh(), "HETERO:alpha,reference", min_subgraph_size=3)
        assert places(m) == dict.fromkeys("abcd", "reference")
        m = pt.compile(with_tanh(), "beta", min_subgraph_size=9)
        assert places(m) == dict.fromkeys("abcd", "beta")
        assert m.report.notes[0].startswith("stays on beta, since no later device runs it: 4 ops")
        np.testing.assert_allclose(m(X)[0], pt.compile(with_tanh(), "reference")(X)[0], rtol=1e-6)
    with pytest.raises(pt.AcceleratorError, match="option min_subgraph_size: -1 is not a count"):
        pt.compile(with_tanh(), "reference", min_subgraph_size=-1)


@pytest.mark.parametrize("affinity", ["reference", "nowhere"])
@pytest.mark.parametrize("hook", ["create_subgraph_node", "adjust_subgraph_node"])
def test_a_property_of_a_device_makes_nodes_for_that_device(affinity, hook):
    members = {
        "create_subgraph_node": lambda self, subgraph, index: pt.call(subgraph).evolve(affinity=affinity),
        "adjust_subgraph_node": lambda self, nodes, index: [node.evolve(affinity=affinity) for node in nodes],
    }
    if hook == "adjust_subgraph_node":
        members["create_subgraph_node"] = lambda self, subgraph, index: None
    with pytest.raises(pt.PartitaError) as caught:
        gives_back(**members)
    cause = f"hook {hook}, node 'a' (Relu): it returned a node with the affinity {affinity!r}, for a subgraph on 'alpha'"
    assert cause in str(caught.value)


def test_what_a_property_gives_back_and_no_other_device_runs_is_an_error():
    with device("alpha", subgraph_property=own(min_subgraph_size=9)):
        with pytest.raises(pt.NotSupported, match="gave it back: it was in a subgraph of 4 ops, fewer than min_subgraph_size=9"):
            pt.compile(with_tanh(), "alpha")
        forced = pt.compile(with_tanh(), "HETERO:alpha,reference", pin={"[abcd]": "alpha"})
        assert set(places(forced).values()) == {"alpha"}
        assert forced.report.notes[0].startswith("stays on alpha, where it was forced: 4 ops (a, b, c, d): its property 'own'")


def test_a_property_that_gives_back_each_first_group_is_asked_once():
    asked = []

    def review(self, subgraph, index):
        asked.append([node.name for node in subgraph.nodes if node.is_op])
        return index != 0

    m = gives_back(review_subgraph=review)
    assert places(m) == {"a": "reference", "b": "reference", "c": "reference", "d": "alpha"}
    assert asked == [["a", "b"], ["d"]]


def test_a_propertys_pre_and_post_partition_are_called():
    seen = []
    gives_back(
        pre_partition=lambda self, graph, options: seen.append(len(graph.nodes)),
        post_partition=lambda self, graph: seen.append(len(graph.nodes)),
    )
    assert seen == [5, 4]


# -- configurations --------------------------------------------------------------------------------------


def by_level(self, node, graph, config):
    return config["LEVEL"] > 1 or node.op == "Relu" or f"{node.op} needs LEVEL 2"


def test_a_device_is_asked_about_a_configuration():
    with device("alpha", supports=by_level):
        assert pt.query(with_tanh(), "HETERO:alpha,reference")["b"] == "reference"
        placement = pt.query(with_tanh(), "HETERO:alpha,reference", config={"alpha": {"LEVEL": 2}})
        assert set(placement.values()) == {"alpha"}
        model = pt.compile(with_tanh(), "HETERO:alpha,reference", {"alpha": {"LEVEL": 2}})
        assert {unit.device.label for unit in model.units} == {"alpha"}
        with pytest.raises(pt.UnknownKey, match="has no configuration key 'LEVL'"):
            pt.query(with_tanh(), "alpha", config={"LEVL": 2})
    with device("alpha", supports=lambda self, node, graph: self.get_config("LEVEL") > 1 or "LEVEL is 1"):
        assert set(pt.query(with_tanh(), "alpha", config={"LEVEL": 2}).values()) == {"alpha"}
        assert set(pt.query(with_tanh(), "HETERO:alpha,reference").values()) == {"reference"}


def test_transform_sees_the_configuration():
    def transform(self, graph):
        return identities_removed(self, graph) if self.get_config("LEVEL") == 2 else graph

    g = pt.Graph([pt.op("Relu", pt.op("Identity", variable(), name="same"), name="r")])
    with device("alpha", "Relu", transform=transform) as alpha:
        assert pt.query(g, "HETERO:alpha,reference")["same"] == "reference"
        m = pt.compile(g, "HETERO:alpha,reference", {"alpha": {"LEVEL": 2}})
        assert {u.device.label for u in m.units} == {"alpha"}
        assert [node.op for node in alpha.compiled[0].nodes if node.is_op] == ["Relu"]


def test_a_metric_of_another_device_id():
    def metrics(self):
        return {"AVAILABLE_DEVICES": ["0", "1"], "FULL_DEVICE_NAME": f"toy number {self.get_config('DEVICE_ID')}"}

    with device("alpha", metrics=metrics) as alpha:
        assert alpha.get_metric("FULL_DEVICE_NAME") == "toy number 0"
        assert alpha.get_metric("FULL_DEVICE_NAME", {"DEVICE_ID": "1"}) == "toy number 1"
        assert alpha.get_metric("FULL_DEVICE_NAME") == "toy number 0"
        with pytest.raises(pt.UnknownKey):
            alpha.get_metric("FULL_DEVICE_NAME", {"DEVICE": "1"})


# -- what was asked about as one, cut apart --------------------------------------------------------------


def test_what_a_transform_merges_and_a_rule_cuts_apart_is_asked_about_again():
    def merged(self, graph):
        return pt.apply_pass(graph.evolve(attrs={}), "PartitionGraph", subgraph_property=pt.PatternProperty(
            pt.Pattern("Add", "Relu"), "add_relu"))

    def only_merged(self, node, graph):
        return node.name.startswith("add_relu_") or f"alpha has no {node.op} alone"

    x = variable()
    g = pt.Graph([pt.op("Relu", pt.op("Add", x, x, name="add"), name="relu")], name="g")
    with device("alpha", transform=merged, supports=only_merged):
        assert {unit.device.label for unit in pt.compile(g, "HETERO:alpha,reference").units} == {"alpha"}
        m = pt.compile(g, "HETERO:alpha,reference", forbid={"Add": "alpha"})
        assert {unit.device.label for unit in m.units} == {"reference"}
        reason = "cut from its neighbours, it is not what it runs: alpha has no Relu alone"
        assert m.report.why("relu") == f"relu (Relu) is on reference\n  not on alpha: {reason}"
        assert m.report.moves[0].nodes == ("relu",)
        with pytest.raises(pt.CompileError, match="cut from its neighbours, 'relu' is not what it runs: alpha has no Relu alone"):
            pt.compile(g, "HETERO:alpha,reference", forbid={"Add": "alpha"}, pin={"relu": "alpha"})


def marked(self, graph):
    """Every node gets an affinity, in bodies too, and the ops are grouped by it."""
    for node in graph.nodes:
        node.affinity = "kernel"
        for _, body in node.bodies:
            marked(self, body)
    graph.attrs["marked"] = True
    return graph


@pytest.mark.parametrize("hook", ["transform", "supports", "query"])
def test_what_a_device_marks_in_a_graph_is_not_seen_outside(hook):
    inner = pt.variable("v", "float32", (4,))
    body = pt.Graph([pt.op("Relu", inner, name="inside")], [inner])
    held = pt.call(body, name="held").evolve(inputs=(variable()[0],))
    g = pt.apply_pass(pt.Graph([pt.op("Relu", held, name="r"), pt.op("Relu", pt.constant(X, name="k"), name="c")]), "InferType")
    given = {
        "transform": {"transform": marked},
        "supports": {"supports": lambda self, node, graph: setattr(node, "affinity", "kernel") is None},
        "query": {"query": lambda self, graph: dict.fromkeys((n.name for n in marked(self, graph).nodes if n.is_op), True)},
    }[hook]
    with device("alpha", "Relu", **given):
        pt.accelerator("alpha").query(g) if hook != "query" else None
        pt.query(g, "alpha")
        outputs = pt.compile(g, "alpha")(X)
    assert np.array_equal(outputs[0], np.maximum(X, 0))
    assert {node.affinity for part in (g, body) for node in part.nodes} == {None}
    assert "marked" not in g.attrs


@pytest.mark.parametrize("option", ["strict", "optimize"])
def test_a_word_is_no_flag(option):
    g = pt.Graph([pt.op("Relu", variable(), name="r")])
    with pytest.raises(pt.AcceleratorError, match=f"option {option}: 'no' is neither True nor False"):
        pt.compile(g, "reference", **{option: "no"})


def test_why_of_an_op_inside_a_call_names_the_call():
    inner = pt.variable("v", "float32", (4,))
    held = pt.call(pt.Graph([pt.op("Relu", inner, name="deep")], [inner]), variable(), name="held")
    with device("alpha", "Relu"), pytest.raises(pt.PartitaError) as caught:
        pt.compile(pt.Graph([held]), "alpha").report.why("deep")
    assert str(caught.value) == "placement: 'deep' is inside 'held' (Call), which is placed as a whole\n  Ask about 'held'."


@pytest.mark.parametrize("levels", [1, 2])
def test_a_device_that_lists_what_it_lacks_is_asked_about_bodies_too(levels):
    chain = pt.Graph([pt.op("Tanh", pt.op("Relu", variable(), name="r"), name="t")])
    mine = pt.PatternProperty(pt.ContainOpSelector({"Relu", "Tanh"}), "mine")
    g = pt.apply_pass(chain, "PartitionGraph", subgraph_property=mine)
    if levels == 2:
        g = pt.apply_pass(g, "PartitionGraph", subgraph_property=mine, inside=True)
    with device("alpha", supports=lambda self, node, graph: node.op != "Tanh" or "alpha has no Tanh"):
        placement = pt.query(g, "HETERO:alpha,reference")
    assert dict(placement) == {"r": "alpha", "t": "reference"}
    assert "its body holds 't': alpha has no Tanh" in placement.notes[0]


def inlined_without_dead_nodes(self, graph):
    from partita.graph.inline import inline_calls

    return pt.apply_pass(inline_calls(graph), "EliminateDead", verify=False)


def test_what_a_call_reads_and_its_body_does_not_is_asked_about():
    """The call is compiled alone, with all its inputs: what makes them is there, though nothing reads it once all is inlined."""
    x, used, unused = variable(), pt.variable("used", "float32", (4,)), pt.variable("unused", "float32", (4,))
    body = pt.Graph([pt.op("Relu", used, name="r")], [used, unused], name="body")
    read = pt.op("Tanh", pt.op("Neg", x, name="n"), name="t")
    graph = pt.Graph([pt.op("Neg", pt.call(body, x, read, name="c"), name="y")], [x])
    with device("alpha", "Relu Neg", transform=inlined_without_dead_nodes), device("beta"):
        answers = pt.accelerator("alpha").query(graph)
        assert answers == {"n": True, "t": "alpha has no Tanh", "c": True, "y": True}
        model = pt.compile(graph, "HETERO:alpha,beta")
        assert model.report.moves == () and model.report.placement["t"] == "beta"


def test_a_rule_about_a_node_that_is_gone_says_why():
    x = pt.variable("x", "float32", (4,))
    g = pt.Graph([pt.op("Add", pt.op("Relu", x, name="kept"), pt.op("Relu", x, name="same"), name="sum")])
    with pytest.raises(pt.AcceleratorError, match="node 'same' is gone: the passes of optimize=True removed it, or merged it"):
        pt.compile(g, "reference", forbid={"same": "reference"}, optimize=True)


def test_the_counts_of_ops_agree_where_a_user_made_calls():
    x = pt.variable("x", "float32", (4,))
    chain = pt.op("Tanh", pt.op("Exp", pt.op("Relu", x, name="a"), name="b"), name="c")
    g = pt.apply_pass(pt.Graph([chain], name="g"), "PartitionGraph", groups=[["a", "b"]])
    report = pt.compile(g, "reference").report
    assert sum(row.ops for row in report.subgraphs) == 3
    assert str(report).splitlines()[0] == "g: 3 ops in 2 subgraphs, placed by priority"
    assert "  reference: 3 ops" in str(report).splitlines()


def test_after_a_give_back_the_partition_s_report_is_that_of_what_was_compiled() -> None:
    """It showed the first partition, in which the op that was given back lay outside."""
    x = pt.variable("x", "float32", (2, 3))
    first = pt.op("Exp", pt.op("Relu", x, name="first"), name="second")
    graph = pt.Graph([pt.op("Relu", pt.op("Neg", first, name="third"), name="fourth")], name="net")
    model = pt.compile(graph, "HETERO:onnxruntime,reference", forbid={"Exp": "onnxruntime"}, min_subgraph_size=2)
    partition = model.report.partition
    assert partition.calls == tuple(group.name for group in partition.groups) == tuple(unit.name for unit in model.units)
    assert [group.nodes for group in partition.groups] == [("first", "second"), ("third", "fourth")]
    assert not partition.outside and {border.inside for border in partition.borders} <= {*partition.calls}
    assert partition.explain("first").startswith(f"first is in {partition.calls[0]}")
