"""Calls within calls: what was partitioned over several levels and inlined is the original, control dependencies too."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partita.graph import Graph, Node, call, op, variable
from partita.partition import ContainOpSelector, PatternProperty, SubgraphProperty
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE

OPS = ("Relu", "Neg", "Exp", "Abs")


class Nested(SubgraphProperty):
    """Takes the ops of its first level, and partitions each body by those of the next."""

    def __init__(self, levels: list[set[str]]) -> None:
        self.levels = levels
        self.name = f"level{len(levels)}"

    def create_subgraph_selector(self) -> ContainOpSelector:
        return ContainOpSelector(self.levels[0])

    def create_subgraph_node(self, subgraph: Graph, index: int) -> Node:
        if len(self.levels) > 1:
            subgraph = apply_pass(subgraph, "PartitionGraph", subgraph_property=Nested(self.levels[1:]))
        return call(subgraph, name=f"{self.name}_{index}")


@st.composite
def with_control(draw: st.DrawFn, most: int = 12, prefix: str = "n") -> Graph:
    """A random graph of unary and binary ops with many control dependencies."""
    x = variable("x", "float32", SHAPE)
    values = [x]
    for i in range(draw(st.integers(2, most))):
        kind = draw(st.sampled_from([*OPS, "Add"]))
        read = [draw(st.sampled_from(values[-4:])) for _ in range(2 if kind == "Add" else 1)]
        node = op(kind, *read, name=f"{prefix}{i}")
        earlier = [v for v in values if v is not x]
        after = draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        values.append(node.evolve(after=tuple(after)))
    read_by_others = {e.node for node in values for e in node.reads}
    return Graph([v for v in values if v not in read_by_others], [x], nodes=values)


def levels(least: int = 2) -> st.SearchStrategy[list[set[str]]]:
    some = st.sets(st.sampled_from([*OPS, "Add"]), min_size=1)
    return st.lists(some, min_size=least, max_size=3)


@settings(max_examples=50, deadline=None)
@given(with_control(), levels())
def test_partition_and_inline_is_the_identity_over_levels(g: Graph, wanted: list[set[str]]) -> None:
    result = apply_pass(g, "PartitionGraph", subgraph_property=Nested(wanted))
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)


@settings(max_examples=30, deadline=None)
@given(with_control(), levels())
def test_partition_again_outside_the_calls_and_inline_is_the_identity(g: Graph, wanted: list[set[str]]) -> None:
    result = g
    for ops in wanted:
        result = apply_pass(result, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector(ops), "p"))
        result = apply_pass(result, "PartitionGraph", inside=True, subgraph_property=PatternProperty(ContainOpSelector(ops), "q"))
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)


@settings(max_examples=30, deadline=None)
@given(with_control(most=6), with_control(most=6, prefix="f"), st.integers(0, 3), levels(1))
def test_functions_of_the_model_that_are_called_twice(g: Graph, function: Graph, earlier: int, wanted: list[set[str]]) -> None:
    """The same as inlining without partitioning: a function's nodes come after what its call came after."""
    node = g.nodes[min(1 + earlier, len(g.nodes) - 1)]
    opsets = {"": 21, "mine": 1}
    body = Graph(function.outputs[:1], function.inputs, "f", opsets, nodes=function.nodes)
    one = call(body, node, name="one")
    one = one.evolve(op="f", domain="mine", after=(node,))
    two = one.evolve(name="two", output_names=("two",), inputs=one.outputs[:1], after=(g.nodes[1],))
    whole = Graph([two, *g.outputs], g.inputs, nodes=[*g.nodes, one, two], opsets=opsets)
    kinds = {*wanted[0], "mine::f"}
    result = apply_pass(whole, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector(kinds), "p"))
    assert str(apply_pass(result, "InlineSubgraphs")) == str(apply_pass(whole, "InlineSubgraphs"))
    inner = PatternProperty(ContainOpSelector(wanted[0]), "q")
    result = apply_pass(whole, "PartitionGraph", inside=lambda node: node.op == "f", subgraph_property=inner)
    assert str(apply_pass(result, "InlineSubgraphs")) == str(apply_pass(whole, "InlineSubgraphs"))


def test_the_second_level_keeps_the_note_of_the_first() -> None:
    x = variable("x", "float32", SHAPE)
    e = op("Exp", x, name="e")
    a = op("Relu", x, name="a")
    b = op("Neg", a, name="b").evolve(after=(e, a))
    g = Graph([op("Relu", b, name="c"), e])
    result = apply_pass(g, "PartitionGraph", subgraph_property=PatternProperty(ContainOpSelector({"Relu", "Neg"}), "p"))
    result = apply_pass(result, "PartitionGraph", inside=True, subgraph_property=PatternProperty(ContainOpSelector({"Neg"}), "q"))
    assert result["p_0"].subgraph["q_0"].subgraph["b"].metadata["partita.after"] == '["e", "a"]'
    assert str(apply_pass(result, "InlineSubgraphs")) == str(g)
