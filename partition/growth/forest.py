"""Forests as intervals: a test for descendants is one comparison, after one linear pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs


@attrs.frozen
class Forest:
    """Node v is below (or is) node a exactly when start[a] <= start[v] < stop[a]."""

    parent: list[int]
    """The parent of each node; -1 for a root."""
    start: list[int]
    """The position of each node in preorder."""
    stop: list[int]
    """The position behind the last node below each node."""

    @classmethod
    def of(cls, parent: list[int], top_down: Sequence[int]) -> Forest:
        """`top_down` lists all nodes, parents before children, in ascending or descending order.

        Siblings are in the order of their numbers: a sorted list of intervals can then be extended by appending,
        if nodes are visited in order. Linear."""
        count = len(parent)
        size = [1] * (count + 1)  # the last is that of all roots, whose parent is -1
        for v in reversed(top_down):
            size[parent[v]] += size[v]
        start = [0] * count
        if count and top_down[0] == 0:
            free = [0] * (count + 1)  # the first free position below each node
            for v in top_down:
                p = parent[v]
                start[v] = free[p]
                free[p] += size[v]
                free[v] = start[v] + 1
        else:
            free = [count] * (count + 1)  # the position behind the last free one
            for v in top_down:
                p = parent[v]
                free[v] = free[p]
                free[p] -= size[v]
                start[v] = free[p]
        return cls(parent, start, [s + k for s, k in zip(start, size)])


def latest_producers(preds: Iterable[Sequence[int]]) -> Forest:
    """Each node's parent is its latest producer: a descendant of a node is reachable from it."""
    parent = [max(p) if p else -1 for p in preds]
    return Forest.of(parent, range(len(parent)))


def earliest_consumers(succs: Iterable[Sequence[int]]) -> Forest:
    """Each node's parent is its earliest consumer: a descendant of a node reaches it."""
    parent = [min(s) if s else -1 for s in succs]
    return Forest.of(parent, range(len(parent))[::-1])
