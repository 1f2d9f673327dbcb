"""The ways that errors show."""

from __future__ import annotations

from itertools import pairwise

import networkx
from hypothesis import given
from hypothesis import strategies as st

from partita.graph.shortest_path import arrows, cycle_in, way_between


def test_a_cycle_begins_and_ends_with_the_same_item() -> None:
    assert cycle_in([("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")]) == ["a", "b", "c", "a"]
    assert cycle_in({("a", "a"): "whatever"}) == ["a", "a"]
    assert cycle_in([("a", "b"), ("a", "c"), ("b", "c")]) == []
    assert cycle_in([]) == []


def test_the_shortest_way() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "c")]
    assert way_between(edges, "a", "d") == ["a", "c", "d"]
    assert way_between(edges, "d", "a") == []
    assert way_between(edges, "a", "elsewhere") == []


EDGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20)


@given(EDGES)
def test_a_cycle_is_there_where_networkx_finds_one(edges: list[tuple[int, int]]) -> None:
    cycle = cycle_in(edges)
    assert bool(cycle) == (not networkx.is_directed_acyclic_graph(networkx.DiGraph(edges)))
    assert all(edge in edges for edge in pairwise(cycle))
    assert not cycle or (cycle[0] == cycle[-1] and len(set(cycle)) == len(cycle) - 1)


@given(EDGES, st.integers(0, 7), st.integers(0, 7))
def test_the_shortest_way_is_as_short_as_networkx_finds_it(edges: list[tuple[int, int]], start: int, end: int) -> None:
    way, graph = way_between(edges, start, end), networkx.DiGraph(edges)
    known = start in graph and end in graph and networkx.has_path(graph, start, end)
    assert len(way) == (networkx.shortest_path_length(graph, start, end) + 1 if known else 0)
    assert all(edge in edges for edge in pairwise(way)) and way[:1] + way[-1:] in ([], [start, end])


def test_a_long_way_is_shown_by_its_ends() -> None:
    assert arrows(["a", "b"]) == "a -> b"
    assert arrows([str(i) for i in range(20)]) == "0 -> 1 -> 2 -> 3 -> ... -> 16 -> 17 -> 18 -> 19"
