"""A graph's fingerprint: the same for the same nodes, names and edges, whatever the bytes of its constants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from graph.graph import Graph
from graph.node import Body, Node


def fingerprint(graph: Graph) -> str:
    """SHA-256 over every node's name, op, attributes and reads. Linear."""
    total = hashlib.sha256()
    for line in _lines(graph):
        total.update(line.encode("utf-8", "surrogatepass"))
        total.update(b"\n")
    return total.hexdigest()


def _lines(graph: Graph) -> Iterator[str]:
    number = graph.index.number
    for node in graph.nodes:
        reads = [(-1, 0) if e is None else (number[e.node], e.index) for e in node.inputs]
        captures = [(number[e.node], e.index) for e in node.captures]
        after = [number[other] for other in node.after]
        yield repr((node.name, node.op, node.domain, node.output_names, reads, captures, after, _attributes(node)))
    yield repr([node.name for node in graph.inputs])
    yield repr([(number[e.node], e.index, name) for e, name in zip(graph.outputs, graph.output_names, strict=True)])
    yield repr(sorted(graph.opsets.items()))


def _attributes(node: Node) -> list[tuple[str, str]]:
    if node.value is not None:
        return [("value", _text(node.value))]
    attributes = [(key, _text(value)) for key, value in sorted(node.attrs.items())] if node.attrs else []
    return attributes if node.subgraph is None else [*attributes, ("subgraph", fingerprint(node.subgraph))]


def _text(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if isinstance(value, Body):
        assert isinstance(value, Graph)
        return fingerprint(value)
    return repr(value)
