"""Quantization and dequantization, rounded to nearest even as in ONNX, then saturated.

Scales and zero points are operands that are broadcast: `layouts/quantizing.py` gives them such shapes."""

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
"""Adding it to a float32 of at most 2**22 either way rounds to an integer, which is in the low bits of the sum."""


def quantized(node: Node, x: Sequence[Any]) -> Value:
    """QuantizeLinear of an element, its scale and, if there is one, its zero point."""
    info, element = np.iinfo(node[0].type.dtype), element_named(node[0].type.dtype)  # type: ignore[union-attr]
    scaled: Value = x[0] if _single(node.inputs[1]) == 1 else x[0] / x[1]
    point = None if len(x) < 3 or x[2] is None else x[2].cast(int32)
    shift = constant(0.0, float32) if point is None else point.cast(float32)
    known = 0 if point is None else _single(node.inputs[2])
    low, high = (info.min - shift, info.max - shift) if known is None else (info.min - known, info.max - known)
    bits = (minimum(maximum(scaled, low), high) + HALFWAY).bits_as(int32)
    return (bits if point is None or known == 0 else bits + point).cast(element)


def dequantized(node: Node, x: Sequence[Any]) -> Value:
    """DequantizeLinear of an integer, its scale and, if there is one, its zero point. The product is rounded before anything is
    added to it, as in ONNX: a fused multiply-add would move ties."""
    whole = x[0].cast(int32)
    centred = whole if len(x) < 3 or x[2] is None or _single(node.inputs[2]) == 0 else whole - x[2].cast(int32)
    return exactly(centred.cast(float32) * x[1])


def shifted(node: Node, x: Sequence[Any]) -> Value:
    """A signed byte plus 128, as an unsigned byte."""
    number: Value = x[0].bits_as(uint8) ^ 128
    return number


def _single(entry: NodeEntry | None) -> float | None:
    """The value of a scalar constant."""
    value = None if entry is None else entry.node.value
    return value.item() if value is not None and value.size == 1 else None


FORMULAS: Mapping[str, Any] = {"QuantizeLinear": quantized, "DequantizeLinear": dequantized, "Shift": shifted}
"""The formulas of the ops in our domain of quantized values."""
