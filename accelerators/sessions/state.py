"""What a conversation has said so far, as a decoder keeps it: an array for each cache, and how many tokens there are."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import attrs
import numpy as np

from accelerators.arrays.layout import aligned_empty
from accelerators.errors import AcceleratorError
from accelerators.process.atomic import replacing

Array = np.ndarray[Any, Any]

ALIGNMENT = 64
"""Where buffers begin, in bytes."""

LENGTH, BATCH = "partita.length", "partita.batch"
"""What a file says beside the arrays."""


@attrs.define(slots=True, eq=False)
class State:
    """The caches of one conversation, or of several sequences side by side."""

    arrays: dict[str, Array]
    """Each cache, by the name of its input. One that is appended to has room behind what counts."""
    length: int = 0
    """How many positions count."""
    batch: int | None = None
    """How many sequences there are; None before the first call."""

    def used(self, axes: Mapping[str, int | None]) -> dict[str, Array]:
        """The parts that count. An axis of None: the whole array."""
        return {name: _part(array, axes[name], self.length) for name, array in self.arrays.items()}

    def copied(self, axes: Mapping[str, int | None], rows: Sequence[int] | None) -> State:
        """Another of the same content; of these sequences, in this order, if any are named."""
        parts = {name: array.copy() if rows is None else array[list(rows)] for name, array in self.used(axes).items()}
        return State(parts, self.length, self.batch if rows is None else len(rows))


def _part(array: Array, axis: int | None, length: int) -> Array:
    return array if axis is None else array[(slice(None),) * axis + (slice(0, length),)]


def with_room(array: Array, axis: int, room: int) -> Array:
    """A copy with room for so many positions. Memory that nothing was written to is not taken."""
    shape = list(array.shape)
    shape[axis] = room
    larger = aligned_empty(shape, array.dtype, ALIGNMENT)
    _part(larger, axis, array.shape[axis])[...] = array
    return larger


def write_state(path: str | os.PathLike[str], state: State, axes: Mapping[str, int | None]) -> None:
    """The parts that count as one file of numpy's."""
    counts = {LENGTH: np.array(state.length), BATCH: np.array(-1 if state.batch is None else state.batch)}
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **counts, **state.used(axes))  # type: ignore[arg-type]


def read_state(path: str | os.PathLike[str], wanted: Mapping[str, tuple[np.dtype[Any], int]]) -> State:
    """The state in a file, which holds arrays of these element types and ranks, or none where nothing was said."""
    where = str(path)
    try:
        file = Path(path)
        with ZipFile(file) as members:
            arrays = {name.removesuffix(".npy"): _read_array(members, name) for name in members.namelist()}
    except Exception as error:  # noqa: BLE001  damaged bytes make zipfile and numpy raise anything
        raise AcceleratorError(f"no saved session can be read: {error}", where=where) from None
    length, batch = _count(arrays.pop(LENGTH, None)), _count(arrays.pop(BATCH, None))
    fits = {name: (array.dtype, array.ndim) for name, array in arrays.items()} == dict(wanted)
    if length is None or batch is None or not (fits or (not arrays and length == 0 and batch < 0)):
        remedy = f"It has to hold {', '.join(wanted)}"
        raise AcceleratorError("the file is no session of this model", where=where, remedy=remedy)
    return State(arrays, length, None if batch < 0 else batch)


def _read_array(members: ZipFile, name: str) -> Array:
    """An array as `write_state` stores it. Its header claims no more than the file holds, so that nothing larger is allocated."""
    with members.open(name) as file:
        version = np.lib.format.read_magic(file)
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file) if version == (1, 0) else ((), False, None)
        if dtype is None or dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(f"{name!r} is no array of numbers")
        content = file.read()
    if len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name!r} has {len(content)} bytes, and should have {math.prod(shape) * dtype.itemsize}")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if in_columns else "C").copy()


def _count(array: Array | None) -> int | None:
    """A number that a file says; None where it says none."""
    return int(array) if array is not None and array.shape == () and array.dtype.kind in "iu" else None
