"""Quantizing numbers and back, as ONNX rounds: to the nearest, of two as near the even one, then saturated.

Scales and zero points are operands that are broadcast: `layouts/quantizing.py` shapes them so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.accelerators.tvm.kernels.language import (
    Value,
    constant,
    element_named,
    exactly,
    float32,
    int32,
    maximum,
    minimum,
    uint8,
)
from partita.graph.node import Node, NodeEntry

HALFWAY = 1.5 * 2**23
"""What is added to it is rounded to a whole number, which the low bits of the sum are. It holds up to 2**22 either way."""


def quantized(node: Node, x: Sequence[Any]) -> Value:
    """QuantizeLinear: of a number, its scale and, if there is one, its zero point."""
    info, element = np.iinfo(node[0].type.dtype), element_named(node[0].type.dtype)  # type: ignore[union-attr]
    scaled: Value = x[0] if _single(node.inputs[1]) == 1 else x[0] / x[1]
    point = None if len(x) < 3 or x[2] is None else x[2].cast(int32)
    shift = constant(0.0, float32) if point is None else point.cast(float32)
    known = 0 if point is None else _single(node.inputs[2])
    low, high = (info.min - shift, info.max - shift) if known is None else (info.min - known, info.max - known)
    bits = (minimum(maximum(scaled, low), high) + HALFWAY).bits_as(int32)
    return (bits if point is None or known == 0 else bits + point).cast(element)


def dequantized(node: Node, x: Sequence[Any]) -> Value:
    """DequantizeLinear: of an integer, its scale and, if there is one, its zero point. What is added to it comes after it is
    rounded, as in ONNX: an instruction that multiplies and adds at once would move ties."""
    whole = x[0].cast(int32)
    centred = whole if len(x) < 3 or x[2] is None or _single(node.inputs[2]) == 0 else whole - x[2].cast(int32)
    return exactly(centred.cast(float32) * x[1])


def shifted(node: Node, x: Sequence[Any]) -> Value:
    """A signed byte as the unsigned one that is 128 more."""
    number: Value = x[0].bits_as(uint8) ^ 128
    return number


def _single(entry: NodeEntry | None) -> float | None:
    """The number, if it is one constant."""
    value = None if entry is None else entry.node.value
    return value.item() if value is not None and value.size == 1 else None


FORMULAS: Mapping[str, Any] = {"QuantizeLinear": quantized, "DequantizeLinear": dequantized, "Shift": shifted}
"""What each op of our domain of quantized values computes from the numbers at one position."""
