"""The base: nodes that may be grouped according to both labels, contracted, with the edges that are still open."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from partita.graph.order import EdgeArrays, Numbers, followed
from partita.partition.growth.forest import Forest

UNGROUPED = -1
"""In place of a device: a node that is never grouped."""


@attrs.define
class Base:
    """The groups that every run of `largest` starts from, numbered in a topological order."""

    of: Numbers
    """The base group of each node."""
    edges: EdgeArrays
    """The edges between different base groups, by producer, then by consumer."""
    device: Numbers
    earliest: Numbers
    latest: Numbers
    size: Numbers
    """Number of nodes of each base group."""
    open: EdgeArrays
    """Accepted edges between different base groups, in order, that might still be contracted."""

    def __len__(self) -> int:
        return len(self.device)

    def consumers(self, count: int) -> list[list[int]]:
        """The consumers of each of the first `count` base groups that are among these, ascending."""
        inside = self.edges.where(self.edges.consumers < count)
        return _by_group(inside.producers, inside.consumers, count)

    def producers(self, count: int) -> list[list[int]]:
        """The producers of each of the first `count` base groups, ascending."""
        inside = self.edges.where(self.edges.consumers < count)
        return _by_group(*np.divmod(np.sort(inside.consumers * len(self) + inside.producers), max(len(self), 1)), count)


def components(edges: EdgeArrays, *labels: Numbers) -> Numbers:
    """Joins nodes that are connected by edges and equal in all labels; -> the first node of each node's component."""
    for label in labels:
        edges = edges.where(label[edges.producers] == label[edges.consumers])
    first = np.arange(edges.count)
    while len(edges):
        np.minimum.at(first, edges.consumers, edges.producers)
        first = followed(first)
        ends = first[edges.producers], first[edges.consumers]
        edges = EdgeArrays(edges.count, np.minimum(*ends), np.maximum(*ends)).where(ends[0] != ends[1])
    return first


def build(
    edges: EdgeArrays, device: Numbers, accepted: EdgeArrays, earliest: Numbers, latest: Numbers, first: Numbers
) -> Base:
    """Contracts the components given by `first`. O(n log n) for the sorting, else linear.

    If the nodes of a component are equal in both labels, no cycle closes: ordered by (earliest, -latest), labels never fall along
    an edge."""
    names = np.flatnonzero(first == np.arange(len(first)))
    soon, late = earliest[names], latest[names]
    by_label = np.lexsort((-late, soon))  # sorted by (earliest, -latest, node)
    names, soon, late = names[by_label], soon[by_label], late[by_label]
    count = len(names)
    number = np.zeros(len(first), np.int64)
    number[names] = np.arange(count)
    of = number[first]
    between = _between(edges, of, count)
    return Base(of, between, device[names], soon, late, np.bincount(of, minlength=count), _between(accepted, of, count))


def _between(edges: EdgeArrays, of: Numbers, count: int) -> EdgeArrays:
    """The edges between different groups, each once, in order."""
    a, b = of[edges.producers], of[edges.consumers]
    outer = a != b
    pairs = np.sort(a[outer] * count + b[outer])  # np.unique hashes, and takes ten times as long
    return EdgeArrays(count, *np.divmod(pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]], max(count, 1)))


def _by_group(group: Numbers, neighbours: Numbers, count: int) -> list[list[int]]:
    """The neighbours of each group as a list; `group` is sorted."""
    stops = np.cumsum(np.bincount(group, minlength=count)).tolist()
    flat = neighbours.tolist()
    return [flat[start:stop] for start, stop in pairwise([0, *stops])]


def drop_blocked(base: Base) -> None:
    """Drops the open edges that no run can contract, because of a path around them through another device.

    Only paths along two forests are checked (latest producers, earliest consumers): constant time per
    edge, and it decides nearly all edges that span a long distance."""
    if not len(base.open):
        return
    color, edges = base.device.tolist(), base.edges
    top_down = range(len(color))
    latest, earliest = np.full(len(color), -1), np.full(len(color), -1)
    latest[edges.consumers] = edges.producers  # the last of several assignments counts
    earliest[edges.producers[::-1]] = edges.consumers[::-1]
    below, above = Forest.of(latest.tolist(), top_down), Forest.of(earliest.tolist(), top_down[::-1])
    last, start, stop = below.parent, below.start, below.stop
    first, begin, end = above.parent, above.start, above.stop
    down = _device_changes(last, color, top_down)
    up = _device_changes(first, color, top_down[::-1])
    kept = np.ones(len(base.open), bool)
    for i, (a, b) in enumerate(base.open.pairs()):
        p, s = last[b], first[a]
        if p != a and start[a] <= start[p] < stop[a] and (down[p] != down[a] or color[p] != color[b]):
            kept[i] = False  # a ... p -> b, down the first forest
        elif s != b:
            if begin[b] <= begin[s] < end[b] and (up[s] != up[b] or color[s] != color[a]):
                kept[i] = False  # a -> s ... b, along the second
            if s < b and start[s] <= start[b] < stop[s] and (down[b] != down[s] or color[s] != color[a]):
                kept[i] = False  # a -> s, and from there down the first (a mask that many blocks share)
    base.open = base.open.where(kept)


def _device_changes(parent: list[int], color: Sequence[int], top_down: Sequence[int]) -> list[int]:
    """Number of device changes between each node and its root."""
    changes = [0] * len(parent)
    for v in top_down:
        p = parent[v]
        if p >= 0:
            changes[v] = changes[p] + (color[p] != color[v])
    return changes
