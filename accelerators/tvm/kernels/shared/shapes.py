"""Shapes for which kernels are made."""

from __future__ import annotations

from collections.abc import Collection

from partita.accelerators.tvm.bodies.quantized import STORED
from partita.accelerators.tvm.kernels.shared.element_access import REALS
from partita.accelerators.tvm.sizes.extent import sizes_of
from partita.graph.node import NodeEntry
from partita.graph.types import TensorType

Shape = tuple[int, ...]
"""Sizes. Dynamic ones are extents: integers to the type checker, which raise on operations that they do not support."""

FARTHEST = 2**31
"""Offsets are integers of 32 bits."""

FLOAT32 = frozenset(("float32",))


def float32_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if it is a float32 tensor with known sizes."""
    return _shape_of(entry, FLOAT32)


def real_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if its elements are computed in float32, however they are stored, and the sizes are known."""
    return _shape_of(entry, REALS)


def number_shape(entry: NodeEntry | None) -> Shape | None:
    """The same, or the sizes of a value of quantized integers."""
    return _shape_of(entry, REALS | STORED)


def any_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if it is a tensor with known sizes."""
    return _shape_of(entry, None)


def _shape_of(entry: NodeEntry | None, dtypes: Collection[str] | None) -> Shape | None:
    known = None if entry is None else entry.type
    if not isinstance(known, TensorType) or (dtypes is not None and known.dtype not in dtypes):
        return None
    return sizes_of(known)  # type: ignore[return-value]
