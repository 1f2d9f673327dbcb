"""query: which device runs which node, why the preferred ones do not, and changing it."""

from __future__ import annotations

import pytest

import partita as pt
from partita.accelerators.placement.placement import Placement
from tests.accelerators.hetero.small_devices import device
from tests.graphs.topologies import alternating


def test_each_node_goes_to_the_first_device_that_runs_it(alpha, beta):
    placement = pt.query(alternating(), "HETERO:alpha,beta")
    assert isinstance(placement, Placement)
    assert dict(placement) == {"a": "alpha", "b": "beta", "c": "alpha", "d": "beta"}
    assert pt.query(alternating(), "HETERO:beta,alpha")["a"] == "beta"


def test_why(alpha, beta):
    placement = pt.query(alternating(), "HETERO:alpha,beta")
    assert placement.why("a") == "a (Relu) is on alpha, the first device asked for, which runs it"
    assert placement.why("b") == "b (Softmax) is on beta\n  not on alpha: alpha has no Softmax"
    placement["a"] = "beta"
    assert placement.why("a") == "a (Relu) is on beta: placed by hand\n  not on alpha: placed by hand"


def test_what_transform_fuses_into_calls_answers_under_the_original_names():
    class Fusing(pt.Accelerator):
        name = "fusing"

        def transform(self, graph):
            pair = pt.PatternProperty(pt.Pattern("Relu", "Softmax"), "pair")
            return pt.apply_pass(graph, "PartitionGraph", subgraph_property=pair)

        def supports(self, node, graph):
            return True if node.is_call else f"no {node.op} alone"

    answers = Fusing().query(alternating())
    assert answers == {"a": True, "b": True, "c": "no Exp alone", "d": "no Softmax alone"}


def test_the_manual_fix_after_the_automatic_start(alpha, beta):
    g = alternating()
    placement = pt.query(g, "HETERO:alpha,beta")
    placement["c"] = "beta"
    result = placement.apply(g)
    assert [node.affinity for node in result.nodes] == [None, "alpha", "beta", "beta", "beta"]
    assert all(node.affinity is None for node in g.nodes), "the graph given stays as it was"
    assert len(pt.compile(result, "HETERO:alpha,beta").units) == 2


def test_a_placement_knows_its_nodes_and_devices(alpha, beta):
    placement = pt.query(alternating(), "HETERO:alpha,beta")
    with pytest.raises(KeyError, match="there is no op node 'aa'"):
        placement["aa"]
    with pytest.raises(pt.GraphError, match="'x' is not an op"):
        placement["x"] = "alpha"
    with pytest.raises(pt.PartitaError, match=r"placement\['a'\]: 'bta' is none of the devices asked for\n  Did you mean 'beta'"):
        placement["a"] = "bta"
    with pytest.raises(pt.PartitaError, match="every node has to be somewhere"):
        del placement["a"]
    assert "a" in placement and "aa" not in placement and len(placement) == 4


def test_query_does_not_depend_on_affinities(alpha, beta):
    g = alternating()
    g["a"].affinity = "beta"
    assert pt.query(g, "HETERO:alpha,beta")["a"] == "alpha"


def test_constants_follow_and_dead_nodes_are_left_out(alpha):
    x = pt.variable("x", "float32", (4,))
    used = pt.op("Add", x, pt.constant([1.0, 2.0, 3.0, 4.0], name="k"), name="used")
    g = pt.Graph([used], nodes=[pt.op("Softmax", x, name="dead")])
    assert dict(pt.query(g, "alpha")) == {"used": "alpha"}


