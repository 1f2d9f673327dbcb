"""Topological order of a graph's nodes: among the ready ones, the one with the lowest place comes first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from partita.graph.errors import GraphError

if TYPE_CHECKING:
    from partita.graph.node import Node


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

    If the places agree with the data flow, as in a loaded file, the nodes are only sorted by place."""
    ordered = sorted(nodes, key=attrgetter("place"))
    if is_ordered(ordered):
        return tuple(ordered)
    return _by_readiness(ordered, {id(node): i for i, node in enumerate(ordered)})


def sources(node: Node) -> list[Node]:
    """The nodes that must come before this one, in input order, once per edge."""
    producers = [entry.node for entry in node.inputs if entry is not None]
    if node.captures:
        producers += [entry.node for entry in node.captures]
    if node.after:
        producers += node.after
    return producers


def _by_readiness(ordered: list[Node], position: dict[int, int]) -> tuple[Node, ...]:
    waiting = [0] * len(ordered)
    consumers: list[list[int]] = [[] for _ in ordered]
    for i, node in enumerate(ordered):
        for source in set(map(id, sources(node))):
            consumers[position[source]].append(i)
            waiting[i] += 1
    done = lowest_first([i for i, count in enumerate(waiting) if not count], waiting, consumers)
    if len(done) < len(ordered):
        stuck = next(ordered[i] for i, count in enumerate(waiting) if count)
        raise GraphError("the node depends on itself through a cycle", where=f"node {stuck.name!r} ({stuck.op})")
    return tuple([ordered[i] for i in done])


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
