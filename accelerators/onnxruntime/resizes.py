"""The resizes that onnxruntime computes differently from ONNX's definition: of integers, and by scales that do not give
integer sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.accelerators.engines.resize_scales import (
    has_scales,
    known_scales,
    may_leave_all_sizes,
    scaled_sizes,
)
from partita.graph.node import Node
from partita.graph.types import Dim, TensorType


def resize(node: Node) -> str | None:
    """The reason why the resize should run elsewhere, or None."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    is_mixed = node.attrs.get("mode", "nearest") != "nearest"
    if is_mixed and isinstance(data_type, TensorType) and "int" in data_type.dtype:
        return "onnxruntime cuts off what is behind the point where a resize mixes whole numbers"
    if not has_scales(node):
        return None
    scales = known_scales(node)
    aligned = node.attrs.get("coordinate_transformation_mode") == "align_corners"
    if aligned and not _makes_whole_sizes(scaled_sizes(node, scales), scales):
        return "onnxruntime aligns corners by the sizes that come of the scales, not by the scales"
    if scales is not None and may_leave_all_sizes(node, scales):
        return "onnxruntime copies what a scale that is not one leaves as large as it was"
    return None


def _makes_whole_sizes(shape: tuple[Dim, ...], scales: np.ndarray[Any, Any] | None) -> bool:
    if scales is None or not all(isinstance(size, int) for size in shape):
        return False
    sizes = np.asarray(shape, np.float64) * scales
    return np.array_equal(sizes, np.floor(sizes))