def test_pin_and_forbid(alpha, beta):
    g = alternating()
    assert pt.query(g, "HETERO:beta,alpha", pin={"a|c": "alpha"})["c"] == "alpha"
    placement = pt.query(g, "HETERO:beta,alpha", forbid={"Exp": "beta", "a": ["beta"]})
    assert (placement["a"], placement["c"]) == ("alpha", "alpha")
    assert placement.why("c") == "c (Exp) is on alpha\n  not on beta: forbid 'Exp'"
    assert pt.query(g, "HETERO:beta,alpha", forbid={"LSTM": "beta"})["a"] == "beta", "an op may be forbidden that is not there"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pin": {"b": "alpha"}}, "node 'b' (Softmax): pin 'b' puts it on 'alpha', which does not run it: alpha has no Softmax"),
        ({"pin": {"zz": "alpha"}}, "pin['zz']: no op node has such a name"),
        ({"pin": {"a": "alhpa"}}, "pin['a']: 'alhpa' is none of the devices asked for\n  Did you mean 'alpha'"),
        ({"pin": {"Relu": "alpha"}}, "pin['Relu']: no op node has such a name\n  It has to match a node's whole name"),
        ({"pin": ["a"]}, "pin: it is a dictionary, not ['a']"),
        ({"pin": {5: "alpha"}}, "pin: it is a dictionary, not {5: 'alpha'}"),
        ({"pin": {"a": ["alpha"]}}, "pin['a']: a device is named by a string, not by ['alpha']\n  They are alpha, beta"),
        ({"forbid": {"Relu": None}}, "forbid['Relu']: a device is named by a string, not by None"),
        ({"pin": {"[": "alpha"}}, "pin['[']: it is not a regular expression"),
        ({"pin": {"a": "alpha", ".": "beta"}}, "pin['.']: node 'a' is pinned to 'alpha' already, by pin 'a'"),
        ({"pin": {"a": "alpha"}, "forbid": {"Relu": "alpha"}}, "node 'a': pin 'a' puts it on 'alpha', where forbid 'Relu'"),
        ({"forbid": {"Sofmax": "alpha"}}, "forbid['Sofmax']: no op node has such a name\n  Did you mean 'Softmax'"),
        ({"forbid": {"aten.add": "alpha"}}, "It has to match an op, as Softmax, or a node's whole name"),
    ],
)
def test_rules_that_cannot_be(alpha, beta, options, message):
    with pytest.raises(pt.PartitaError) as caught:
        pt.query(alternating(), "HETERO:alpha,beta", **options)
    assert message in str(caught.value)


def test_ops_that_no_device_runs_are_listed_with_devices_and_reasons(alpha):
    with device("tiny", "Relu"), pytest.raises(pt.NotSupported) as caught:
        pt.query(alternating(), "HETERO:tiny,alpha")
    message = str(caught.value)
    assert "graph 'chain': no device of those asked (tiny, alpha) can run:\n    Softmax (b, d)\n" in message
    assert "      tiny: tiny has no Softmax\n      alpha: alpha has no Softmax" in message
    assert 'Add a device that can: "reference" runs every op of ONNX' in message


def test_the_list_of_what_is_not_supported_is_bounded(alpha):
    x = pt.variable("x", "float32", (4,))
    y = x
    for i in range(200):
        y = pt.op(["Sin", "Cos", "Tan", "Abs", "Neg", "Ceil", "Floor", "Sqrt", "Erf", "Sign", "Tanh"][i % 11], y, name=f"n{i}")
    with pytest.raises(pt.NotSupported) as caught:
        pt.query(pt.Graph([y]), "alpha")
    assert "and 3 further kinds" in str(caught.value) and "and 11 more" in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_a_call_is_placed_whole_or_inlined(alpha, beta):
    x = pt.variable("x", "float32", (4,))
    inner = pt.variable("i", "float32", (4,))
    whole = pt.Graph([pt.op("Exp", pt.op("Relu", inner, name="r1"), name="e1")], name="whole")
    mixed = pt.Graph([pt.op("Softmax", pt.op("Relu", inner, name="r2"), name="s2")], name="mixed")
    y = pt.call(mixed, pt.call(whole, x, name="f"), name="h")
    g = pt.Graph([y])
    with device("soft", "Softmax"):
        placement = pt.query(g, "HETERO:alpha,soft")
        assert dict(placement) == {"f": "alpha", "r2": "alpha", "s2": "soft"}
        assert placement.inlined == ("h",)
        assert {n.name: n.affinity for n in placement.apply(g).nodes if n.is_op} == dict(placement)
        m = pt.compile(g, "HETERO:alpha,soft")
        reasons = "alpha: its body holds 's2': alpha has no Softmax; soft: its body holds 'r2': soft has no Relu"
        assert m.report.notes == (f"inlined: no device takes the call 'h' whole: {reasons}",)
        assert next(unit.name for unit in m.units) == "f"
    assert dict(pt.query(g, "HETERO:alpha,beta")) == {"f": "alpha", "h": "beta"}


