"""The arrays of a package: all in one member, equal ones once, mapped from the file on import."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from partita.accelerators.arrays.sharing import ALIGNMENT, array_digest, byte_view, mapped
from partita.accelerators.package.container import MemberWriter, PackageError
from partita.graph.types import Array, dtype_name, numpy_dtype

WEIGHTS = "weights"
"""The member's name, which is also the location of large constants in the ONNX bodies."""

Row = tuple[int, str, tuple[int, ...]]
"""Offset in the member, dtype, shape."""


class ArrayWriter:
    """Writes arrays; equal contents are written once."""

    location = WEIGHTS

    def __init__(self, member: MemberWriter) -> None:
        self._member = member
        self._known: dict[tuple[int, str], int] = {}

    def add(self, array: Array) -> tuple[int, int]:
        """Adds an array and returns its offset and length."""
        key = array.nbytes, array_digest(array)
        if key not in self._known:
            self._member.write(bytes(-(self._member.start + self._member.size) % ALIGNMENT))
            self._known[key] = self._member.size
            self._member.write(byte_view(array))
        return self._known[key], array.nbytes

    def row(self, array: Array) -> Row:
        """The manifest's row for the array."""
        return self.add(array)[0], dtype_name(array.dtype), array.shape


def read_array(data: Array, row: Sequence[Any], where: str) -> Array:
    """The array that a row of the manifest describes, as a view of the member's bytes."""
    offset, name, shape = row
    dtype = numpy_dtype(name)
    end = offset + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min((offset, *shape)) < 0 or end > data.size:
        raise PackageError(f"it has no array at {row!r:.80}", where=where)
    return mapped(data[offset:end].view(dtype).reshape(shape))
