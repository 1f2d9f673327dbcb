"""The ways that errors show."""

from __future__ import annotations

from graph.ways import arrows, cycle_in, way_between


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


def test_a_long_way_is_shown_by_its_ends() -> None:
    assert arrows(["a", "b"]) == "a -> b"
    assert arrows([str(i) for i in range(20)]) == "0 -> 1 -> 2 -> 3 -> ... -> 16 -> 17 -> 18 -> 19"
