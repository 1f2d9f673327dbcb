"""Ops on integers: numbers for the integers, ONNX's op, and integers again."""

from __future__ import annotations

import numpy as np

from partita.graph.graph import Graph
from partita.graph.microsoft.writing import Writing
from partita.graph.node import NodeEntry

FLOAT = 1
"""ONNX's number for float32."""


def quantize(w: Writing) -> Graph:
    """QuantizeLinear of more element types than ONNX's had."""
    point = w.input(2) if w.has(2) else w.array(0, np.uint8)
    return w.done(w.op("QuantizeLinear", w.input(0), w.input(1), point, **w.attrs("axis")))


def dequantize(w: Writing) -> Graph:
    """DequantizeLinear of more element types than ONNX's had."""
    return w.done(w.op("DequantizeLinear", w.input(0), w.input(1), w.input(2) if w.has(2) else None, **w.attrs("axis")))


def binary(w: Writing) -> Graph:
    """QLinearAdd and QLinearMul."""
    result = w.op(str(w.node.op).removeprefix("QLinear"), w.numbers(0, 1, 2), w.numbers(3, 4, 5))
    return w.done(w.integers(result, 6, 7, 0))


def concat(w: Writing) -> Graph:
    """QLinearConcat: each part has a scale and a zero point of its own."""
    parts = [w.numbers(i, i + 1, i + 2) for i in range(2, len(w.node.inputs), 3)]
    return w.done(w.integers(w.op("Concat", *parts, axis=w.attr("axis", 0)), 0, 1, 2))


def sigmoid(w: Writing) -> Graph:
    """QLinearSigmoid."""
    return w.done(w.integers(w.op("Sigmoid", w.numbers(0, 1, 2)), 3, 4, 0))


def leaky_relu(w: Writing) -> Graph:
    """QLinearLeakyRelu."""
    return w.done(w.integers(w.op("LeakyRelu", w.numbers(0, 1, 2), alpha=w.attr("alpha", 0.01)), 3, 4, 0))


def softmax(w: Writing) -> Graph:
    """QLinearSoftmax; before opset 13 all dimensions from the axis on are one."""
    x, axis, rank = w.numbers(0, 1, 2), w.attr("axis", -1), w.rank(0)
    if w.attr("opset", 13) >= 13 or axis in (-1, rank - 1):
        return w.done(w.integers(w.op("Softmax", x, axis=axis), 3, 4, 0))
    flat = w.op("Softmax", w.op("Flatten", x, axis=axis), axis=-1)
    return w.done(w.integers(w.op("Reshape", flat, w.op("Shape", x)), 3, 4, 0))


def average_pool(w: Writing) -> Graph:
    """QLinearAveragePool."""
    given = w.attrs("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    pooled = w.channels_first(w.numbers(0, 1, 2), w.rank(0), lambda x: w.op("AveragePool", x, **given))
    return w.done(w.integers(pooled, 3, 4, 0))


def global_average_pool(w: Writing) -> Graph:
    """QLinearGlobalAveragePool."""
    pooled = w.channels_first(w.numbers(0, 1, 2), w.rank(0), lambda x: w.op("GlobalAveragePool", x))
    return w.done(w.integers(pooled, 3, 4, 0))


def reduce_mean(w: Writing) -> Graph:
    """QLinearReduceMean."""
    axes, keepdims = w.attr("axes", None), w.attr("keepdims", 1)
    x = w.numbers(0, 1, 2)
    if w.version < 18:
        mean = w.op("ReduceMean", x, keepdims=keepdims, **w.attrs("axes"))
    else:
        mean = w.op("ReduceMean", x, None if axes is None else w.array(list(axes)), keepdims=keepdims)
    return w.done(w.integers(mean, 3, 4, 0))


def where(w: Writing) -> Graph:
    """QLinearWhere."""
    return w.done(w.integers(w.op("Where", w.input(0), w.numbers(1, 2, 3), w.numbers(4, 5, 6)), 7, 8, 1))


def gemm(w: Writing) -> Graph:
    """QGemm: its bias is in int32, with the scale of the products; without a scale of its own the result is numbers."""
    alpha, turned = float(w.attr("alpha", 1.0)), w.attr("transB", 0)
    a, b = w.numbers(0, 1, 2), w.numbers(3, 4, 5, axis=0 if turned else 1)
    given = [a, b]
    if w.has(6):
        several = not w.is_single(4)
        axis = {"axis": w.rank(6) - 1} if several else {}
        bias = w.op("DequantizeLinear", w.input(6), _scale_of_products(w, several), **axis)
        given.append(bias if alpha == 1.0 else w.op("Mul", bias, w.array(alpha, np.float32)))
    result = w.op("Gemm", *given, alpha=alpha, **w.attrs("transA", "transB"))
    return w.done(w.integers(result, 7, 8, 0) if w.has(7) else result)


def _scale_of_products(w: Writing, several: bool) -> NodeEntry:
    """Both matrices' scales multiplied: a constant where they are."""
    if w.values[1] is None or w.values[4] is None:
        return w.op("Mul", w.single(1), w.input(4) if several else w.single(4))
    right = w.known(4) if several else w.known(4).reshape(())
    return w.array(w.known(1).reshape(()) * right, np.float32)


def matmul_to_float(w: Writing) -> Graph:
    """MatMulIntegerToFloat: exact sums, times both scales."""
    points = [w.input(i) if w.has(i) else None for i in (4, 5)]
    return w.done(_scaled(w, (w.input(0), w.input(1), *points), w.input(2), w.input(3), 6))


def dynamic_matmul(w: Writing) -> Graph:
    """DynamicQuantizeMatMul: the left matrix is quantized as its numbers are."""
    integers, scale, point = w.ops("DynamicQuantizeLinear", 3, w.input(0))
    right = w.input(3) if w.has(3) else None
    return w.done(_scaled(w, (integers, w.input(1), point, right), scale, w.input(2), 4))


def _scaled(w: Writing, given: tuple[NodeEntry | None, ...], left: NodeEntry, right: NodeEntry, bias: int) -> NodeEntry:
    sums = w.op("Cast", w.op("MatMulInteger", *given), to=FLOAT)
    result = w.op("Mul", sums, w.op("Mul", left, right))
    return w.op("Add", result, w.input(bias)) if w.has(bias) else result

