"""The readers of each value of a graph, with the input numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry

Readers = Mapping[NodeEntry, Sequence[tuple[Node, int]]]
"""For each value, the nodes that read it, and the number of the input."""


def readers_of(graph: Graph) -> Readers:
    """All readers of the graph's values. Linear."""
    readers: dict[NodeEntry, list[tuple[Node, int]]] = {}
    for node in graph.nodes:
        for slot, entry in enumerate((*node.inputs, *node.captures)):
            if entry is not None:
                readers.setdefault(entry, []).append((node, slot))
    return readers


class Unfit(PartitaError):
    """The decoder has a form that is not recognised; its session copies caches."""


class TooLong(Unfit):
    """The decoder's attention cannot be computed for this many positions: a table in it has fewer."""
