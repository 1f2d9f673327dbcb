"""The graph as integer arrays, on which whole-graph algorithms work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from partita.graph.node import Node
from partita.graph.order import sources

if TYPE_CHECKING:
    from partita.graph.graph import Graph


@attrs.frozen(slots=True, eq=False)
class GraphIndex:
    """Nodes by their number in topological order, and the edges between them."""

    nodes: tuple[Node, ...]
    """The nodes in topological order; a node's number is its position."""
    number: dict[Node, int]
    """The number of each node."""
    producers: list[list[int]]
    """Per node the numbers of those it depends on (inputs in order, captures, control), once per edge."""
    consumers: list[list[int]]
    """Per node the numbers of those that depend on it, ascending and distinct."""

    def __len__(self) -> int:
        return len(self.nodes)


def build_index(graph: Graph) -> GraphIndex:
    """Builds the index in one pass over nodes and edges."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    producers = [[number[source] for source in sources(node)] for node in graph.nodes]
    consumers: list[list[int]] = [[] for _ in producers]
    for i, origins in enumerate(producers):
        for j in origins:
            known = consumers[j]
            if not known or known[-1] != i:
                known.append(i)
    return GraphIndex(graph.nodes, number, producers, consumers)
