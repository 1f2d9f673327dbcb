"""The operands of single ops, for the engines' rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from partita.graph.node import Node
from partita.graph.types import Dim, TensorType


def has_scales(node: Node) -> bool:
    """True if a Resize or an Upsample has scales, or may have, rather than sizes."""
    if "scales" in node.attrs:
        return True
    slot = _slot(node)
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    return entry is not None and (entry.node.value is None or bool(entry.node.value.size))


def known_scales(node: Node) -> np.ndarray[Any, Any] | None:
    """The constant scales; None if they are dynamic."""
    entry = None if "scales" in node.attrs else node.inputs[_slot(node)]
    given = node.attrs["scales"] if entry is None else entry.node.value
    return None if given is None else np.asarray(given, np.float32)


def scaled_sizes(node: Node, scales: np.ndarray[Any, Any] | None) -> tuple[Dim, ...]:
    """The sizes of the scaled axes; None for unknown ones."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    shape = data_type.shape if isinstance(data_type, TensorType) else None
    if shape is None:
        return (None,) * (0 if scales is None else scales.size)
    return tuple(shape[axis] for axis in node.attrs.get("axes", range(len(shape))))


def may_leave_all_sizes(node: Node, scales: np.ndarray[Any, Any]) -> bool:
    """True if scales that are not all one may leave all sizes unchanged."""
    return bool((scales != 1).any()) and all(map(_may_stay, scaled_sizes(node, scales), scales))


def may_leave_a_size(node: Node, scales: np.ndarray[Any, Any]) -> bool:
    """True if a scale other than one may leave its axis' size unchanged."""
    return any(scale != 1 and _may_stay(size, scale) for size, scale in zip(scaled_sizes(node, scales), scales, strict=False))


def _slot(node: Node) -> int:
    """The index of the input with the scales: from opset 11 on the region of interest precedes them."""
    return 2 if len(node.inputs) > 2 else 1


def _may_stay(size: Dim, scale: np.float32) -> bool:
    """True if the axis may keep its size. Static sizes of 1 do not count, as their element is copied correctly."""
    if isinstance(size, int):
        return scale == 1 or (size > 1 and np.floor(np.float32(size) * scale) == size)
    return bool(1 <= scale < 1.5)


def condition_lengths(node: Node) -> tuple[Dim, Dim]:
    """The length of a Compress's condition, and that of the data along the axis or flattened; None if unknown."""
    data, condition = (entry.type if entry is not None else None for entry in node.inputs[:2])
    length = condition.shape[0] if isinstance(condition, TensorType) and condition.shape else None
    if not isinstance(data, TensorType) or not data.shape:
        return length, None
    axis = node.attrs.get("axis")
    if axis is None:
        return length, math.prod(int(size or 0) for size in data.shape) if data.is_static else None
    return length, data.shape[axis] if -len(data.shape) <= axis < len(data.shape) else None