def test_nodes_with_bodies_are_placed_whole(alpha, beta):
    def branch(op):
        v = pt.variable("v", "float32", (4,))
        return pt.Graph([pt.op(op, v, name=op)], inputs=[v])

    x, c = pt.variable("x", "float32", (4,)), pt.variable("c", "bool", ())

    def choice(other):
        return pt.Graph([pt.op("If", c, name="if", captures=[x], then_branch=branch("Relu"), else_branch=branch(other))])

    with device("iffy", "If Relu Exp"):
        assert pt.query(choice("Exp"), "HETERO:iffy,beta")["if"] == "iffy"
        placement = pt.query(choice("Softmax"), "HETERO:iffy,beta")
        assert placement["if"] == "beta" and "iffy has no Softmax" in placement.why("if")


def test_forms(alpha, beta):
    placement = pt.query(alternating(), "HETERO:alpha,beta")
    assert repr(placement) == "<Placement: 2 on alpha, 2 on beta>"
    assert placement.to_dict() == {
        "graph": "chain",
        "devices": ["alpha", "beta"],
        "nodes": {"a": "alpha", "b": "beta", "c": "alpha", "d": "beta"},
        "refusals": {"b": {"alpha": "alpha has no Softmax"}, "d": {"alpha": "alpha has no Softmax"}},
        "inlined": [],
    }
    assert str(placement).endswith("not on alpha: 2 ops: alpha has no Softmax")
    assert placement.to_table().row_count == 3


def test_a_query_that_fails_or_answers_nonsense(beta):
    def broken(self, graph):
        raise RuntimeError("the driver crashed")

    with device("bad", query=broken), pytest.raises(pt.PartitaError, match="device 'bad': it raised RuntimeError: the driver"):
        pt.query(alternating(), "bad")
    with device("bad", query=lambda self, graph: []), pytest.raises(pt.PartitaError, match="it returned list, not a mapping"):
        pt.query(alternating(), "bad")
    with device("bad", query=lambda self, graph: {"a": True, "b": False}):
        placement = pt.query(alternating(), "HETERO:bad,beta")
        assert placement.refusals("b") == {"bad": "it does not say why"}
        assert placement.refusals("c") == {"bad": "its query gave no answer"}


def test_apply_to_another_graph(alpha, beta):
    placement = pt.query(alternating(), "HETERO:alpha,beta")
    other = pt.Graph([pt.op("Relu", pt.variable("x", "float32", (4,)), name="a")], name="other")
    with pytest.raises(pt.PartitaError, match="graph 'other': the placement has 'b', which is not in the graph"):
        placement.apply(other)


def test_what_is_no_graph():
    with pytest.raises(pt.PartitaError, match="query: str is not a Graph\n  Read a model with load"):
        pt.query("model.onnx", "reference")


def test_tables_say_how_much_they_leave_out(alpha, beta):
    with device("choosy", supports=lambda self, node, graph: f"no {node.name} on Mondays"):
        model = pt.compile(alternating(), "HETERO:choosy,alpha,beta")
    for most, rows, last in ((1, 5, "... 4 more reasons"), (4, 8, "... 1 more reasons"), (5, 8, None)):
        table = model.report.placement.to_table(most)
        cells = list(table.columns[0].cells)
        assert len(cells) == rows and (str(cells[-1]) == last if last else "more" not in str(cells[-1]))
    for most, last in ((3, "... 1 more"), (4, str(model.report.subgraphs[-1].name))):
        assert str(list(model.report.to_table(most).columns[0].cells)[-1]) == last


def test_properties_of_a_model_are_a_table(alpha, beta):
    table = pt.compile(alternating(), "HETERO:alpha,beta").properties.__rich__()
    rows = dict(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))
    assert rows["devices"] == "alpha, beta" and rows["inputs"] == "x: float32[4]"
    assert rows["outputs"].startswith("d: ")
