"""Growth "largest": acyclic, connected, as large as can be, and never far above the seed."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.shapes import SHAPES, far_skips, layered_every_seventh_elsewhere
from partita.partition.growth import largest, seed
from tests.graphs.on_integers import fixed_groups, graphs, random_graph, veto
from tests.partition.growth.oracles import acyclic, contractible, parts


def yes(u: int, v: int) -> bool:
    return True


def check(graph, accept, groups, fixed=()):
    """Everything that `largest` promises."""
    members = {v for group in fixed for v in group}
    assert sorted(v for group in groups for v in group) == [
        v for v in graph.nodes if graph.color[v] is not None and v not in members
    ]
    assert groups == sorted(groups, key=lambda group: (-len(group), group[0]))
    assert acyclic(graph.preds, [*fixed, *groups])
    for group in groups:
        assert group == sorted(group)
        assert len({graph.color[v] for v in group}) == 1
        linked = {(u, v) for v in group for u in graph.preds[v] if accept(u, v)}
        assert parts(group, lambda u, v: (u, v) in linked) == [group]  # noqa: B023
    assert not contractible(graph.preds, graph.color, accept, groups, list(fixed))


def test_the_worked_example_of_the_seed() -> None:
    preds: list[list[int]] = [[], [0], [1], [2], [2], [3, 4], [5], [6]]
    color = [None, 0, 0, 0, 1, 0, 0, 0]
    assert largest(preds, color) == [[3, 5, 6, 7], [1, 2], [4]]


def test_inputs_and_constants_block_nothing() -> None:
    # 0 and 3 are graph inputs or constants; 3 comes in late and is shared.
    preds = [[], [0], [1], [], [2, 3], [4, 0, 3]]
    assert largest(preds, [None, 0, 0, None, 0, 0]) == [[1, 2, 4, 5]]


def test_an_unsupported_node_on_the_way_splits() -> None:
    assert largest([[], [0], [0, 1]], [0, None, 0]) in ([[0], [2]], [[2], [0]])


def test_nothing_to_group() -> None:
    assert largest([], []) == []
    assert largest([[], [0]], [None, None]) == []


@settings(deadline=None, max_examples=150)
@given(graphs(), st.integers(0, 9))
def test_acyclic_connected_maximal(graph, salt) -> None:
    accept = veto(salt)
    check(graph, accept, largest(graph.preds, graph.color, accept))


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(0, 3))
def test_around_groups_that_are_fixed(data, salt) -> None:
    graph = data.draw(graphs())
    fixed = data.draw(fixed_groups(graph))
    accept = veto(salt)
    check(graph, accept, largest(graph.preds, graph.color, accept, fixed), fixed)


@settings(deadline=None, max_examples=50)
@given(graphs())
def test_no_edge_is_asked_twice(graph) -> None:
    asked: Counter[tuple[int, int]] = Counter()

    def accept(u: int, v: int) -> bool:
        asked[u, v] += 1
        return (u + v) % 3 > 0

    largest(graph.preds, graph.color, accept)
    edges = {(u, v) for v in graph.nodes for u in graph.preds[v]}
    assert set(asked) == {(u, v) for u, v in edges if graph.color[u] == graph.color[v] is not None}
    assert set(asked.values()) <= {1}


def test_an_exception_of_accept_passes_through() -> None:
    def accept(u: int, v: int) -> bool:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        largest([[], [0]], [0, 0], accept)


def test_fixed_groups_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="the fixed groups depend on each other"):
        largest([[], [0], [1]], [0, 1, 0], None, [[0, 2]])
    with pytest.raises(ValueError, match="node 1 is in two fixed groups"):
        largest([[], [0], [1]], [0, 1, 0], None, [[0, 1], [1, 2]])


def compare_with_seed(count: int, rng: random.Random, max_nodes: tuple[int, ...]) -> tuple[int, int]:
    """-> the groups in all of `largest` and of the (repaired) seed; on no graph may `largest` be far above."""
    ours = theirs = 0
    for _ in range(count):
        graph = random_graph(rng, rng.choice(max_nodes))
        a, b = len(largest(graph.preds, graph.color)), len(seed(graph.preds, graph.color)[0])
        assert a <= max(b + 1, 1.1 * b), graph
        ours += a
        theirs += b
    return ours, theirs


def test_never_far_above_the_seed_and_not_above_it_in_all() -> None:
    ours, theirs = compare_with_seed(1_000, random.Random(1), (10, 20, 40, 60))
    assert ours <= theirs


@pytest.mark.slow
def test_never_far_above_the_seed_on_many_graphs() -> None:
    ours, theirs = compare_with_seed(20_000, random.Random(2), (10, 20, 40, 60, 90))
    assert ours <= theirs


@pytest.mark.slow
@settings(deadline=None, max_examples=5_000)
@given(st.data(), st.integers(0, 9))
def test_acyclic_connected_maximal_on_many_graphs(data, salt) -> None:
    graph = data.draw(graphs(max_nodes=40, span=20))
    fixed = data.draw(fixed_groups(graph))
    accept = veto(salt)
    check(graph, accept, largest(graph.preds, graph.color, accept, fixed), fixed)


def test_layers_with_every_seventh_node_elsewhere() -> None:
    preds, color = layered_every_seventh_elsewhere(1_000)
    groups = largest(preds, color)
    assert acyclic(preds, groups)
    assert len(groups) <= 186


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nodes", [40, 3_500])
def test_shapes(shape, nodes) -> None:
    preds, color = SHAPES[shape](nodes)
    groups = largest(preds, color)
    assert acyclic(preds, groups)
    assert sum(map(len, groups)) == sum(c is not None for c in color)


def test_skips_over_the_whole_graph() -> None:
    preds, color = far_skips(1_000)
    groups = largest(preds, color)
    assert acyclic(preds, groups)
    assert sum(map(len, groups)) == sum(c is not None for c in color)


def test_a_deep_graph_overflows_nothing() -> None:
    preds, color = SHAPES["chain"](100_000)
    assert [len(group) for group in largest(preds, color)] == [100_000]
