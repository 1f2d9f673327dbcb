"""Nested graphs: iterates over a graph and its bodies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from partita.graph.node import Body, Node

if TYPE_CHECKING:
    from partita.graph.graph import Graph


def bodies_of(node: Node) -> Iterator[Graph]:
    """The graphs that the node holds: the body of a call, then those among its attributes, including in lists."""
    if node.subgraph is not None:
        yield node.subgraph
    for value in node.attrs.values():
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, Body):
                yield cast("Graph", item)


def graphs_in(graph: Graph) -> Iterator[Graph]:
    """The graph and all graphs inside it, each once. Linear, not recursive."""
    waiting, seen = [graph], {id(graph)}
    while waiting:
        current = waiting.pop()
        yield current
        for node in current.nodes:
            if node.attrs or node.subgraph is not None:
                for body in bodies_of(node):
                    if id(body) not in seen:
                        seen.add(id(body))
                        waiting.append(body)
