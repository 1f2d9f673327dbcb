"""What enters and leaves a call: each value once, whatever is shared, listed twice, captured or passed straight through."""

from __future__ import annotations

import numpy as np

import partita as pt
from partita.graph import Graph, constant, op, variable
from partita.partition import AffinityProperty, ContainOpSelector, PatternProperty, SubgraphProperty
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, from_edges

from .making import Property, check_partition_of, check_same, groups_of, ops


def partitioned(g: Graph, *names: str, **options: object) -> Graph:
    """The graph with these ops in calls, checked."""
    result = apply_pass(g, "PartitionGraph", subgraph_property=ops(*names), **options)
    check_partition_of(g, result)
    return result


def test_each_value_enters_once_and_leaves_once() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    b = op("Add", a, a, name="b")
    c = op("Mul", b, a, name="c")
    g = Graph([op("Neg", c, name="d"), op("Abs", c, name="e"), c])
    assert str(partitioned(g, "Add", "Mul")).splitlines()[2:] == [
        "func mine_0(a) -> (c) {",
        "  b = Add(a, a)",
        "  c = Mul(b, a)",
        "}",
        "",
        "graph net(x: float32[2, 3]) -> (d, e, c) {",
        "  a = Exp(x)",
        "  c = call mine_0(a) name=mine_0",
        "  d = Neg(c)",
        "  e = Abs(c)",
        "}",
    ]


def test_without_dedup_each_use_enters_by_itself() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    g = Graph([op("Mul", op("Add", a, a, name="b"), a, name="c")])
    result = partitioned(g, "Add", "Mul", dedup_inputs=False)
    assert [v.name for v in result["mine_0"].subgraph.inputs] == ["a", "a_1", "a_2"]
    assert [e.name for e in result["mine_0"].inputs] == ["a", "a", "a"]


def test_values_are_told_apart_by_identity_and_never_by_name() -> None:
    x, y = variable("x", "float32", SHAPE), variable("y", "float32", SHAPE)
    y = y.evolve(output_names=("a",))  # the node "y" makes the value "a", and an op is called "a" too
    a = op("Exp", x, name="a", output_names=["b"])
    g = Graph([op("Add", op("Sub", a, y, name="s"), y, name="t")])
    result = apply_pass(g, "PartitionGraph", subgraph_property=ops("Add", "Sub"))
    check_same(g, result)
    assert len(result["mine_0"].inputs) == 2
    result = apply_pass(g, "PartitionGraph", subgraph_property=ops("Exp", "Add", "Sub"))
    check_same(g, result)
    body = result["mine_0"].subgraph
    assert len({node.name for node in body.nodes}) == len(body.nodes)


def test_a_graph_output_listed_several_times_and_an_input_passed_straight_through() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    g = Graph([a, x, a, a], output_names=["first", "same", "second", "third"])
    result = partitioned(g, "Exp")
    assert [e.name for e in result.outputs] == ["a", "x", "a", "a"]
    assert result.output_names == ("first", "same", "second", "third")
    assert len(result["mine_0"].output_names) == 1


def test_unused_inputs_stay_in_their_places() -> None:
    x, y, z = (variable(name, "float32", SHAPE) for name in "xyz")
    result = partitioned(Graph([op("Exp", y, name="a")], [x, y, z]), "Exp")
    assert [node.name for node in result.inputs] == ["x", "y", "z"]


def test_a_shared_constant_goes_along_and_its_array_stays_one() -> None:
    x = variable("x", "float32", SHAPE)
    k = constant(np.full(SHAPE, 2, np.float32), "k")
    a = op("Add", x, k, name="a")
    b = op("Add", op("Exp", a, name="e"), k, name="b")
    result = partitioned(Graph([b, k]), "Add")
    bodies = [result["mine_0"].subgraph, result["mine_1"].subgraph]
    assert all(body["k"].value is k.value for body in bodies)
    assert [len(result[name].inputs) for name in ("mine_0", "mine_1")] == [1, 1]
    assert result["k"].value is k.value  # it is a graph output too


