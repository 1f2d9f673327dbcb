"""Weights of a few bits, with a scale for each block."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from partita.graph.body_builder import BodyBuilder, NoBody, NotYet
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.types import Array, TensorType, Type

INTEGERS = {(4, False): ml_dtypes.uint4, (4, True): ml_dtypes.int4, (8, False): np.uint8, (8, True): np.int8}
"""The element types by number of bits and signedness."""


def matmul(b: BodyBuilder) -> Graph:
    """MatMulNBits: a product by a matrix that is stored by columns, each split into blocks along the depth."""
    depth, columns, bits, block = (int(b.attr(name, 0)) for name in ("K", "N", "bits", "block_size"))
    bits = bits or 4
    stored = unpacked(b.value(1).reshape(columns, -1), bits, b)[:, :depth]
    blocks = -(-depth // block)
    scales = b.value(2).reshape(columns, blocks)
    points = b.value(3) if b.has(3) else None
    if b.has(4):
        weight = _by_groups(b, stored, scales, points, bits)
    elif points is not None and points.dtype.kind not in "iu":
        weight = b.constant(_computed(stored, scales, points.reshape(columns, blocks), np.arange(depth) // block), scales.dtype)
    elif points is None:
        weight = _dequantized(b, _centred(stored, bits), scales, None, block)
    else:
        zeros = unpacked(points.reshape(columns, -1), bits, b)[:, :blocks]
        weight = _dequantized(b, stored.astype(INTEGERS[bits, False]), scales, zeros.astype(INTEGERS[bits, False]), block)
    product = b.MatMul(b.input(0), b.Transpose(weight, perm=[1, 0]))
    return b.done(b.Add(product, b.input(5)) if b.has(5) else product)


def matmul_types(b: BodyBuilder) -> list[Type]:
    """The result's type: the rows of the left matrix by the columns of the right one."""
    left = b.type(0)
    if left.shape is None:
        raise NotYet("the rank of its input 0 is unknown", where=b.where)
    return [TensorType(left.dtype, (*left.shape[:-1], int(b.attr("N", 0))))]


def gather(b: BodyBuilder) -> Graph:
    """GatherBlockQuantized: rows of a table that is quantized in blocks."""
    table, scales, block = b.value(0), b.value(2), int(b.attr("block_size", 128))
    axis, bits = int(b.attr("quantize_axis", 1)) % table.ndim, int(b.attr("bits", 4))
    points = b.value(3) if b.has(3) else None
    if table.dtype == np.uint8:
        if axis != table.ndim - 1:
            raise NoBody("its bytes are packed along another axis than its blocks", where=b.where)
        table = unpacked(table, bits, b).astype(INTEGERS[bits, False])
        points = None if points is None else unpacked(points, bits, b)[..., : scales.shape[-1]].astype(table.dtype)
        table = table if points is not None else _centred(table.astype(np.uint8), bits)
    given = [b.constant(array, array.dtype) for array in (table, scales, *([] if points is None else [points]))]
    numbers = b.DequantizeLinear(*given, axis=axis, block_size=block)
    return b.done(b.Gather(numbers, b.input(1), axis=b.attr("gather_axis", 0)))


def unpacked(array: Array, bits: int, b: BodyBuilder) -> Array:
    """The integers that are packed into bytes along the last axis, lowest bits first."""
    if bits == 8:
        return array
    if bits != 4:
        raise NoBody(f"its weights have {bits} bits, and 4 and 8 are known", where=b.where)
    return np.stack([array & 15, array >> 4], -1).reshape(*array.shape[:-1], -1)


def _centred(stored: Array, bits: int) -> Array:
    """Unsigned integers as signed ones, shifted by half their range."""
    return (stored.astype(np.int16) - (1 << (bits - 1))).astype(INTEGERS[bits, True])


def _dequantized(b: BodyBuilder, stored: Array, scales: Array, points: Array | None, block: int) -> NodeEntry:
    given = [b.constant(array, array.dtype) for array in (stored, scales, *([] if points is None else [points]))]
    return b.DequantizeLinear(*given, axis=1, block_size=block)


def _by_groups(b: BodyBuilder, stored: Array, scales: Array, points: Array | None, bits: int) -> NodeEntry:
    """The dequantized matrix if an input holds the block of each index of the depth."""
    groups = b.value(4).reshape(-1)[: stored.shape[1]]
    if points is None:
        zeros = np.full(scales.shape, 1 << (bits - 1), np.float32)
    elif points.dtype.kind in "iu":
        zeros = unpacked(points.reshape(len(stored), -1), bits, b)[:, : scales.shape[1]]
    else:
        zeros = points.reshape(scales.shape)
    return b.constant(_computed(stored, scales, zeros, groups), scales.dtype)


def _computed(stored: Array, scales: Array, points: Array, groups: Array) -> Array:
    """The dequantized numbers."""
    wide = stored.astype(np.float32) - points.astype(np.float32)[:, groups]
    return wide * scales.astype(np.float32)[:, groups]
