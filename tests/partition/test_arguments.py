"""Hooks that take an argument more: the selector by name, the graph in `filter`. Those that do not run as before."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Sequence
from typing import Any

import pytest

import partita as pt
from partita.graph import Graph, GraphError, Node, call, constant, op, variable
from partita.partition import Pattern, PatternProperty, Plan, SubgraphProperty, SubgraphSelector, plan
from partita.partition.options import PartitionOptions
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, chain


class Counting(SubgraphSelector):
    """Takes unary ops up to the first Exp, and counts those that it took."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def select(self, node: Node) -> bool:
        self.taken.append(node.name)
        return node.op != "Exp"

    def select_output(self, cur: Node, new: Node) -> bool:
        if new.op != "Exp":
            self.taken.append(new.name)
        return new.op != "Exp"


class Noting(SubgraphProperty):
    name = "noting"

    def create_subgraph_selector(self) -> SubgraphSelector | Pattern:
        return Counting()

    def create_subgraph_node(self, subgraph: Graph, index: int, selector: Any = None) -> Node | None:
        return call(subgraph, name=f"noting_{index}").evolve(metadata={"taken": " ".join(selector.taken) if selector else "?"})


G = chain("Relu", "Neg", "Exp", "Abs")


def noted(g: Graph) -> list[str]:
    return [node.metadata["taken"] for node in g.nodes if node.is_call]


def test_a_property_is_handed_the_selector_of_each_subgraph() -> None:
    assert noted(apply_pass(G, "PartitionGraph", subgraph_property=Noting())) == ["relu0 neg1", "abs3"]


def test_a_plan_hands_on_its_selectors_and_one_from_a_file_has_none() -> None:
    planned = plan(G, subgraph_property=Noting())
    assert noted(planned.apply(G)) == ["relu0 neg1", "abs3"]
    assert noted(Plan.from_json(planned.to_json()).apply(G, Noting())) == ["?", "?"]


def test_parts_that_filter_leaves_have_the_selector_of_their_growth() -> None:
    class Dropping(Counting):
        def filter(self, candidates: list[Node]) -> list[Node]:
            return [node for node in candidates if node.op != "Neg"]

    class Property(Noting):
        def create_subgraph_selector(self) -> SubgraphSelector:
            return Dropping()

    g = chain("Relu", "Neg", "Abs")
    result = apply_pass(g, "PartitionGraph", subgraph_property=Property())
    assert noted(result)[:2] == ["relu0 neg1 abs2", "relu0 neg1 abs2"]


def test_a_stateless_selector_and_a_pattern_are_handed_as_they_are() -> None:
    seen = []

    class Property(PatternProperty):
        def create_subgraph_node(self, subgraph: Graph, index: int, *, selector: Any = None) -> Node | None:
            seen.append(selector)
            return None

        def adjust_subgraph_node(self, nodes: Sequence[Node], index: int, selector: Any = None) -> None:
            seen.append(selector)

    pattern = Pattern("Relu", "Neg")
    apply_pass(G, "PartitionGraph", subgraph_property=Property(pattern))
    assert seen == [pattern, pattern]


def test_hooks_without_the_argument_run_as_before() -> None:
    class Old(Noting):
        def create_subgraph_node(self, subgraph, index):  # type: ignore[no-untyped-def, override]
            return super().create_subgraph_node(subgraph, index)

    assert noted(apply_pass(G, "PartitionGraph", subgraph_property=Old())) == ["?", "?"]

    class HandedOn(SubgraphProperty):
        name = "old"

        def create_subgraph_selector(self) -> SubgraphSelector:
            return Counting()

        def create_subgraph_node(self, *args, **keywords):  # type: ignore[no-untyped-def, override]
            assert len(args) == 2 and not keywords
            return super().create_subgraph_node(*args, **keywords)

    result = apply_pass(G, "PartitionGraph", subgraph_property=HandedOn())
    assert [node.name for node in result.nodes if node.is_call] == ["old_0", "old_1"]


def test_an_override_hands_the_selector_on() -> None:
    class New(Noting):
        def create_subgraph_node(self, subgraph: Graph, index: int, selector: Any = None) -> Node | None:
            return SubgraphProperty.create_subgraph_node(self, subgraph, index, selector)

    result = apply_pass(G, "PartitionGraph", subgraph_property=New())
    assert [node.name for node in result.nodes if node.is_call] == ["noting_0", "noting_1"]


class WithGraph(Counting):
    """MXNet's: the graph comes first."""

    def filter(self, graph, candidates):  # type: ignore[no-untyped-def, override]
        assert all(graph[node.name] is node for node in candidates)
        return [node for node in candidates if graph.consumers(node)]


class WithGraphByName(Counting):
    def filter(self, candidates: list[Node], graph: Graph | None = None) -> list[Node]:
        assert graph is not None
        return [node for node in candidates if graph.consumers(node)]


class WithNodesFirst(Counting):
    def filter(self, nodes, graph):  # type: ignore[no-untyped-def, override]
        return [node for node in nodes if graph.consumers(node)]


@pytest.mark.parametrize("kind", [WithGraph, WithGraphByName, WithNodesFirst])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("combined", [False, True])
def test_filter_may_take_the_graph(kind: type[Counting], stateless: bool, combined: bool) -> None:
    class Property(SubgraphProperty):
        name = "mine"

        def create_subgraph_selector(self) -> SubgraphSelector:
            result = type("Made", (kind,), {"stateless": stateless})()
            return result & Counting() if combined else result

    result = apply_pass(G, "PartitionGraph", subgraph_property=Property(), growth="walk")
    assert [group.nodes for group in result.attrs["partition_report"].groups] == [("relu0", "neg1")]


def test_the_consumers_of_a_node_in_a_graph() -> None:
    x, k = variable("x", "float32", SHAPE), constant([[1.0, 2.0, 3.0]], "k")
    a = op("Relu", x, name="a")
    b = op("Add", a, a, name="b")
    c = op("Mul", a, k, name="c")
    g, smaller = Graph([b, c]), Graph([b], [x])
    assert [node.name for node in g.consumers(a)] == ["b", "c"]
    assert [node.name for node in smaller.consumers(a)] == ["b"]
    assert [node.name for node in g.consumers("k")] == ["c"]
    assert g.consumers(b) == ()
    with pytest.raises(GraphError, match=r"graph 'net': node 'c' is not in the graph\n  A pass returns a graph"):
        smaller.consumers(c)


def test_the_consumers_of_one_value() -> None:
    x = variable("x", "float32", SHAPE)
    both = op("Split", x, name="both", axis=0, n_outputs=2)
    g = Graph([op("Relu", both[0], name="a"), op("Neg", both[1], name="b")])
    assert [node.name for node in g.consumers(both)] == ["a", "b"]
    assert [node.name for node in g.consumers(both[1])] == ["b"]


def test_what_only_comes_after_a_node_is_no_consumer() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Relu", x, name="a")
    b = op("Neg", x, name="b").evolve(after=(a,))
    assert Graph([a, b]).consumers(a) == ()


@pytest.mark.parametrize("function", [plan, pt.optimize_for])
def test_help_lists_the_options(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    assert list(parameters)[-len(PartitionOptions.names()) - 1 :] == [*PartitionOptions.names(), "options"]
    assert parameters["infer_types"].default is True and parameters["growth"].default is None
    text = pydoc.plain(pydoc.render_doc(function))
    assert "min_subgraph_size: 'int | None' = None" in text and "min_subgraph_size: subgraphs of fewer ops stay" in text
