"""Topological order of a graph's nodes: among the ready ones, the one with the lowest place comes first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.graph.errors import GraphError

if TYPE_CHECKING:
    from partita.graph.node import Node

Numbers = np.ndarray[Any, np.dtype[np.int64]]
"""Numbers of nodes."""


@attrs.frozen(slots=True, eq=False)
class EdgeArrays:
    """Edges between nodes 0..count-1, from lower to higher ones, as two arrays."""

    count: int
    """The number of nodes."""
    producers: Numbers
    """The producer of each edge."""
    consumers: Numbers
    """The consumer of each edge."""

    @classmethod
    def of(cls, preds: Sequence[Sequence[int]]) -> EdgeArrays:
        """The edges to each node, by node."""
        count = len(preds)
        consumers = np.repeat(np.arange(count), np.fromiter(map(len, preds), np.int64, count))
        return cls(count, np.fromiter(chain.from_iterable(preds), np.int64, len(consumers)), consumers)

    def where(self, kept: np.ndarray[Any, np.dtype[np.bool_]]) -> EdgeArrays:
        """The edges that are kept."""
        return EdgeArrays(self.count, self.producers[kept], self.consumers[kept])

    def __len__(self) -> int:
        return len(self.producers)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """The edges as (producer, consumer)."""
        return zip(self.producers.tolist(), self.consumers.tolist(), strict=True)

    def roots(self) -> Numbers:
        """Per node the root of its tree, in a forest that joins each consumer to one of its producers."""
        parent = np.arange(self.count)
        parent[self.consumers] = self.producers
        return followed(parent)


def followed(parent: Numbers) -> Numbers:
    """Per node the root that its parents lead to; a root is its own parent. O(n log n)."""
    while not np.array_equal(further := parent[parent], parent):
        parent = further
    return parent


def reachable(roots: Iterable[Node]) -> list[Node]:
    """The roots and all nodes that they depend on, each once. Linear, not recursive."""
    seen = set(map(id, stack := list(dict.fromkeys(roots))))
    nodes = []
    while stack:
        node = stack.pop()
        nodes.append(node)
        for entry in node.inputs:
            if entry is not None and id(entry.node) not in seen:
                seen.add(id(entry.node))
                stack.append(entry.node)
        if node.captures or node.after:
            for source in (*(e.node for e in node.captures), *node.after):
                if id(source) not in seen:
                    seen.add(id(source))
                    stack.append(source)
    return nodes


def is_ordered(nodes: Iterable[Node]) -> bool:
    """True if the nodes are in the order of `topological`: ascending places, each after all that it depends on."""
    seen: set[Node] = set()
    last = -1
    for node in nodes:
        if node.place < last:
            return False
        last = node.place
        for entry in node.inputs:
            if entry is not None and entry.node not in seen:
                return False
        if (node.captures or node.after) and not seen.issuperset(sources(node)):
            return False
        seen.add(node)
    return True


def topological(nodes: list[Node]) -> tuple[Node, ...]:
    """These nodes, a set closed under dependencies, in order. O(n log n).

    One pass in the order of places passes over the nodes that have to wait for later ones; each follows the last of those."""
    ordered = sorted(nodes, key=attrgetter("place"))
    done: list[Node] = []
    seen: set[Node] = set()
    waiting: dict[int, int] = {}  # how many nodes one that was passed over still waits for, by its position
    readers: dict[Node, list[int]] = {}  # the positions of those that wait for a node
    for position, node in enumerate(ordered):
        missing = []
        for entry in node.inputs:
            if entry is not None and entry.node not in seen:
                missing.append(entry.node)
        if node.captures or node.after:
            missing = [source for source in sources(node) if source not in seen]
        if missing:
            awaited = set(missing)
            waiting[position] = len(awaited)
            for source in awaited:
                readers.setdefault(source, []).append(position)
            continue
        done.append(node)
        seen.add(node)
        if node in readers:
            released = _released(node, ordered, waiting, readers)
            done += released
            seen.update(released)
    if len(done) < len(ordered):
        stuck = next(node for node in ordered if node not in seen)
        raise GraphError("the node depends on itself through a cycle", where=f"node {stuck.name!r} ({stuck.op})")
    return tuple(done)


def _released(node: Node, ordered: list[Node], waiting: dict[int, int], readers: dict[Node, list[int]]) -> list[Node]:
    """The nodes that waited for this one alone, and for each other, in order."""
    ready: list[int] = []
    done: list[Node] = []
    while True:
        for position in readers.pop(node, ()):
            waiting[position] -= 1
            if not waiting[position]:
                heapq.heappush(ready, position)
        if not ready:
            return done
        node = ordered[heapq.heappop(ready)]
        done.append(node)


def sources(node: Node) -> list[Node]:
    """The nodes that must come before this one, in input order, once per edge."""
    producers = [entry.node for entry in node.inputs if entry is not None]
    if node.captures:
        producers += [entry.node for entry in node.captures]
    if node.after:
        producers += node.after
    return producers


def lowest_first(ready: list[int], waiting: list[int], consumers: Sequence[Iterable[int]]) -> list[int]:
    """Topological order of integers, the lowest ready one first; those that wait on a cycle are left out.

    `ready` is ascending; `waiting` counts, per integer, the edges to it that are still open, and is counted down to zero.
    O(edges + n log n)."""
    done: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        done.append(i)
        for j in consumers[i]:
            waiting[j] -= 1
            if not waiting[j]:
                heapq.heappush(ready, j)
    return done
