"""Paths in a graph, for error messages. Nothing here is on a hot path: an error is made once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

SHOWN = 8
"""Maximum items of a path that is shown in full; of a longer one both ends are shown."""


def cycle_in(edges: Iterable[tuple[Item, Item]]) -> list[Item]:
    """One cycle, from its first item back to it; empty if there is none. Linear."""
    after = _successors(edges)
    finished: set[Item] = set()
    for root in after:
        if root in finished:
            continue
        way: dict[Item, Iterator[Item]] = {root: iter(after[root])}
        while way:
            last = next(reversed(way))
            item = next(way[last], None)
            if item is None:
                finished.add(last)
                del way[last]
            elif item in way:
                items = list(way)
                return [*items[items.index(item) :], item]
            elif item not in finished:
                way[item] = iter(after[item])
    return []


def way_between(edges: Iterable[tuple[Item, Item]], start: Item, end: Item) -> list[Item]:
    """The shortest path from one item to another; empty if there is none. Linear."""
    after = _successors(edges)
    if start not in after:
        return []
    came_from: dict[Item, Item] = {}
    waiting = deque([start])
    while waiting and (item := waiting.popleft()) != end:
        for other in after[item]:
            if other != start and other not in came_from:
                came_from[other] = item
                waiting.append(other)
    if end != start and end not in came_from:
        return []
    way = [end]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]


def _successors(edges: Iterable[tuple[Item, Item]]) -> dict[Item, list[Item]]:
    """The successors of each item."""
    after: dict[Item, list[Item]] = {}
    for before, behind in edges:
        after.setdefault(before, []).append(behind)
        after.setdefault(behind, [])
    return after


def arrows(names: Sequence[str]) -> str:
    """The path in one line."""
    half = SHOWN // 2
    shown = names if len(names) <= SHOWN else [*names[:half], "...", *names[-half:]]
    return " -> ".join(shown)
