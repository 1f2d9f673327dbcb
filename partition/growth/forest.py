"""Forests as intervals: is this node below that one? One comparison, after one linear pass."""

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
        """`top_down` lists all nodes, parents before children, by rising numbers or by falling ones.

        Siblings stand in the order of their numbers: who keeps a sorted list of intervals and meets nodes in
        order appends to it. Linear.
        """
        count = len(parent)
        size = [1] * count
        for v in reversed(top_down):
            p = parent[v]
            if p >= 0:
                size[p] += size[v]
        start = [0] * count
        if count and top_down[0] == 0:
            free = [0] * (count + 1)  # the first free place below each node
            for v in top_down:
                p = parent[v]
                start[v] = free[p]
                free[p] += size[v]
                free[v] = start[v] + 1
        else:
            free = [count] * (count + 1)  # the place behind the last free one
            for v in top_down:
                p = parent[v]
                free[v] = free[p]
                free[p] -= size[v]
                start[v] = free[p]
        return cls(parent, start, [s + k for s, k in zip(start, size)])


def latest_producers(preds: Iterable[Sequence[int]]) -> Forest:
    """Each node hangs below its latest producer: to be below a node is to be reached from it."""
    parent = [max(p) if p else -1 for p in preds]
    return Forest.of(parent, range(len(parent)))


def earliest_consumers(succs: Iterable[Sequence[int]]) -> Forest:
    """Each node hangs below its earliest consumer: to be below a node is to reach it."""
    parent = [min(s) if s else -1 for s in succs]
    return Forest.of(parent, range(len(parent))[::-1])
