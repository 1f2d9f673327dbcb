"""Growth "seed": the document's algorithm as a literal reading has it, and the repair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.partition.growth import Repair, seed
from tests.graphs.on_integers import control_edges, fixed_groups, graphs, veto
from tests.partition.growth.oracles import acyclic, literal_seed, repaired_seed


def test_the_worked_example() -> None:
    preds: list[list[int]] = [[], [0], [1], [2], [2], [3, 4], [5], [6]]
    assert seed(preds, [None, 0, 0, 0, 1, 0, 0, 0]) == ([[3, 5, 6, 7], [1, 2], [4]], [])


def test_two_subgraphs_that_depend_on_each_other_are_repaired() -> None:
    # {0, 3, 5} of device 0 and {1, 2, 4} of device 1 are convex each, and each reads the other.
    preds, color = [[], [], [0], [1], [1, 2], [0, 3]], [0, 1, 1, 0, 1, 0]
    assert sorted(literal_seed(preds, color)) == [[0, 3, 5], [1, 2, 4]]
    groups, repairs = seed(preds, color)
    assert acyclic(preds, groups)
    assert groups == [[0, 3, 5], [2, 4], [1]]
    assert repairs == [Repair(replaced=[1, 2, 4], by=[[1], [2, 4]])]


@settings(deadline=None, max_examples=150)
@given(graphs(max_nodes=16))
def test_the_same_as_a_literal_reading(graph) -> None:
    groups, repairs = seed(graph.preds, graph.color)
    assert sorted(groups) == sorted(repaired_seed(graph.preds, graph.color))
    literal = literal_seed(graph.preds, graph.color)
    assert bool(repairs) == (not acyclic(graph.preds, literal))
    replaced = [v for repair in repairs for v in repair.by]
    assert sorted([g for g in groups if g not in replaced] + [r.replaced for r in repairs]) == sorted(literal)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(0, 3))
def test_acyclic_with_vetoes_and_fixed_groups(data, salt) -> None:
    graph = data.draw(graphs())
    fixed = data.draw(fixed_groups(graph))
    groups, _ = seed(graph.preds, graph.color, veto(salt), fixed)
    assert acyclic(graph.preds, [*fixed, *groups])
    members = {v for group in fixed for v in group}
    assert sorted(v for group in groups for v in group) == [
        v for v in graph.nodes if graph.color[v] is not None and v not in members
    ]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_same_as_a_literal_reading_with_control_dependencies(data) -> None:
    graph = data.draw(graphs(max_nodes=14))
    control = data.draw(control_edges(graph))
    asked = []
    groups, _ = seed(graph.preds, graph.color, lambda u, v: asked.append((u, v)) or True, control=control)
    assert sorted(groups) == sorted(repaired_seed(graph.preds, graph.color, control))
    assert acyclic(graph.preds, groups)
    assert not control.intersection(asked)


def test_a_refused_edge_rejects_the_node_behind_it() -> None:
    assert seed([[], [0], [1]], [0, 0, 0], lambda u, v: (u, v) != (0, 1))[0] == [[1, 2], [0]]


@pytest.mark.slow
@settings(deadline=None, max_examples=3_000)
@given(graphs(max_nodes=30, span=20))
def test_the_same_as_a_literal_reading_on_many_graphs(graph) -> None:
    assert sorted(seed(graph.preds, graph.color)[0]) == sorted(repaired_seed(graph.preds, graph.color))
