"""The resizes that onnxruntime computes differently from ONNX's definition: those by scales that do not make whole sizes."""

from __future__ import annotations

import numpy as np

from graph.node import Node
from graph.types import Dim, TensorType


def resize(node: Node) -> str | None:
    """Why the resize had better run elsewhere, if it had."""
    slot = 2 if len(node.inputs) > 2 else 1
    entry = node.inputs[slot] if len(node.inputs) > slot else None
    if entry is None or (entry.node.value is not None and not entry.node.value.size):
        return None
    scales = None if entry.node.value is None else np.asarray(entry.node.value, np.float32)
    shape = _shape(node, scales)
    if node.attrs.get("coordinate_transformation_mode") == "align_corners" and not _makes_whole_sizes(shape, scales):
        return "onnxruntime aligns corners by the sizes that come of the scales, not by the scales"
    if scales is not None and (scales != 1).any() and all(map(_may_stay, shape, scales)):
        return "onnxruntime copies what a scale that is not one leaves as large as it was"
    return None


def _shape(node: Node, scales: np.ndarray | None) -> tuple[Dim, ...]:
    """The sizes of the axes that the scales are for; unknown ones where the type does not say them."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    shape = data_type.shape if isinstance(data_type, TensorType) else None
    if shape is None:
        return (None,) * (0 if scales is None else scales.size)
    return tuple(shape[axis] for axis in node.attrs.get("axes", range(len(shape))))


def _makes_whole_sizes(shape: tuple[Dim, ...], scales: np.ndarray | None) -> bool:
    if scales is None or not all(isinstance(size, int) for size in shape):
        return False
    sizes = np.asarray(shape, np.float64) * scales
    return np.array_equal(sizes, np.floor(sizes))


def _may_stay(size: Dim, scale: np.float32) -> bool:
    """May the axis have the same size afterwards? One of a single element is copied rightly."""
    if isinstance(size, int):
        return scale == 1 or (size > 1 and np.floor(np.float32(size) * scale) == size)
    return bool(1 <= scale < 1.5)
