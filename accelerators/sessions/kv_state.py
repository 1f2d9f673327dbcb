"""The state of a conversation: an array for each cache, and the number of tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.layout import aligned_zeros
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import replacing
from partita.accelerators.process.regular import open_regular
from partita.accelerators.sessions.kv_pairs import Cache
from partita.graph.errors import ReadError
from partita.graph.readers.arrays import read_npz

Array = np.ndarray[Any, Any]

ALIGNMENT = 64
"""Alignment of buffers in bytes."""

LENGTH, BATCH, MASK = "partita.length", "partita.batch", "partita.mask"
"""The entries of a file besides the arrays; a mask only if one hides tokens."""


@attrs.define(slots=True, eq=False)
class State:
    """The caches of one conversation, or of a batch of sequences."""

    arrays: dict[str, Array]
    """Each cache, by the name of its input. One that is appended to has spare capacity after the positions in use."""
    length: int = 0
    """Number of positions in use."""
    batch: int | None = None
    """Number of sequences; None before the first call."""
    mask: Array | None = None
    """Boolean mask of the positions of each sequence; None if all are visible."""

    def used(self, caches: Sequence[Cache]) -> dict[str, Array]:
        """The parts in use."""
        return {cache.past.name: held(self.arrays[cache.past.name], cache, self.length) for cache in caches if self.arrays}

    def copied(self, caches: Sequence[Cache], rows: Sequence[int] | None) -> State:
        """A copy of the state; with these sequences, in this order, if `rows` is given."""
        parts = {name: array.copy() if rows is None else array[list(rows)] for name, array in self.used(caches).items()}
        mask = self.mask if rows is None or self.mask is None else self.mask[list(rows)]
        return State(parts, self.length, self.batch if rows is None else len(rows), mask)


def held(array: Array, cache: Cache, length: int) -> Array:
    """The positions of a cache that are in use after `length` tokens. An array of fewer positions holds the last ones already."""
    if not cache.grows or array.shape[cache.axis] <= cache.held(length):
        return array
    return positions(array, cache.axis, length - cache.held(length), length)


def positions(array: Array, axis: int, start: int, end: int) -> Array:
    """These positions of an array."""
    return array[(slice(None),) * axis + (slice(start, end),)]


def with_room(array: Array, axis: int, length: int, room: int) -> Array:
    """A copy with capacity `room`, whose last position in use is before `length`. The rest is zeros: a device without a kernel
    for such a cache multiplies it by zero, and zero times NaN is NaN. Pages that nothing was written to take no memory."""
    shape = list(array.shape)
    shape[axis] = room
    larger = aligned_zeros(shape, array.dtype, ALIGNMENT)
    positions(larger, axis, length - array.shape[axis], length)[...] = array
    return larger


def write_state(path: str | os.PathLike[str], state: State, caches: Sequence[Cache]) -> None:
    """Writes the parts in use as one numpy file."""
    counts = {LENGTH: np.array(state.length), BATCH: np.array(-1 if state.batch is None else state.batch)}
    if state.mask is not None:
        counts[MASK] = state.mask
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **counts, **state.used(caches))  # type: ignore[arg-type]


def read_state(path: str | os.PathLike[str], wanted: Mapping[str, tuple[np.dtype[Any], int]]) -> State:
    """The state in a file, which holds arrays of these element types and ranks, or none if it has no tokens.

    The file may come from anybody: nothing is unpickled, and no more is allocated than the file holds."""
    where = os.fspath(path)
    try:
        with open_regular(path) as file:
            arrays = dict(read_npz(file.read(), str(where)))
    except (OSError, ValueError) as error:
        raise AcceleratorError(f"no saved session can be read: {error}", where=str(where)) from None
    except ReadError as error:
        raise AcceleratorError(f"no saved session can be read: {error.cause}", where=error.where) from None
    length, batch, mask = _count(arrays.pop(LENGTH, None)), _count(arrays.pop(BATCH, None)), arrays.pop(MASK, None)
    fits = {name: (array.dtype, array.ndim) for name, array in arrays.items()} == dict(wanted)
    is_whole = fits and (mask is None or (mask.dtype, mask.shape) == (np.bool_, (batch, length)))
    is_empty = not arrays and mask is None and length == 0 and batch is not None and batch < 0
    if length is None or length < 0 or batch is None or not (is_whole or is_empty):
        remedy = f"It has to hold {', '.join(wanted)}, and how many positions of them count"
        raise AcceleratorError("the file is no session of this model", where=str(where), remedy=remedy)
    return State(arrays, length, None if batch < 0 else batch, mask)


def _count(array: Array | None) -> int | None:
    """An integer from a file; None if it is none."""
    return int(array) if array is not None and array.shape == () and array.dtype.kind in "iu" else None
