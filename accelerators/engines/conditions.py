"""Compares the length of a Compress's condition with that of its data."""

from __future__ import annotations

import math

from partita.graph.node import Node
from partita.graph.types import Dim, TensorType


def condition_lengths(node: Node) -> tuple[Dim, Dim]:
    """The length of the condition, and that of the data along the axis or flattened; None if unknown."""
    data, condition = (entry.type if entry is not None else None for entry in node.inputs[:2])
    length = condition.shape[0] if isinstance(condition, TensorType) and condition.shape else None
    if not isinstance(data, TensorType) or not data.shape:
        return length, None
    axis = node.attrs.get("axis")
    if axis is None:
        return length, math.prod(int(size or 0) for size in data.shape) if data.is_static else None
    return length, data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else None
