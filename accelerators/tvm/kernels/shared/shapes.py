"""Sizes that kernels are made for."""

from __future__ import annotations

from collections.abc import Collection

from accelerators.tvm.bodies.quantized import STORED
from accelerators.tvm.kernels.shared.numbers import REALS
from graph.node import NodeEntry
from graph.types import TensorType

Shape = tuple[int, ...]

FLOAT32 = frozenset(("float32",))


def float32_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value, if it is a float32 tensor and they are all known."""
    return _shape_of(entry, FLOAT32)


def real_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value, if its numbers are computed with as float32, however they are stored, and the sizes are known."""
    return _shape_of(entry, REALS)


def number_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value of such numbers, or of the integers that numbers are quantized to, if the sizes are known."""
    return _shape_of(entry, REALS | STORED)


def any_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value, if it is a tensor and they are all known."""
    return _shape_of(entry, None)


def _shape_of(entry: NodeEntry | None, dtypes: Collection[str] | None) -> Shape | None:
    known = None if entry is None else entry.type
    if not isinstance(known, TensorType) or not known.is_static or known.shape is None:
        return None
    if dtypes is not None and known.dtype not in dtypes:
        return None
    return tuple(int(size or 0) for size in known.shape)
