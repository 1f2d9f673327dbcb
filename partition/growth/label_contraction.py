"""The base: nodes that may be grouped according to both labels, contracted, with the edges that are still open."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import attrs
import numpy as np

from partita.partition.growth.forest import Forest
from partita.partition.growth.labels import Color, Preds

Numbers = np.ndarray[Any, np.dtype[np.int64]]
"""Numbers of nodes or groups."""

Edges = tuple[Numbers, Numbers]
"""Edges as (the producers, the consumers)."""


@attrs.define
class Base:
    """The groups that every run of `largest` starts from, numbered in a topological order."""

    of: list[int]
    """The base group of each node."""
    edges: Edges
    """The edges between different base groups, by producer, then by consumer."""
    color: list[int | None]
    earliest: list[int]
    latest: list[int]
    size: list[int]
    """Number of nodes of each base group."""
    open: list[tuple[int, int]]
    """Accepted edges between different base groups, in order, that might still be contracted."""

    def __len__(self) -> int:
        return len(self.color)

    def consumers(self, count: int) -> list[list[int]]:
        """The consumers of each of the first `count` base groups that are among these, ascending."""
        producers, consumers = self.edges
        inside = consumers < count
        return _by_group(producers[inside], consumers[inside], count)

    def producers(self, count: int) -> list[list[int]]:
        """The producers of each of the first `count` base groups, ascending."""
        producers, consumers = self.edges
        inside = consumers < count
        return _by_group(*np.divmod(np.sort(consumers[inside] * len(self) + producers[inside]), max(len(self), 1)), count)


def components(preds: Preds, accepted: Sequence[Sequence[int]], earliest: list[int], latest: list[int]) -> list[int]:
    """Joins nodes that are connected by accepted edges and equal in both labels; -> the first node of each node's component.

    Both labels never fall along an edge, so components ordered by (earliest, -latest) cannot form a cycle."""
    first = list(range(len(preds)))
    for v, inside in enumerate(accepted):
        if inside:
            soon, late = earliest[v], latest[v]
            for u in inside:
                if earliest[u] == soon and latest[u] == late:
                    join(first, u, v)
    for v, f in enumerate(first):  # first nodes come before the others, so one step is enough
        first[v] = first[f]
    return first


def join(first: list[int], a: int, b: int) -> None:
    """Union-find in which the smallest number represents the set."""
    while first[a] != a:
        first[a] = first[first[a]]
        a = first[a]
    while first[b] != b:
        first[b] = first[first[b]]
        b = first[b]
    if a < b:
        first[b] = a
    elif b < a:
        first[a] = b


def build(
    preds: Preds,
    color: Color,
    accepted: Sequence[Sequence[int]],
    earliest: list[int],
    latest: list[int],
    first: list[int],
) -> Base:
    """Contracts the components given by `first`. O(n log n) for the sorting, else linear."""
    component = np.array(first, np.int64)
    names = np.flatnonzero(component == np.arange(len(first)))
    soon, late = np.array(earliest, np.int64)[names], np.array(latest, np.int64)[names]
    by_label = np.lexsort((-late, soon))  # sorted by (earliest, -latest, node)
    names, soon, late = names[by_label], soon[by_label], late[by_label]
    count = len(names)
    number = np.zeros(len(first), np.int64)
    number[names] = np.arange(count)
    of = number[component]
    return Base(
        of.tolist(),
        _between(preds, of, count),
        [color[v] for v in names.tolist()],
        soon.tolist(),
        late.tolist(),
        np.bincount(of, minlength=count).tolist(),
        list(zip(*map(np.ndarray.tolist, _between(accepted, of, count)), strict=True)),
    )


def _between(preds: Sequence[Sequence[int]], of: Numbers, count: int) -> Edges:
    """The edges between different groups, each once, in order: -> (the producers, the consumers)."""
    consumer = np.repeat(np.arange(len(preds)), np.fromiter(map(len, preds), np.int64, len(preds)))
    a = of[np.fromiter(chain.from_iterable(preds), np.int64, len(consumer))]
    b = of[consumer]
    outer = a != b
    pairs = np.sort(a[outer] * count + b[outer])  # np.unique hashes, and takes ten times as long
    return np.divmod(pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]], max(count, 1))


def _by_group(group: Numbers, neighbours: Numbers, count: int) -> list[list[int]]:
    """The neighbours of each group as a list; `group` is sorted."""
    stops = np.cumsum(np.bincount(group, minlength=count)).tolist()
    flat = neighbours.tolist()
    return [flat[start:stop] for start, stop in pairwise([0, *stops])]


def drop_blocked(base: Base) -> None:
    """Drops the open edges that no run can contract, because of a path around them through another device.

    Only paths along two forests are checked (latest producers, earliest consumers): constant time per
    edge, and it decides nearly all edges that span a long distance."""
    if not base.open:
        return
    color = base.color
    top_down = range(len(color))
    producers, consumers = base.edges
    latest, earliest = np.full(len(color), -1), np.full(len(color), -1)
    latest[consumers] = producers  # the last of several assignments counts
    earliest[producers[::-1]] = consumers[::-1]
    below, above = Forest.of(latest.tolist(), top_down), Forest.of(earliest.tolist(), top_down[::-1])
    last, start, stop = below.parent, below.start, below.stop
    first, begin, end = above.parent, above.start, above.stop
    down = _device_changes(last, color, top_down)
    up = _device_changes(first, color, top_down[::-1])
    kept = []
    for a, b in base.open:
        p, s = last[b], first[a]
        if p != a and start[a] <= start[p] < stop[a] and (down[p] != down[a] or color[p] != color[b]):
            continue  # a ... p -> b, down the first forest
        if s != b:
            if begin[b] <= begin[s] < end[b] and (up[s] != up[b] or color[s] != color[a]):
                continue  # a -> s ... b, along the second
            if s < b and start[s] <= start[b] < stop[s] and (down[b] != down[s] or color[s] != color[a]):
                continue  # a -> s, and from there down the first (a mask that many blocks share)
        kept.append((a, b))
    base.open = kept


def _device_changes(parent: list[int], color: Sequence[int | None], top_down: Sequence[int]) -> list[int]:
    """Number of device changes between each node and its root."""
    changes = [0] * len(parent)
    for v in top_down:
        p = parent[v]
        if p >= 0:
            changes[v] = changes[p] + (color[p] != color[v])
    return changes
