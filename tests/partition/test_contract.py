"""The callback contract, call by call: docs/selectors.md says the same in words."""

from __future__ import annotations

import numpy as np

from partita.graph import Graph, Node, constant, op, variable
from partita.partition import ContainOpSelector, SubgraphSelector
from partita.passes import apply_pass
from tests.graphs.topologies import SHAPE, chain, diamond

from .making import Property, Recorder, groups_of


def calls(g: Graph, *wanted: str) -> list[str]:
    """What a recording selector that wants these ops is asked."""
    log: list[str] = []
    apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: Recorder(log, set(wanted))))
    return log


def test_inputs_before_outputs_breadth_first_and_a_fresh_selector_for_each_seed() -> None:
    assert calls(chain("Relu", "Neg", "Abs"), "Relu", "Neg") == [
        "new",
        "select relu0",
        "output relu0 neg1",
        "output neg1 abs2",
        "filter relu0 neg1",
        "new",
        "select abs2",
    ]


def test_inputs_in_order_then_consumers_in_topological_order() -> None:
    x = variable("x", "float32", SHAPE)
    a, b = op("Neg", x, name="a"), op("Neg", x, name="b")
    middle = op("Add", b, a, name="middle")
    g = Graph([op("Relu", middle, name="second"), op("Relu", middle, name="first")], nodes=[a, b])
    assert calls(g, "Add", "Relu") == [
        "new",
        "select a",
        "new",
        "select b",
        "new",
        "select middle",
        "input middle b",
        "input middle a",
        "output middle second",
        "output middle first",
        "filter middle second first",
    ]


def test_what_would_close_a_cycle_for_certain_is_not_offered() -> None:
    assert calls(diamond(), "Exp", "Sin", "Add") == [
        "new",
        "select e",
        "output e c",
        "output e s",  # then a is passed over: the closed consumer c leads to it
        "filter e s",
        "new",
        "select c",
        "new",
        "select a",
        "input a c",
        "filter a",
    ]


def test_reset_is_called_before_a_second_growth() -> None:
    class Eager(Recorder):
        """Refuses the first consumer that it is asked about late, so that the set has taken what closes a cycle."""

        def select_output(self, cur: Node, new: Node) -> bool:
            super().select_output(cur, new)
            return new.name != "c"

        def select_input(self, cur: Node, new: Node) -> bool:
            super().select_input(cur, new)
            return new.name != "c"

    x = variable("x", "float32", SHAPE)
    e = op("Exp", x, name="e")
    s = op("Sin", e, name="s")
    c = op("Cos", s, name="c")
    a = op("Add", e, c, name="a")
    log: list[str] = []
    result = apply_pass(
        Graph([a]), "PartitionGraph", subgraph_property=Property(lambda: Eager(log, {"Exp", "Sin", "Add"}))
    )
    assert log == [
        "new",
        "select e",
        "output e s",
        "output e a",
        "output s c",
        "input a c",
        "reset",
        "output e s",
        "output s c",
        "filter e s",
        "new",
        "select c",
        "new",
        "select a",
        "input a c",
        "filter a",
    ]
    assert groups_of(result) == [{"e", "s"}, {"a"}]
    dropped = [b for b in result.attrs["partition_report"].borders if (b.producer, b.consumer) == ("e", "a")]
    assert [(b.rule, b.text) for b in dropped] == [("cycle", "the growth from 'e' dropped it, since it closed a cycle")]


def test_variables_constants_dead_nodes_and_calls_are_never_offered() -> None:
    x = variable("x", "float32", SHAPE)
    a = op("Add", x, constant(np.ones(1, np.float32), "k"), name="a")
    b = op("Relu", a, name="b")
    dead = op("Neg", a, name="dead")
    g = Graph([b], nodes=[dead])
    assert calls(g, "Add", "Relu", "Neg") == ["new", "select a", "output a b", "filter a b"]
    once = apply_pass(g, "PartitionGraph", subgraph_property=Property(lambda: ContainOpSelector({"Add"})))
    assert calls(once, "Relu", "Call") == ["new", "select b", "filter b"]


def test_filter_splits_what_it_leaves_and_there_is_no_regrowth() -> None:
    class Middleless(SubgraphSelector):
        def select(self, node: Node) -> bool:
            return True

        def select_output(self, cur: Node, new: Node) -> bool:
            return True

        def filter(self, candidates: list[Node]) -> list[Node]:
            return [node for node in candidates if node.name != "neg1"][::-1]

    result = apply_pass(chain("Relu", "Neg", "Abs", "Exp"), "PartitionGraph", subgraph_property=Property(Middleless))
    assert groups_of(result) == [{"relu0"}, {"abs2", "exp3"}]
    report = result.attrs["partition_report"]
    assert report.explain("neg1") == (
        "neg1 is in no subgraph: filter: filter of 'mine' removed 'neg1'\n"
        "  relu0 -> neg1: filter: filter of 'mine' removed 'neg1'\n"
        "  neg1 -> abs2: filter: filter of 'mine' removed 'neg1'"
    )


def test_one_stateless_selector_serves_the_whole_graph_and_each_edge_is_asked_about_once() -> None:
    class Stateless(Recorder):
        stateless = True

    log: list[str] = []
    apply_pass(
        chain("Relu", "Neg", "Abs"), "PartitionGraph", subgraph_property=Property(lambda: Stateless(log, {"Relu", "Neg"}))
    )
    assert log == [
        "new",
        "select relu0",
        "select neg1",
        "select abs2",
        "output relu0 neg1",
        "input neg1 relu0",
        "filter relu0 neg1",
    ]
