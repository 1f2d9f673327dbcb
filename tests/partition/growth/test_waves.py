"""Growth "waves": acyclic, no refused edge inside, and as few groups as can be."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.shapes import SHAPES, layered
from partita.partition.growth import largest, waves
from tests.graphs.on_integers import fixed_groups, graphs, veto
from tests.partition.growth.oracles import acyclic, fewest_waves


def check(graph, accept, groups, fixed=()):
    members = {v for group in fixed for v in group}
    assert sorted(v for group in groups for v in group) == [
        v for v in graph.nodes if graph.color[v] is not None and v not in members
    ]
    assert acyclic(graph.preds, [*fixed, *groups])
    for group in groups:
        assert group == sorted(group)
        assert len({graph.color[v] for v in group}) == 1
        assert all(accept(u, v) for v in group for u in graph.preds[v] if u in group)


def test_independent_branches_share_a_call() -> None:
    # Two branches of device 0 between two nodes of device 1.
    preds, color = [[], [0], [0], [1], [2], [3, 4]], [1, 0, 0, 0, 0, 1]
    assert waves(preds, color) == [[1, 2, 3, 4], [0], [5]]


def test_a_refused_edge_takes_a_second_call() -> None:
    assert waves([[], [0], []], [0, 0, 0], lambda u, v: False) == [[0, 2], [1]]


def test_a_device_may_run_twice_in_a_row_around_an_ungrouped_node() -> None:
    assert waves([[], [0], [1]], [0, None, 0]) == [[0], [2]]


@settings(deadline=None, max_examples=200)
@given(graphs(), st.integers(0, 5))
def test_acyclic_and_nothing_refused_inside(graph, salt) -> None:
    groups = waves(graph.preds, graph.color, veto(salt))
    check(graph, veto(salt), groups)
    if not salt:
        assert len(groups) <= len(largest(graph.preds, graph.color))


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(0, 3))
def test_around_groups_that_are_fixed(data, salt) -> None:
    graph = data.draw(graphs())
    fixed = data.draw(fixed_groups(graph))
    check(graph, veto(salt), waves(graph.preds, graph.color, veto(salt), fixed), fixed)


@settings(deadline=None, max_examples=100)
@given(graphs(max_nodes=18, devices=2), st.integers(0, 5))
def test_the_fewest_for_two_devices(graph, salt) -> None:
    fewest = fewest_waves(graph.preds, graph.color, veto(salt))
    assert len(waves(graph.preds, graph.color, veto(salt))) == fewest


def test_close_to_the_fewest_for_more_devices() -> None:
    rng = random.Random(5)
    ours = best = 0
    for _ in range(25):  # independent chains are the hard case
        preds: list[list[int]] = [[v - 4] if v >= 4 else [] for v in range(24)]
        color = [rng.randrange(4) for _ in preds]
        ours += len(waves(preds, color))
        best += fewest_waves(preds, color, lambda u, v: True)
    assert best <= ours <= 1.02 * best


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.thinned(2)
def test_shapes(shape) -> None:
    preds, color = SHAPES[shape](3_000)
    groups = waves(preds, color)
    assert acyclic(preds, groups)
    assert sum(map(len, groups)) == sum(c is not None for c in color)
    assert len(groups) <= len(largest(preds, color))


def test_layers_need_two_calls_each_at_most() -> None:
    preds, color = layered(320, devices=2, hosts=0)
    assert len(waves(preds, color)) <= 20


def test_a_deep_graph_overflows_nothing() -> None:
    preds, color = SHAPES["chain"](100_000)
    assert [len(group) for group in waves(preds, color)] == [100_000]
