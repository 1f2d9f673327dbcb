"""Digests of a subgraph's computation, independent of names: the parts of its key that come from the graph."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import array_digests
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array

WEIGHT_FROM = 1024
"""Size in bytes from which a constant is a weight; code may depend on smaller ones, which are part of the structure."""


@attrs.frozen(slots=True)
class GraphDigest:
    """The three digests of a subgraph: of its body, its shapes and its weights."""

    body: str
    """Digest of ops, attributes, small constants and connections."""
    shapes: str
    """The types of the inputs, and a digest of all other types."""
    weights: str
    """Digest of the large constants."""


def graph_digest(graph: Graph) -> GraphDigest:
    """Equal for graphs that differ only in names. Linear, counting the nodes of bodies."""
    reading = _Reading()
    reading.graph(graph, {})
    inputs = ", ".join(str(node[0].type) for node in graph.inputs)
    digests = array_digests(reading.weights)
    weights = "".join(f"{array.dtype}{array.shape}{digest};" for array, digest in zip(reading.weights, digests, strict=True))
    return GraphDigest(_hex(reading.structure), f"({inputs}) {_hex(reading.types)[:16]}", _hex([weights]))


def _hex(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()


class _Reading:
    def __init__(self) -> None:
        self.structure: list[str] = []
        self.types: list[str] = []
        self.weights: list[Array] = []

    def graph(self, graph: Graph, seen: dict[int, int]) -> None:
        """Adds a graph; its values are numbered from zero."""
        self.structure.append(f"graph {sorted(graph.opsets.items())}")
        numbers: dict[NodeEntry, int] = {}
        for node in graph.nodes:
            self._node(node, numbers, seen)
            for entry in node.outputs:
                numbers[entry] = len(numbers)
        self.structure.append(f"in {[numbers[n[0]] for n in graph.inputs]} out {[numbers[e] for e in graph.outputs]}")

    def _node(self, node: Node, numbers: Mapping[NodeEntry, int], seen: dict[int, int]) -> None:
        reads = ["-" if entry is None else numbers[entry] for entry in (*node.inputs, None, *node.captures)]
        present = [bool(name) for name in node.output_names]
        self.structure.append(f"{node.domain!r} {node.op!r} {reads} {present}")
        self.types.append(str([str(value_type) for value_type in node.output_types]))
        if node.value is not None:
            self._constant(node.value)
        for key in sorted(node.attrs):
            self.structure.append(f" {key}=")
            self._value(node.attrs[key], seen)
        if node.subgraph is not None:
            self._value(node.subgraph, seen)

    def _value(self, value: Any, seen: dict[int, int]) -> None:
        if isinstance(value, Graph):
            if id(value) in seen:
                self.structure.append(f"as before {seen[id(value)]}")
            else:
                seen[id(value)] = len(seen)
                self.graph(value, seen)
        elif isinstance(value, np.ndarray):
            self._constant(value)
        elif isinstance(value, (list, tuple)):
            self.structure.append(f"{len(value)}:")
            for item in value:
                self._value(item, seen)
        else:
            self.structure.append(repr(value))

    def _constant(self, array: Array) -> None:
        self.structure.append(f"{array.dtype}{array.shape}")
        if array.dtype.hasobject:
            self.structure.append(repr(array.tolist()))
        elif array.nbytes < WEIGHT_FROM:
            self.structure.append(array.tobytes().hex())
        else:
            self.weights.append(array)
