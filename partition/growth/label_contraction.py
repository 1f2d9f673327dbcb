"""The base: nodes that may be grouped according to both labels, contracted, with the edges that are still open."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from partita.partition.growth.forest import earliest_consumers, latest_producers
from partita.partition.growth.labels import Color, Preds


@attrs.define
class Base:
    """The groups that every run of `largest` starts from, numbered in a topological order."""

    of: list[int]
    """The base group of each node."""
    succ: list[list[int]]
    pred: list[list[int]]
    color: list[int | None]
    earliest: list[int]
    latest: list[int]
    size: list[int]
    """Number of nodes of each base group."""
    open: list[tuple[int, int]]
    """Accepted edges between different base groups, in order, that might still be contracted."""


def components(preds: Preds, accepted: Sequence[Sequence[int]], earliest: list[int], latest: list[int]) -> list[int]:
    """Joins nodes that are connected by accepted edges and equal in both labels; -> the first node of each node's component.

    Both labels never fall along an edge, so components ordered by (earliest, -latest) cannot form a cycle.
    """
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
    names = [v for v, f in enumerate(first) if v == f]
    steps = max(latest, default=0) + 1
    names.sort(key=lambda v: (earliest[v] + 1) * steps - latest[v])  # sorted by (earliest, -latest, node)
    number = [0] * len(preds)
    for i, v in enumerate(names):
        number[v] = i
    of = [number[f] for f in first]
    count = len(names)
    succ: list[list[int]] = [[] for _ in names]
    size = [0] * count
    edges: set[int] = set()  # a pair (a, b) as the one number a * count + b
    for v, producers in enumerate(preds):
        b = of[v]
        size[b] += 1
        for u in producers:
            a = of[u]
            if a != b:
                succ[a].append(b)
        for u in accepted[v]:
            a = of[u]
            if a != b:
                edges.add(a * count + b)
    return Base(
        of,
        succ,
        _turned(succ),
        [color[v] for v in names],
        [earliest[v] for v in names],
        [latest[v] for v in names],
        size,
        [divmod(pair, count) for pair in sorted(edges)],
    )


def _turned(succ: list[list[int]]) -> list[list[int]]:
    """The producers of each group; also sorts the lists of consumers and removes duplicates."""
    pred: list[list[int]] = [[] for _ in succ]
    for a, consumers in enumerate(succ):
        if len(consumers) > 1:
            consumers = succ[a] = sorted(set(consumers))
        for b in consumers:
            pred[b].append(a)
    return pred


def drop_blocked(base: Base) -> None:
    """Drops the open edges that no run can contract, because of a path around them through another device.

    Only paths along two forests are checked (latest producers, earliest consumers): constant time per
    edge, and it decides nearly all edges that span a long distance.
    """
    if not base.open:
        return
    color = base.color
    below = latest_producers(base.pred)
    above = earliest_consumers(base.succ)
    last, start, stop = below.parent, below.start, below.stop
    first, begin, end = above.parent, above.start, above.stop
    down = _device_changes(last, color, range(len(color)))
    up = _device_changes(first, color, range(len(color))[::-1])
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
