"""Quantized values and the ops on them, in a domain of our own.

An element q of an integer tensor stands for (q - zero point) * scale. Ops keep the names of ONNX ops with the same meaning."""

from __future__ import annotations

import numpy as np

from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array

DOMAIN = "partita.quantized"
"""The domain of ops on quantized values."""

PAIR = "MatMul"
"""Product of two quantized values."""

BESIDE = {"Product": slice(1, 4), "Depthwise": slice(1, 4), PAIR: slice(2, 4)}
"""Ops that sum products of bytes, and which of their inputs are constants: weights, initial value of the sum, and scale of the
result; for a product of two values its scale and both zero points."""

NOTHING = slice(0)

STORED = frozenset("uint8 int8 uint16 int16".split())
"""Element types of quantized values."""

WEIGHT = "Weight"
"""DequantizeLinear of constants that is not folded yet, because a product by the weight may use its integers."""


def is_weight(entry: NodeEntry | None) -> bool:
    """True for a weight that is still stored as integers."""
    return entry is not None and entry.node.domain == DOMAIN and entry.node.op == WEIGHT


def is_pair_product(node: Node) -> bool:
    """True for our op that multiplies two quantized values."""
    return node.domain == DOMAIN and node.op == PAIR


def is_dequantize(node: Node) -> bool:
    """True for our op that converts quantized integers to floats."""
    return node.domain == DOMAIN and node.op == "DequantizeLinear"


def around_zero(array: Array, point: Array) -> Array | None:
    """The array minus the zero point as signed bytes; None if it does not fit."""
    if not array.size:
        return None
    if array.dtype == np.int8 and not point.any():
        return array
    centred = array.astype(np.int16) - point
    return centred.astype(np.int8) if centred.min() >= -128 and centred.max() <= 127 else None