def test_a_constant_that_only_bodies_read_leaves_the_graph_and_a_dead_one_stays() -> None:
    x = variable("x", "float32", SHAPE)
    k, dead = constant(np.ones(SHAPE, np.float32), "k"), constant(np.zeros(3), "dead")
    result = partitioned(Graph([op("Add", x, k, name="a")], nodes=[dead]), "Add")
    assert "k" not in result
    assert "dead" in result


def test_captured_values_are_inputs() -> None:
    x = variable("x", "float32", SHAPE)
    a, b = op("Exp", x, name="a"), op("Neg", x, name="b")
    p, q = variable("p", "float32", SHAPE), variable("q", "float32", SHAPE)
    then = Graph([op("Add", p, q, name="then")], [p, q])
    other = Graph([op("Sub", p, q, name="else")], [p, q])
    flag = constant(np.array(True), "flag")
    branch = op("If", flag, name="branch", captures=[a, b], then_branch=then, else_branch=other)
    g = Graph([op("Relu", branch, name="r")])
    result = partitioned(g, "If", "Relu")
    assert [e.name for e in result["mine_0"].inputs] == ["a", "b"]
    result = partitioned(g, "Neg", "If")
    assert [e.name for e in result["mine_0"].inputs] == ["x", "a"]
    assert [e.name for e in result["mine_0"].subgraph["branch"].captures] == ["a", "b"]


def test_nodes_with_several_outputs() -> None:
    x = variable("x", "float32", (2, 4))
    split = op("Split", x, name="split", n_outputs=2, num_outputs=2, axis=1)
    a = op("Exp", split[0], name="a")
    g = Graph([op("Neg", split[1], name="b"), a, split[1]])
    result = partitioned(g, "Split", "Exp")
    assert [e.name for e in result["mine_0"].subgraph.outputs] == ["split_1", "a"]


def test_body_inputs_carry_type_and_affinity() -> None:
    seen = []

    class Looking(SubgraphProperty):
        name = "B"

        def review_subgraph(self, subgraph: Graph, index: int) -> bool:
            seen.append([(v.name, str(v[0].type), v.affinity) for v in subgraph.inputs])
            return True

    g = from_edges({"a": [], "b": ["a"], "c": ["b", "a"]}, {"a": "A", "b": "A", "c": "B"})
    x = g.inputs[0]
    d = op("Add", g["c"], x, name="d")
    d.affinity = "B"
    g = Graph([d])
    before = str(g)
    result = apply_pass(g, "PartitionGraph", subgraph_property=AffinityProperty({"B": Looking()}))
    assert seen == [[("b", "float32[2, 3]", "A"), ("a", "float32[2, 3]", "A"), ("x", "float32[2, 3]", None)]]
    assert [(n.name, n.affinity) for n in result.nodes if n.is_call] == [("A_0", "A"), ("B_1", "B")]
    assert str(apply_pass(result, "InlineSubgraphs")) == before == str(g)


def test_a_call_takes_the_place_of_its_first_node() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    b = op("Neg", x, name="b")
    c = op("Abs", a, name="c")
    d = op("Sin", b, name="d")
    result = partitioned(Graph([c, d]), "Exp", "Abs")
    assert [node.name for node in result.nodes] == ["x", "mine_0", "b", "d"]


def test_names_are_made_unique() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="mine_0")
    b = op("Neg", a, name="b")
    result = partitioned(Graph([op("Exp", b, name="mine_1_1")]), "Exp")
    assert [node.name for node in result.nodes if node.is_call] == ["mine_0_1", "mine_1"]


