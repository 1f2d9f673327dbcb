"""The caches of a decoder: inputs that are returned as outputs, extended or updated."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.layout import aligned_zeros
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import open_regular, replacing
from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.readers.arrays import read_npz
from partita.graph.types import TensorType

TO_THE_END = 2**31 - 1
"""An end of a Slice that is past all positions."""

_ONE = np.array([1])


@attrs.frozen(slots=True, eq=False)
class Cache:
    """An input that holds the results of earlier calls, and the output that replaces it in the next call."""

    past: Node
    """The input."""
    output: int
    """The number of the output."""
    earlier: NodeEntry
    """The earlier positions as the joining op reads them: the input, or a slice that takes all of it."""
    joined: NodeEntry
    """The earlier positions followed by the new ones, which attention reads."""
    axis: int
    """The dimension in which it grows, or is written to."""
    new: NodeEntry
    """The positions that this call adds."""
    grows: bool
    """True if the output has more positions than the input. Else it has the same length, and is written to."""
    is_ring: bool = False
    """True if it is a ring buffer: once full, it is overwritten from the front, and holds the last positions."""
    keeps: int | None = None
    """The maximum number of last positions that the output holds; None: all of them."""

    def held(self, length: int) -> int:
        """The number of positions that it holds after `length` tokens."""
        return length if self.keeps is None else min(length, self.keeps)

    @property
    def room(self) -> int | None:
        """The capacity in positions of a cache that does not grow."""
        kind = self.past.output_types[0]
        size = kind.shape[self.axis] if isinstance(kind, TensorType) and kind.shape and not self.grows else None
        return size if isinstance(size, int) else None


def find_caches(graph: Graph) -> list[Cache]:
    """All caches of a graph, in the order of its inputs. Linear.

    A cache is joined with new positions by Concat, is the past of an Attention, or is written to by TensorScatter. The output may
    be only the last of the joined positions, as transformers keeps them for a sliding window."""
    caches: dict[Node, Cache] = {}
    for number, entry in enumerate(graph.outputs):
        cache = _cache(number, entry)
        if cache is not None:
            caches.setdefault(cache.past, cache)
    return [caches[node] for node in graph.inputs if node in caches]


def _cache(number: int, entry: NodeEntry) -> Cache | None:
    kept = _last(entry)
    joined = entry if kept is None else kept[0]
    node = joined.node
    if node.domain or node.op not in _JOINS:
        return None
    past_at, new_at, axis = _JOINS[str(node.op)](node, joined.index)
    past = node.inputs[past_at] if 0 <= past_at < len(node.inputs) else None
    new = node.inputs[new_at] if 0 <= new_at < len(node.inputs) else None
    read = None if past is None else _last(past)
    source = read[0] if kept is not None and read is not None and read[1:] == kept[1:] else past
    if past is None or source is None or new is None or not source.node.is_variable:
        return None
    grows = node.op != "TensorScatter"
    if kept is not None and (kept[1] != axis or not grows):
        return None
    return Cache(source.node, number, past, joined, axis, new, grows, is_circular(node), None if kept is None else kept[2])


def _last(entry: NodeEntry) -> tuple[NodeEntry, int, int] | None:
    """The value, axis and number of positions if a Slice takes the last positions; None for another op."""
    node = entry.node
    if node.op != "Slice" or node.domain or not 4 <= len(node.inputs) <= 5 or node.inputs[0] is None:
        return None
    values = [None if given is None else given.node.value for given in node.inputs[1:]]
    if any(value is None or value.size != 1 for value in values):
        return None
    start, end, axis, step = (int(value.item()) for value in (*values, _ONE)[:4] if value is not None)
    rank = getattr(node.inputs[0].type, "rank", None)
    if start >= 0 or end < TO_THE_END or step != 1 or (axis < 0 and not rank):
        return None
    return node.inputs[0], axis % rank if rank else axis, -start


def is_circular(node: Node) -> bool:
    """True if it writes to a ring buffer."""
    return node.op == "TensorScatter" and node.attrs.get("mode", "linear") == "circular"


def _of_concat(node: Node, _: int) -> tuple[int, int, int]:
    rank = getattr(node.inputs[0].type, "rank", None) if node.inputs and node.inputs[0] is not None else None
    axis = int(node.attrs.get("axis", 0))
    known = len(node.inputs) == 2 and (axis >= 0 or rank is not None)
    return (0, 1, axis if axis >= 0 else axis + (rank or 0)) if known else (-1, -1, 0)


def _of_attention(_: Node, index: int) -> tuple[int, int, int]:
    return {1: (4, 1, 2), 2: (5, 2, 2)}.get(index, (-1, -1, 0))


def _of_scatter(node: Node, _: int) -> tuple[int, int, int]:
    axis = int(node.attrs.get("axis", -2))
    rank = getattr(node.inputs[0].type, "rank", None) if node.inputs[0] is not None else None
    return (0, 1, axis % rank) if rank else (-1, -1, 0)


_JOINS = {"Concat": _of_concat, "Attention": _of_attention, "TensorScatter": _of_scatter}
"""For each op that joins a cache with new positions: the numbers of both inputs, and the axis; -1 if it does not join."""


Array = np.ndarray[Any, Any]

ALIGNMENT = 64
"""Alignment of buffers in bytes."""

LENGTH, BATCH, MASK = "partita.length", "partita.batch", "partita.mask"
"""The entries of a file besides the arrays. The mask is absent if all tokens are visible."""


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
    """A copy with capacity for `room` positions, which end at `length`. The rest is zeros, since a device without a kernel for
    such a cache multiplies it by zero, and zero times NaN is NaN. Memory pages of the rest are allocated when written."""
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
    """The state in a file: arrays of these element types and ranks, or no arrays if there are no tokens.

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
        remedy = f"It has to hold {', '.join(wanted)}, and the number of positions in use"
        raise AcceleratorError("the file is not a session of this model", where=str(where), remedy=remedy)
    return State(arrays, length, None if batch < 0 else batch, mask)


def _count(array: Array | None) -> int | None:
    """An integer from a file; None if it is none."""
    return int(array) if array is not None and array.shape == () and array.dtype.kind in "iu" else None
