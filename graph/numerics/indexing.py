"""Ops that read or write at computed positions."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.numerics.registry import EVERYWHERE, absent, differs, fails, numerics, slow

_UPDATES = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@numerics("Gather", why=slow(EVERYWHERE))
def gather(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    """Slices of ``x`` along an axis."""
    return np.take(x, indices, axis=axis)


@numerics("GatherElements", why=fails("where the indices are smaller than the data on another axis"))
def gather_elements(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    """For each position in ``indices``, the element of the data there, with the coordinate on ``axis`` replaced by the
    index."""
    return x[_positions(indices, axis)]


@numerics("GatherND", why=fails("where indices have no coordinate"))
def gather_nd(x: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0) -> np.ndarray:
    """Slices of ``x`` at coordinates in its dimensions after the batch dimensions."""
    batch, rows, depth = x.shape[:batch_dims], indices.shape[batch_dims:-1], indices.shape[-1]
    if indices.shape[:batch_dims] != batch:
        raise ValueError(f"the data has batches of {list(batch)}, and the indices {list(indices.shape[:batch_dims])}")
    count, each = math.prod(batch), math.prod(rows)
    numbers = np.broadcast_to(np.arange(count)[:, None], (count, each))
    coordinates = np.moveaxis(indices.reshape(count, each, depth), -1, 0)
    return x.reshape(count, *x.shape[batch_dims:])[(numbers, *coordinates)].reshape(*batch, *rows, *x.shape[batch_dims + depth :])


@numerics("Scatter", widen=True, why=absent())
@numerics("ScatterElements", widen=True, why=slow("because it sets one element after the other in Python"))
def scatter_elements(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int, reduction: str = "none"
) -> np.ndarray:
    """A copy of ``x`` with elements replaced or combined; the inverse of `gather_elements`."""
    return _written(x, _positions(indices, axis), updates, reduction)


@numerics("ScatterND", widen=True, why=slow("because it sets one slice after the other in Python"))
def scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str = "none") -> np.ndarray:
    """A copy of ``x`` with slices replaced or combined; the inverse of `gather_nd`."""
    return _written(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _written(x: np.ndarray, positions: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> np.ndarray:
    y = x.copy()
    if reduction == "none":
        y[positions] = updates
    elif reduction in _UPDATES:
        _UPDATES[reduction].at(y, positions, updates)
    else:
        raise ValueError(f"its attribute reduction is {reduction!r}: none, {', '.join(_UPDATES)} are known")
    return y


def _positions(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Index arrays of every position of ``indices``, with the coordinate on one axis replaced by the index."""
    positions = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    positions[axis] = indices
    return tuple(positions)


@numerics("OneHot", why=fails("where the depth is an array of one element"))
def one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, *, axis: int) -> np.ndarray:
    """values = [off, on]; a negative index counts from the end, one out of range is off everywhere."""
    if values.shape != (2,):
        raise ValueError(f"the values are [off, on], and {list(values.shape)} were given")
    off, on = values
    count = int(depth.item())
    positions = np.expand_dims(np.where(indices < 0, indices + count, indices), axis)
    steps = [1] * positions.ndim
    steps[axis] = count
    return np.where(positions == np.arange(count).reshape(steps), on, off)


@numerics("ReverseSequence", why=differs("where a length is larger than the sequence, which it takes"))
def reverse_sequence(x: np.ndarray, lengths: np.ndarray, *, batch_axis: int, time_axis: int) -> np.ndarray:
    """Reverses the first `length` elements of each sequence of a batch."""
    steps = x.shape[time_axis]
    wrong = lengths[(lengths < 0) | (lengths > steps)]
    if wrong.size:
        raise ValueError(f"a length of {wrong[0]} is outside of sequences of {steps}")
    source = np.moveaxis(x, (batch_axis, time_axis), (0, 1))
    y = source.copy()
    for row, sequence, length in zip(y, source, lengths.tolist(), strict=True):
        row[:length] = sequence[:length][::-1]
    return np.ascontiguousarray(np.moveaxis(y, (0, 1), (batch_axis, time_axis)))


@numerics("Unique", why=differs("in the order of the indices"))
def unique(
    x: np.ndarray, *, axis: int | None = None, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct elements or slices, their first positions, the inverse mapping, and the number of occurrences."""
    y, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        y, first, counts = np.take(y, order, axis=axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return y, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