def test_control_dependencies_that_cross_borders() -> None:
    x = variable("x", "float32", SHAPE)
    first = op("Neg", x, name="first")
    a = op("Exp", x, name="a")
    b = op("Exp", a, name="b").evolve(after=(first,))
    last = op("Abs", x, name="last").evolve(after=(a, b))
    g = Graph([b, first, last])
    result = partitioned(g, "Exp")
    assert [n.name for n in result["mine_0"].after] == ["first"]
    assert [n.name for n in result["last"].after] == ["mine_0"]
    back = apply_pass(result, "InlineSubgraphs")
    assert [n.name for n in back["last"].after] == ["a", "b"]
    assert [n.name for n in back["b"].after] == ["first"]
    assert back["a"].after == ()
    everything = partitioned(g, "Exp", "Neg", "Abs")
    assert groups_of(everything) == [{"first"}, {"a", "b"}, {"last"}]  # values flow from a to b alone
    assert [(n.name, [m.name for m in n.after]) for n in everything.nodes if n.is_op] == [
        ("mine_0", []), ("mine_1", ["mine_0"]), ("mine_2", ["mine_1"])
    ]


def test_an_op_that_only_control_needs_is_kept_in_a_call_with_its_value() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Exp", x, name="a")
    b = op("Neg", x, name="b").evolve(after=(a,))
    result = partitioned(Graph([b]), "Exp")
    assert result["mine_0"].output_names == ("a",), "engines run no model without outputs"


def test_two_calls_of_one_pass_do_not_share_names_with_those_before() -> None:
    x = variable("x", "float32", SHAPE)
    g = Graph([op("Neg", op("Exp", x, name="a"), name="b")])
    once = partitioned(g, "Exp")
    twice = apply_pass(once, "PartitionGraph", subgraph_property=ops("Neg"))
    assert [node.name for node in twice.nodes if node.is_call] == ["mine_0", "mine_0_1"]
    assert str(apply_pass(twice, "InlineSubgraphs")) == str(g)
    border = twice.attrs["partition_report"].borders
    assert [(b.rule, b.text) for b in border] == [("call", "'mine_0' is a call that an earlier partition made")]


def test_properties_that_take_nothing() -> None:
    g = from_edges({"a": [], "b": ["a"]})
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: ContainOpSelector({"Conv"})))
    assert str(result) == str(g)
    assert str(result.attrs["partition_report"]) == (
        "net: 0 of 2 ops in 0 subgraphs\n  outside: 2 ops, unsupported: 'mine' does not take 'a' (Relu)"
    )
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector(), "by affinity"))
    assert result.attrs["partition_report"].outside[0].text == "'a' has no affinity"


def test_an_edge_that_the_selector_refuses_is_no_cycle_though_it_was_not_offered() -> None:
    class Selector(pt.SubgraphSelector):
        stateless = True

        def select(self, node: pt.Node) -> bool:
            return node.op != "Neg"

        def select_input(self, cur: pt.Node, new: pt.Node) -> bool:
            return new.op != "Neg" and {cur.name, new.name} != {"a", "d"}

        def select_output(self, cur: pt.Node, new: pt.Node) -> bool:
            return self.select_input(cur, new)

    class Property(pt.SubgraphProperty):
        name = "p"

        def create_subgraph_selector(self) -> Selector:
            return Selector()

    a = pt.op("Relu", pt.variable("x", "float32", (2, 3)), name="a")
    d = pt.op("Add", a, pt.op("Exp", pt.op("Neg", a, name="n"), name="b"), name="d")
    graph = pt.Graph([pt.op("Add", pt.op("Exp", a, name="e"), d, name="f")], name="net")
    for growth in ("walk", "largest", "waves", "seed"):
        report = pt.apply_pass(graph, "PartitionGraph", subgraph_property=Property(), growth=growth).attrs["partition_report"]
        (border,) = (border for border in report.borders if (border.producer, border.consumer) == ("a", "d"))
        assert (border.rule, border.text) == ("callback", "select_output(a, d) of 'p' said no"), growth
