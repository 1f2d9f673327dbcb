"""Quantized values and the ops on them, in a domain of our own.

A number q of an integer tensor stands for (q - zero point) * scale. Ops keep the names of those of ONNX that mean the same."""

from __future__ import annotations

import numpy as np

from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Array

DOMAIN = "partita.quantized"
"""The domain of ops on quantized values."""

BESIDE = {"Product": slice(1, 4), "Depthwise": slice(1, 4), "MatMul": slice(2, 4)}
"""Ops that sum up products of bytes, and which of their inputs are constants: weights, what sums begin with, and the scale of the
results; of a product of two values its scale and both zero points."""

NOTHING = slice(0)

ROUNDING = ops("quantizing")
"""Ops between numbers and integers: of a value, its scale and its zero point."""

STORED = frozenset("uint8 int8 uint16 int16".split())
"""The element types that are quantized to."""

WEIGHT = "Weight"
"""A DequantizeLinear of constants that is not computed yet: who multiplies by the weight may want its integers."""


def is_weight(entry: NodeEntry | None) -> bool:
    """Is it a weight that is still held as integers?"""
    return entry is not None and entry.node.domain == DOMAIN and entry.node.op == WEIGHT


def is_dequantize(node: Node) -> bool:
    """Is it our op that makes numbers of integers?"""
    return node.domain == DOMAIN and node.op == "DequantizeLinear"


def around_zero(array: Array, point: Array) -> Array | None:
    """The distances to the zero point, if they fit signed bytes."""
    if not array.size:
        return None
    if array.dtype == np.int8 and not point.any():
        return array
    centred = array.astype(np.int16) - point
    return centred.astype(np.int8) if centred.min() >= -128 and centred.max() <= 127 else None
