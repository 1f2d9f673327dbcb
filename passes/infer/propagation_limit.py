"""Nodes to hide from ONNX's propagation of values, which makes one dimension per element of a vector of known length.
A file of 70 bytes with a vector of 30,000,000 elements would take minutes and gigabytes.

Shapes are computed with short vectors, and only those are propagated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Dim, TensorType, Type

LONGEST = 1024
"""Maximum elements of a vector that is propagated."""

RANK = 64
"""Assumed maximum length of the result of Shape: ranks of tensors are small."""

_READ = frozenset("ConstantOfShape Expand Range Reshape Resize Slice Tile".split())
"""The ops whose inference rules read a vector as a shape."""

_SHAPES = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Per op whose result has as many dimensions as a vector has elements, the index of this input."""

_OTHER = 0
"""The bound of anything but a vector: its elements are not propagated."""

Bounds = dict[NodeEntry, int | None]
"""Upper bound on the elements that are propagated, by value; None if unbounded."""


def bulky_nodes(graph: Graph) -> set[str]:
    """The names of the nodes, in bodies too, that read vectors which are long, or not known to be short.

    Linear. The types are trusted: ONNX reads no vector as longer than its type."""
    return set(_bulky(graph, {}))


def long_shape(node: Node, inputs: Sequence[Type | None]) -> NodeEntry | None:
    """The long vector, if any, that is the shape of the node's result: ONNX would write each of its dimensions."""
    length = _dimensions(node, inputs)
    return node.inputs[_SHAPES[str(node.op)]] if isinstance(length, int) and length > LONGEST else None


def makes_unknown_dimensions(node: Node) -> bool:
    """True if the shape of the node's result may be a long vector according to the declared types."""
    length = _dimensions(node, [None if entry is None else entry.type for entry in node.inputs])
    return length is not None and not (isinstance(length, int) and length <= LONGEST)


def _dimensions(node: Node, inputs: Sequence[Type | None]) -> Dim:
    """The length of the vector that is the shape of the node's result; a word if it is unknown, None for
    other ops."""
    slot = _SHAPES.get(str(node.op), len(inputs)) if not node.domain else len(inputs)
    if slot >= len(inputs):
        return None
    given = inputs[slot]
    length = given.shape[0] if isinstance(given, TensorType) and given.shape else None
    return "unknown" if length is None else length


def _bulky(graph: Graph, outer: Mapping[Node, int | None]) -> Iterator[str]:
    bounds: Bounds = {}
    for node in graph.nodes:
        if node.is_op and not node.domain and (node.op in _READ or _is_propagated(str(node.op))):
            given = [_OTHER if entry is None else bounds.get(entry, _OTHER) for entry in node.inputs]
            length = _length(node, given)
            if length is None or length > LONGEST:
                yield node.name
            elif _is_propagated(str(node.op)) and _OTHER not in given:
                bounds[node[0]] = length
        for entry in node.outputs:
            if entry not in bounds:
                bounds[entry] = outer[node] if node in outer else _bound(entry)
        for _, body in node.bodies if node.is_op and node.attrs else ():
            inner = body.inputs[len(body.inputs) - len(node.captures) :]
            captured = zip(inner, [bounds.get(entry, _OTHER) for entry in node.captures], strict=True)
            yield from _bulky(body, dict(captured))


@cache
def _is_propagated(op: str) -> bool:
    """True if ONNX propagates values through the op. It takes MeanVarianceNormalization for a body of such ops."""
    import onnx.defs

    if op in ("MeanVarianceNormalization", "Shape"):  # A Shape propagates sizes, no values.
        return op != "Shape"
    return onnx.defs.has(op) and bool(onnx.defs.get_schema(op).has_data_propagation_function)


def _length(node: Node, given: list[int | None]) -> int | None:
    """Upper bound on the elements of the node's result, from the bounds of its inputs."""
    known = [bound for bound in given if bound is not None]
    if len(known) < len(given):
        return None
    return sum(known) if node.op == "Concat" else max(known, default=0)


def _bound(entry: NodeEntry) -> int | None:
    node, kind = entry.node, entry.type
    if node.value is not None and isinstance(node.value, np.ndarray):
        return node.value.size if node.value.ndim < 2 else _OTHER
    if node.op in ops("size") and not node.domain:
        return RANK
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    if len(kind.shape) != 1:
        return _OTHER if kind.shape else 1
    return kind.shape[0] if isinstance(kind.shape[0], int) else None
