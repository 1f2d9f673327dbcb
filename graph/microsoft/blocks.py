"""Weights of a few bits, with a scale for each block."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from partita.graph.graph import Graph
from partita.graph.microsoft.writing import NoBody, NotYet, Writing
from partita.graph.node import NodeEntry
from partita.graph.types import Array, TensorType, Type

INTEGERS = {(4, False): ml_dtypes.uint4, (4, True): ml_dtypes.int4, (8, False): np.uint8, (8, True): np.int8}
"""The element types by bits, and by whether they are signed."""


def matmul(w: Writing) -> Graph:
    """MatMulNBits: a product by a matrix that is stored by columns, each cut into blocks of the depth."""
    depth, columns, bits, block = (int(w.attr(name, 0)) for name in ("K", "N", "bits", "block_size"))
    bits = bits or 4
    stored = unpacked(w.known(1).reshape(columns, -1), bits, w)[:, :depth]
    blocks = -(-depth // block)
    scales = w.known(2).reshape(columns, blocks)
    points = w.known(3) if w.has(3) else None
    if w.has(4):
        weight = _by_groups(w, stored, scales, points, bits)
    elif points is not None and points.dtype.kind not in "iu":
        weight = w.array(_computed(stored, scales, points.reshape(columns, blocks), np.arange(depth) // block), scales.dtype)
    elif points is None:
        weight = _dequantized(w, _centred(stored, bits), scales, None, block)
    else:
        zeros = unpacked(points.reshape(columns, -1), bits, w)[:, :blocks]
        weight = _dequantized(w, stored.astype(INTEGERS[bits, False]), scales, zeros.astype(INTEGERS[bits, False]), block)
    product = w.op("MatMul", w.input(0), w.op("Transpose", weight, perm=[1, 0]))
    return w.done(w.op("Add", product, w.input(5)) if w.has(5) else product)


def matmul_types(w: Writing) -> list[Type]:
    """The rows of the left matrix, by the columns of the right one."""
    left = w.type(0)
    if left.shape is None:
        raise NotYet("the rank of its input 0 is unknown", where=w.where)
    return [TensorType(left.dtype, (*left.shape[:-1], int(w.attr("N", 0))))]


def gather(w: Writing) -> Graph:
    """GatherBlockQuantized: rows of a table that is stored in blocks."""
    table, scales, block = w.known(0), w.known(2), int(w.attr("block_size", 128))
    axis, bits = int(w.attr("quantize_axis", 1)) % table.ndim, int(w.attr("bits", 4))
    points = w.known(3) if w.has(3) else None
    if table.dtype == np.uint8:
        if axis != table.ndim - 1:
            raise NoBody("its bytes are packed along another axis than its blocks", where=w.where)
        table = unpacked(table, bits, w).astype(INTEGERS[bits, False])
        points = None if points is None else unpacked(points, bits, w)[..., : scales.shape[-1]].astype(table.dtype)
        table = table if points is not None else _centred(table.astype(np.uint8), bits)
    given = [w.array(array, array.dtype) for array in (table, scales, *([] if points is None else [points]))]
    numbers = w.op("DequantizeLinear", *given, axis=axis, block_size=block)
    return w.done(w.op("Gather", numbers, w.input(1), axis=w.attr("gather_axis", 0)))


def unpacked(array: Array, bits: int, w: Writing) -> Array:
    """The numbers of so many bits in bytes, the lowest bits first, along the last axis."""
    if bits == 8:
        return array
    if bits != 4:
        raise NoBody(f"its weights have {bits} bits, and 4 and 8 are known", where=w.where)
    return np.stack([array & 15, array >> 4], -1).reshape(*array.shape[:-1], -1)


def _centred(stored: Array, bits: int) -> Array:
    """Unsigned numbers around the middle of their range, as signed ones."""
    return (stored.astype(np.int16) - (1 << (bits - 1))).astype(INTEGERS[bits, True])


def _dequantized(w: Writing, stored: Array, scales: Array, points: Array | None, block: int) -> NodeEntry:
    given = [w.array(array, array.dtype) for array in (stored, scales, *([] if points is None else [points]))]
    return w.op("DequantizeLinear", *given, axis=1, block_size=block)


def _by_groups(w: Writing, stored: Array, scales: Array, points: Array | None, bits: int) -> NodeEntry:
    """The matrix where an input says of each number of the depth in which block it is."""
    groups = w.known(4).reshape(-1)[: stored.shape[1]]
    if points is None:
        zeros = np.full(scales.shape, 1 << (bits - 1), np.float32)
    elif points.dtype.kind in "iu":
        zeros = unpacked(points.reshape(len(stored), -1), bits, w)[:, : scales.shape[1]]
    else:
        zeros = points.reshape(scales.shape)
    return w.array(_computed(stored, scales, zeros, groups), scales.dtype)


def _computed(stored: Array, scales: Array, points: Array, groups: Array) -> Array:
    """The numbers themselves."""
    wide = stored.astype(np.float32) - points.astype(np.float32)[:, groups]
    return wide * scales.astype(np.float32)[:, groups]
