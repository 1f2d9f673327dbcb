"""Shape arithmetic: integer vectors of which some elements are known as sizes of values of known type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType
from partita.passes.constants import as_constant, ints

Vector = np.ndarray[Any, Any]
"""An object array of rank 0 or 1: integers, or None for unknown elements."""


_LEAST = -(1 << 63)
"""The least int64."""


class ShapeValues:
    """The known elements of integer vectors so far. Nodes must be passed in order."""

    def __init__(self) -> None:
        self._known: dict[NodeEntry, Vector] = {}

    def learn(self, node: Node, version: int) -> np.ndarray[Any, Any] | None:
        """Processes the next node; returns its output if that is fully known."""
        rule = _RULES.get(node.op or "")
        if rule is None or node.domain or not node.inputs:
            return None
        vector = rule(self, node, version)
        if vector is None:
            return None
        flat = vector.reshape(-1)
        if any(item is not None and not _LEAST <= item <= -_LEAST - 1 for item in flat):
            return None
        if any(item is None for item in flat):
            self._known[node[0]] = vector
            return None
        return vector.astype(np.int64)

    def of(self, entry: NodeEntry | None) -> Vector | None:
        """The known elements of a value, which may be a constant; None if nothing is known."""
        value = as_constant(entry)
        if value is not None:
            return value.astype(object) if value.dtype == np.int64 and value.ndim < 2 else None
        return None if entry is None else self._known.get(entry)

    def all_of(self, node: Node) -> list[Vector] | None:
        """Like `of`, for all inputs; None if it is None for one."""
        vectors = [self.of(entry) for entry in node.inputs]
        return None if any(vector is None for vector in vectors) else [v for v in vectors if v is not None]


def _shape(values: ShapeValues, node: Node, version: int) -> Vector | None:
    sizes = _sizes(node.inputs[0])
    if sizes is None:
        return None
    return _vector(sizes[node.attrs.get("start", 0) : node.attrs.get("end", len(sizes))])


def _size(values: ShapeValues, node: Node, version: int) -> Vector | None:
    sizes = _sizes(node.inputs[0])
    if sizes is None or None in sizes:
        return None
    count = 1
    for size in sizes:
        count *= size or 0
    return np.array(count, object)


def _sizes(entry: NodeEntry | None) -> list[int | None] | None:
    known = None if entry is None else entry.type
    if not isinstance(known, TensorType) or known.shape is None:
        return None
    return [size if isinstance(size, int) else None for size in known.shape]


def _vector(items: list[Any]) -> Vector:
    vector = np.empty(len(items), object)
    vector[:] = items
    return vector


def _gather(values: ShapeValues, node: Node, version: int) -> Vector | None:
    vector, where = values.of(node.inputs[0]), as_constant(node.inputs[1])
    if (
        vector is None
        or vector.ndim != 1
        or where is None
        or where.ndim > 1
        or node.attrs.get("axis", 0) not in (0, -1)
    ):
        return None
    if where.size and not -len(vector) <= where.min() <= where.max() < len(vector):
        return None
    gathered = np.empty(where.shape, object)
    gathered[...] = vector[where]
    return gathered


def _slice(values: ShapeValues, node: Node, version: int) -> Vector | None:
    vector = values.of(node.inputs[0])
    if vector is None or vector.ndim != 1:
        return None
    old = version < 10
    starts, ends = (ints(node, i, name if old else "") for i, name in ((1, "starts"), (2, "ends")))
    steps = ints(node, 4, "") if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
    if starts is None or ends is None or steps is None or not len(starts) == len(ends) == len(steps) == 1:
        return None
    if not steps[0]:
        return None
    # ONNX clamps as Python does, except that a range with a negative step starts at the first element or after it, and
    # that an end before the first element cannot be expressed by a negative number.
    start = max(starts[0], -len(vector)) if steps[0] < 0 else starts[0]
    end = None if steps[0] < 0 and ends[0] < -len(vector) else ends[0]
    return vector[start : end : steps[0]]


def _concat(values: ShapeValues, node: Node, version: int) -> Vector | None:
    vectors = values.all_of(node)
    if vectors is None or any(v.ndim != 1 for v in vectors):
        return None
    return np.concatenate(vectors)


def _unsqueeze(values: ShapeValues, node: Node, version: int) -> Vector | None:
    vector, axes = values.of(node.inputs[0]), ints(node, 1, "axes")
    return vector.reshape(1) if vector is not None and vector.ndim == 0 and axes in ([0], [-1]) else None


def _squeeze(values: ShapeValues, node: Node, version: int) -> Vector | None:
    vector = values.of(node.inputs[0])
    return vector.reshape(()) if vector is not None and vector.size == 1 else None


def _cast(values: ShapeValues, node: Node, version: int) -> Vector | None:
    return values.of(node.inputs[0]) if node.attrs.get("to") in (7, "INT64") else None


def _identity(values: ShapeValues, node: Node, version: int) -> Vector | None:
    return values.of(node.inputs[0])


_RULES: dict[str, Callable[[ShapeValues, Node, int], Vector | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Cast": _cast,
    "Identity": _identity,
}
