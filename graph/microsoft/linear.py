"""Quantized ops as dequantizing, ONNX's op, and quantizing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry

FLOAT = 1
"""ONNX's number for float32."""


def quantize(b: BodyBuilder) -> Graph:
    """onnxruntime's QuantizeLinear, for more element types than ONNX's had."""
    point = b.input(2) if b.has(2) else b.constant(0, np.uint8)
    return b.done(b.QuantizeLinear(b.input(0), b.input(1), point, **b.attrs("axis")))


def dequantize(b: BodyBuilder) -> Graph:
    """onnxruntime's DequantizeLinear, for more element types than ONNX's had."""
    return b.done(b.DequantizeLinear(b.input(0), b.input(1), b.optional(2), **b.attrs("axis")))


def binary(b: BodyBuilder) -> Graph:
    """QLinearAdd and QLinearMul."""
    result = b.op(str(b.node.op).removeprefix("QLinear"), b.dequantized(0, 1, 2), b.dequantized(3, 4, 5))
    return b.done(b.quantized(result, 6, 7, 0))


def concat(b: BodyBuilder) -> Graph:
    """QLinearConcat: each part has a scale and a zero point of its own."""
    parts = [b.dequantized(i, i + 1, i + 2) for i in range(2, len(b.node.inputs), 3)]
    return b.done(b.quantized(b.Concat(*parts, axis=b.attr("axis", 0)), 0, 1, 2))


def sigmoid(b: BodyBuilder) -> Graph:
    """QLinearSigmoid."""
    return b.done(b.quantized(b.Sigmoid(b.dequantized(0, 1, 2)), 3, 4, 0))


def leaky_relu(b: BodyBuilder) -> Graph:
    """QLinearLeakyRelu."""
    return b.done(b.quantized(b.LeakyRelu(b.dequantized(0, 1, 2), alpha=b.attr("alpha", 0.01)), 3, 4, 0))


def softmax(b: BodyBuilder) -> Graph:
    """QLinearSoftmax; before opset 13 all dimensions from the axis on are flattened."""
    x, axis, rank = b.dequantized(0, 1, 2), b.attr("axis", -1), b.rank(0)
    if b.attr("opset", 13) >= 13 or axis in (-1, rank - 1):
        return b.done(b.quantized(b.Softmax(x, axis=axis), 3, 4, 0))
    flat = b.Softmax(b.Flatten(x, axis=axis), axis=-1)
    return b.done(b.quantized(b.Reshape(flat, b.Shape(x)), 3, 4, 0))


def average_pool(b: BodyBuilder) -> Graph:
    """QLinearAveragePool."""
    given = b.attrs("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    pooled = _channels_first(b, b.dequantized(0, 1, 2), lambda x: b.AveragePool(x, **given))
    return b.done(b.quantized(pooled, 3, 4, 0))


def global_average_pool(b: BodyBuilder) -> Graph:
    """QLinearGlobalAveragePool."""
    pooled = _channels_first(b, b.dequantized(0, 1, 2), b.GlobalAveragePool)
    return b.done(b.quantized(pooled, 3, 4, 0))


def _channels_first(b: BodyBuilder, x: NodeEntry, compute: Callable[[NodeEntry], NodeEntry]) -> NodeEntry:
    """The result of `compute` for an image that may be channels-last, in the image's layout."""
    rank = b.rank(0)
    if not b.attr("channels_last", 0):
        return compute(x)
    first = b.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])
    return b.Transpose(compute(first), perm=[0, *range(2, rank), 1])


def reduce_mean(b: BodyBuilder) -> Graph:
    """QLinearReduceMean."""
    axes, keepdims = b.attr("axes", None), b.attr("keepdims", 1)
    x = b.dequantized(0, 1, 2)
    if b.version < 18:
        mean = b.ReduceMean(x, keepdims=keepdims, **b.attrs("axes"))
    else:
        mean = b.ReduceMean(x, None if axes is None else list(axes), keepdims=keepdims)
    return b.done(b.quantized(mean, 3, 4, 0))


def where(b: BodyBuilder) -> Graph:
    """QLinearWhere."""
    return b.done(b.quantized(b.Where(b.input(0), b.dequantized(1, 2, 3), b.dequantized(4, 5, 6)), 7, 8, 1))


def gemm(b: BodyBuilder) -> Graph:
    """QGemm: its bias is int32 with the scale of the products; without an output scale the result is float32."""
    alpha, turned = float(b.attr("alpha", 1.0)), b.attr("transB", 0)
    given = [b.dequantized(0, 1, 2), b.dequantized(3, 4, 5, axis=0 if turned else 1)]
    if b.has(6):
        several = not b.is_scalar(4)
        axis = {"axis": b.rank(6) - 1} if several else {}
        bias = b.DequantizeLinear(b.input(6), _scale_of_products(b, several), **axis)
        given.append(bias if alpha == 1.0 else b.Mul(bias, b.constant(alpha, np.float32)))
    result = b.Gemm(*given, alpha=alpha, **b.attrs("transA", "transB"))
    return b.done(b.quantized(result, 7, 8, 0) if b.has(7) else result)


def _scale_of_products(b: BodyBuilder, several: bool) -> NodeEntry:
    """The product of both matrices' scales; a constant if both are."""
    if b.values[1] is None or b.values[4] is None:
        return b.Mul(b.scalar(1), b.input(4) if several else b.scalar(4))
    right = b.value(4) if several else b.value(4).reshape(())
    return b.constant(b.value(1).reshape(()) * right, np.float32)


def matmul_to_float(b: BodyBuilder) -> Graph:
    """MatMulIntegerToFloat: exact int32 sums, times both scales."""
    operands = b.input(0), b.input(1), b.optional(4), b.optional(5)
    return b.done(_scaled(b, operands, b.input(2), b.input(3), 6))


def dynamic_matmul(b: BodyBuilder) -> Graph:
    """DynamicQuantizeMatMul: the left matrix is quantized by its own range."""
    integers, scale, point = b.ops("DynamicQuantizeLinear", 3, b.input(0))
    return b.done(_scaled(b, (integers, b.input(1), point, b.optional(3)), scale, b.input(2), 4))


def _scaled(b: BodyBuilder, given: tuple[NodeEntry | None, ...], left: NodeEntry, right: NodeEntry, bias: int) -> NodeEntry:
    sums = b.Cast(b.MatMulInteger(*given), to=FLOAT)
    result = b.Mul(sums, b.Mul(left, right))
    return b.Add(result, b.input(bias)) if b.has(bias) else result

