"""QLinear ops as dequantizing, op and quantizing, and block scales as one scale for each position."""

from __future__ import annotations

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import HALVES, TensorType, numpy_dtype

ALONG_AN_AXIS = 13
"""The opset since which scales may be per channel."""

IN_BLOCKS = {"float32", "uint8", "int8", "uint16", "int16"}
"""The element types whose block scales are expanded."""


def linear(b: BodyBuilder) -> Graph | None:
    """QLinearConv and QLinearMatMul as dequantizing, op and quantizing. None if scales differ along another axis than the
    weight's output channels."""
    is_conv, scaling = b.node.op == "QLinearConv", (1, 2, 6, 7)
    if not all(b.has(i) and b.is_scalar(i) for i in scaling) or (b.has(8) and (b.values[1] is None or b.values[4] is None)):
        return None
    axis = None if b.is_scalar(4) and b.is_scalar(5) else 0 if is_conv else -1
    if axis is not None and (b.version < ALONG_AN_AXIS or len(b.type(4).shape or ()) != 1):
        return None
    if b.type(1).dtype in HALVES:  # A QLinearMatMul, whose sums would overflow.
        x, left, zero, y, right, other = (b.Cast(b.input(i), to="float32") for i in range(6))
        result = b.MatMul(b.Mul(b.Sub(x, zero), left), b.Mul(b.Sub(y, other), right))
        return b.done(b.QuantizeLinear(result, b.Cast(b.scalar(6), to="float32"), b.scalar(7)))
    operands = [b.dequantized(0, 1, 2), b.dequantized(3, 4, 5, axis)]
    if b.has(8):
        scale = b.value(1).reshape(()) * (b.value(4).reshape(()) if axis is None else b.value(4))
        along = {} if axis is None else {"axis": axis}
        operands.append(b.DequantizeLinear(b.input(8), b.constant(scale, np.float32), **along))
    result = b.Conv(*operands, **b.node.attrs) if is_conv else b.MatMul(*operands)
    return b.done(b.quantized(result, 6, 7, 0))


def has_blocks(node: Node) -> bool:
    """True for a QuantizeLinear or DequantizeLinear with one scale per block of a dimension."""
    return node.op in ops("quantizing") and not node.domain and int(node.attrs.get("block_size", 0)) > 0


def blocks(b: BodyBuilder) -> Graph | None:
    """QuantizeLinear and DequantizeLinear in blocks: each position gets its block's scale. None for types other than float32 and
    integers of 8 or 16 bits, and if the size of the dimension is dynamic."""
    data, result = b.type(0), b.node.output_types[0]
    if not isinstance(result, TensorType) or b.type(1).dtype != "float32" or data.shape is None:
        return None
    axis, block = int(b.attr("axis", 1)) % max(len(data.shape), 1), int(b.node.attrs["block_size"])
    size = data.shape[axis]
    if not isinstance(size, int) or {data.dtype, result.dtype} - IN_BLOCKS:
        return None

    def spread(i: int) -> NodeEntry:
        return b.Gather(b.input(i), np.arange(size) // block, axis=axis)

    scale, point = spread(1), b.Cast(spread(2), to="float32") if b.has(2) else None
    if b.node.op == "DequantizeLinear":
        number = b.Cast(b.input(0), to="float32")
        return b.done(b.Mul(number if point is None else b.Sub(number, point), scale))
    limits = np.iinfo(numpy_dtype(result.dtype))
    bounds = [b.constant(bound, np.float32) for bound in (limits.min, limits.max)]
    rounded = b.Round(b.Div(b.input(0), scale))
    return b.done(b.Cast(b.Clip(rounded if point is None else b.Add(rounded, point), *bounds), to=result.dtype))
