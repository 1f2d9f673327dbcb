"""Ways through a graph that an error shows, by networkx. Nothing here is on a hot path: an error is made once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

SHOWN = 8
"""A longer way is shown by its two ends."""


def cycle_in(edges: Iterable[tuple[Item, Item]]) -> list[Item]:
    """One cycle, from its first item back to that; empty if there is none."""
    import networkx

    try:
        cycle = networkx.find_cycle(networkx.DiGraph(list(edges)))
    except networkx.NetworkXNoCycle:
        return []
    return [u for u, _ in cycle] + [cycle[0][0]]


def way_between(edges: Iterable[tuple[Item, Item]], start: Item, end: Item) -> list[Item]:
    """The shortest way from one item to another; empty if there is none."""
    import networkx

    graph = networkx.DiGraph(list(edges))
    if start not in graph or end not in graph or not networkx.has_path(graph, start, end):
        return []
    return list(networkx.shortest_path(graph, start, end))


def arrows(names: Sequence[str]) -> str:
    """The way in one line."""
    half = SHOWN // 2
    shown = names if len(names) <= SHOWN else [*names[:half], "...", *names[-half:]]
    return " -> ".join(shown)
