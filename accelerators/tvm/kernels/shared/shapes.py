"""Sizes that kernels are made for."""

from __future__ import annotations

from graph.node import NodeEntry
from graph.types import TensorType

Shape = tuple[int, ...]


def float32_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value, if it is a float32 tensor and they are all known."""
    known = None if entry is None else entry.type
    if not isinstance(known, TensorType) or known.dtype != "float32" or not known.is_static or known.shape is None:
        return None
    return tuple(int(size or 0) for size in known.shape)
