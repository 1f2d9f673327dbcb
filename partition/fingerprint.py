"""A graph's fingerprint, which depends on its nodes, names and edges, but not on the bytes of its constants."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

import numpy as np

from partita.graph.formatting import listed
from partita.graph.graph import Graph
from partita.graph.node import Body, Node

SHOWN = 3
"""Number of names in a difference."""


def fingerprint(graph: Graph) -> str:
    """SHA-256 over every node's name, op, attributes and reads. Linear."""
    total = hashlib.sha256()
    for line in _lines(graph):
        total.update(line.encode("utf-8", "surrogatepass"))
        total.update(b"\n")
    return total.hexdigest()


def difference(graph: Graph, ops: Collection[str], all_ops: bool = True, before: Graph | None = None) -> str:
    """Describes the difference to an earlier graph with these `ops`, or without `all_ops`, with these among others. Compares
    nodes too if the earlier graph, `before`, still exists. Linear."""
    here = [node.name for node in graph.nodes if node.is_op]
    there, present = set(ops), set(here)
    lost = [repr(name) for name in ops if name not in present]
    new = [repr(name) for name in here if name not in there] if all_ops else []
    parts = [f"it lacks {listed(lost, SHOWN)}"] if lost else []
    parts += [f"it also has {listed(new, SHOWN)}"] if new else []
    if parts:
        return " and ".join(parts)
    if before is not None:
        lines = zip(_lines(before), _lines(graph), [*(node.name for node in graph.nodes), *_ENDS], strict=False)
        for old, changed, name in lines:
            if old != changed:
                return f"they differ first in {name if name in _ENDS else f'node {name!r}: its op, attributes or inputs'}"
    return "its ops have the same names; their attributes, inputs or constants' sizes differ"


_ENDS = ("the inputs of the graph", "the outputs of the graph", "the opsets")
"""Descriptions of the last lines of a graph, after those of its nodes."""


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
