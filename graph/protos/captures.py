"""The names of the outer values that a body reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

GRAPH_KIND = 5
"""The number of AttributeProto.GRAPH."""


def free_names(graph: Any) -> dict[str, None]:
    """The names that the GraphProto uses before it defines them, in order of first use."""
    defined = {item.name for item in graph.input}
    defined.update(item.name for item in graph.initializer)
    defined.update(item.values.name for item in graph.sparse_initializer)
    free: dict[str, None] = {}
    for node in graph.node:
        _take(node.input, defined, free)
        for attribute in node.attribute:
            if attribute.type == GRAPH_KIND:
                _take(free_names(attribute.g), defined, free)
        defined.update(node.output)
    _take((item.name for item in graph.output), defined, free)
    return free


def free_of_node(node: Any) -> dict[str, None]:
    """The outer names that the bodies of a NodeProto read, in order of first use."""
    free: dict[str, None] = {}
    for attribute in node.attribute:
        if attribute.type == GRAPH_KIND:
            free.update(free_names(attribute.g))
    return free


def all_names(protos: Any) -> Iterator[str]:
    """The names of all values that the NodeProtos and their bodies define."""
    for node in protos:
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == GRAPH_KIND:
                inner = attribute.g
                yield from (item.name for item in (*inner.input, *inner.initializer))
                yield from all_names(inner.node)


def _take(names: Iterable[str], defined: set[str], free: dict[str, None]) -> None:
    for name in names:
        if name and name not in defined:
            free[name] = None
