"""Quantized ops as dequantizing, ONNX's op, and quantizing; weights of a few bits with a scale for each block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partita.graph.body_builder import BodyBuilder, NoBody, NotYet
from partita.graph.graph import Graph
from partita.graph.microsoft.table import meaning
from partita.graph.node import NodeEntry
from partita.graph.types import Array, TensorType, Type, numpy_dtype

# -- ops between dequantizing and quantizing -------------------------------------------------------------


@meaning("QuantizeLinear", 21, "axis")
def quantize(b: BodyBuilder) -> Graph:
    """onnxruntime's QuantizeLinear, for more element types than ONNX's had."""
    point = b.input(2) if b.has(2) else b.constant(0, np.uint8)
    return b.done(b.QuantizeLinear(b.input(0), b.input(1), point, **b.attrs("axis")))


@meaning("DequantizeLinear", 21, "axis")
def dequantize(b: BodyBuilder) -> Graph:
    """onnxruntime's DequantizeLinear, for more element types than ONNX's had."""
    return b.done(b.DequantizeLinear(b.input(0), b.input(1), b.optional(2), **b.attrs("axis")))


Compute = Callable[..., NodeEntry]
"""Computes a result from the builder and some operands."""


def _q_linear(op: str, attributes: str = "", operands: tuple[int, ...] = (0,)) -> Callable[[Compute], Compute]:
    """Adds the row of an op that the decorated function computes of dequantized operands. A scale and a zero point follow each
    operand, and are followed by those of the result."""

    def add(compute: Compute) -> Compute:
        def body(b: BodyBuilder) -> Graph:
            result = compute(b, *[b.dequantized(i, i + 1, i + 2) for i in operands])
            return b.done(b.quantized(result, operands[-1] + 3, operands[-1] + 4, operands[0]))

        meaning(op, 13, attributes)(body)
        return compute

    return add


_q_linear("QLinearAdd", operands=(0, 3))(lambda b, x, y: b.Add(x, y))
_q_linear("QLinearMul", operands=(0, 3))(lambda b, x, y: b.Mul(x, y))
_q_linear("QLinearWhere", operands=(1, 4))(lambda b, x, y: b.Where(b.input(0), x, y))
_q_linear("QLinearSigmoid")(lambda b, x: b.Sigmoid(x))
_q_linear("QLinearLeakyRelu", "alpha")(lambda b, x: b.LeakyRelu(x, alpha=b.attr("alpha", 0.01)))
_q_linear("QLinearGlobalAveragePool", "channels_last")(lambda b, x: _channels_first(b, x, b.GlobalAveragePool))


@_q_linear("QLinearAveragePool", "auto_pad ceil_mode channels_last count_include_pad kernel_shape pads strides")
def average_pool(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    window = b.attrs("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return _channels_first(b, x, lambda image: b.AveragePool(image, **window))


def _channels_first(b: BodyBuilder, x: NodeEntry, compute: Callable[[NodeEntry], NodeEntry]) -> NodeEntry:
    """The result of `compute` for an image that may be channels-last, in the image's layout."""
    rank = b.rank(0)
    if not b.attr("channels_last", 0):
        return compute(x)
    first = b.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])
    return b.Transpose(compute(first), perm=[0, *range(2, rank), 1])


@_q_linear("QLinearSoftmax", "axis opset")
def softmax(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    """Before opset 13 all dimensions from the axis on are flattened."""
    axis, rank = b.attr("axis", -1), b.rank(0)
    if b.attr("opset", 13) >= 13 or axis in (-1, rank - 1):
        return b.Softmax(x, axis=axis)
    return b.Reshape(b.Softmax(b.Flatten(x, axis=axis), axis=-1), b.Shape(x))


@_q_linear("QLinearReduceMean", "axes keepdims")
def reduce_mean(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    axes, keepdims = b.attr("axes", None), b.attr("keepdims", 1)
    return b.ReduceMean(x, keepdims=keepdims) if axes is None else b.along("ReduceMean", x, axes, keepdims=keepdims)


@meaning("QLinearConcat", 13, "axis")
def concat(b: BodyBuilder) -> Graph:
    """Each part has a scale and a zero point of its own."""
    parts = [b.dequantized(i, i + 1, i + 2) for i in range(2, len(b.node.inputs), 3)]
    return b.done(b.quantized(b.Concat(*parts, axis=b.attr("axis", 0)), 0, 1, 2))


# -- products --------------------------------------------------------------------------------------------


@meaning("QGemm", 13, "alpha transA transB")
def gemm(b: BodyBuilder) -> Graph:
    """QGemm: its bias is int32 with the scale of the products; without an output scale the result is float32."""
    alpha, is_transposed = float(b.attr("alpha", 1.0)), b.attr("transB", 0)
    operands = [b.dequantized(0, 1, 2), b.dequantized(3, 4, 5, axis=0 if is_transposed else 1)]
    if b.has(6):
        several = not b.is_scalar(4)
        axis = {"axis": b.rank(6) - 1} if several else {}
        bias = b.DequantizeLinear(b.input(6), _scale_of_products(b, several), **axis)
        operands.append(bias if alpha == 1.0 else b.Mul(bias, b.constant(alpha, np.float32)))
    result = b.Gemm(*operands, alpha=alpha, **b.attrs("transA", "transB"))
    return b.done(b.quantized(result, 7, 8, 0) if b.has(7) else result)


def _scale_of_products(b: BodyBuilder, several: bool) -> NodeEntry:
    """The product of both matrices' scales; a constant if both are."""
    if b.values[1] is None or b.values[4] is None:
        return b.Mul(b.scalar(1), b.input(4) if several else b.scalar(4))
    right = b.value(4) if several else b.value(4).reshape(())
    return b.constant(b.value(1).reshape(()) * right, np.float32)


@meaning("MatMulIntegerToFloat", 13)
def matmul_to_float(b: BodyBuilder) -> Graph:
    """MatMulIntegerToFloat: exact int32 sums, times both scales."""
    operands = b.input(0), b.input(1), b.optional(4), b.optional(5)
    return b.done(_scaled(b, operands, b.input(2), b.input(3), 6))


@meaning("DynamicQuantizeMatMul", 13)
def dynamic_matmul(b: BodyBuilder) -> Graph:
    """DynamicQuantizeMatMul: the left matrix is quantized by its own range."""
    integers, scale, point = b.ops("DynamicQuantizeLinear", 3, b.input(0))
    return b.done(_scaled(b, (integers, b.input(1), point, b.optional(3)), scale, b.input(2), 4))


def _scaled(b: BodyBuilder, operands: tuple[NodeEntry | None, ...], left: NodeEntry, right: NodeEntry, bias: int) -> NodeEntry:
    sums = b.Cast(b.MatMulInteger(*operands), to="float32")
    result = b.Mul(sums, b.Mul(left, right))
    return b.Add(result, b.input(bias)) if b.has(bias) else result


# -- an LSTM whose weights are stored as bytes -----------------------------------------------------------

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
"""Number of directions of an LSTM, by the attribute's value."""

LSTM = "activation_alpha activation_beta activations clip direction hidden_size input_forget"


@meaning("DynamicQuantizeLSTM", 14, LSTM)
def lstm(b: BodyBuilder) -> Graph:
    """DynamicQuantizeLSTM as ONNX's LSTM with dequantized weights.

    The input and the state, which onnxruntime quantizes at each step, stay in float."""
    rest = [b.optional(i) for i in range(3, 8)]
    return b.done(*b.ops("LSTM", 3, b.input(0), _weights(b, 1, 8), _weights(b, 2, 10), *rest, **b.attrs(*LSTM.split())))


def _weights(b: BodyBuilder, i: int, scale: int) -> NodeEntry:
    """The dequantized weights in the layout of ONNX's LSTM, with the gates before the depth."""
    stored, directions = b.value(i), DIRECTIONS.get(str(b.attr("direction", "forward")), 0)
    if stored.ndim != 3 or len(stored) != directions:
        raise NoBody(f"its input {i} does not have a matrix for each direction", where=b.where)
    scales, points = (_for_each_gate(b, k, stored) for k in (scale, scale + 1))
    numbers = (stored.astype(np.float32) - points.astype(np.float32)) * scales
    return b.constant(numbers.transpose(0, 2, 1), np.float32)


def _for_each_gate(b: BodyBuilder, i: int, stored: Array) -> Array:
    """Scales or zero points, per matrix or per column, in a shape that broadcasts to the matrices."""
    array, directions = b.value(i), len(stored)
    if array.size not in (directions, directions * stored.shape[2]):
        raise NoBody(f"its input {i} is neither one number for each direction nor one for each gate", where=b.where)
    return array.reshape(directions, 1, -1)


# -- weights in blocks -----------------------------------------------------------------------------------


def matmul_types(b: BodyBuilder) -> list[Type]:
    """The result's type: the rows of the left matrix by the columns of the right one."""
    left = b.type(0)
    if left.shape is None:
        raise NotYet("the rank of its input 0 is unknown", where=b.where)
    return [TensorType(left.dtype, (*left.shape[:-1], int(b.attr("N", 0))))]


@meaning("MatMulNBits", 21, "K N bits block_size accuracy_level weight_prepacked", matmul_types)
def matmul(b: BodyBuilder) -> Graph:
    """MatMulNBits: a product by a matrix that is stored by columns, each split into blocks along the depth."""
    depth, columns, bits, block = (int(b.attr(name, 0)) for name in ("K", "N", "bits", "block_size"))
    bits, blocks = bits or 4, -(-depth // max(block, 1))
    wrong = NoBody(f"K {depth}, N {columns} and blocks of {block} do not go with its weights and scales", where=b.where)
    if min(depth, columns, block) < 1 or b.value(2).size != columns * blocks or b.value(1).size % columns:
        raise wrong
    stored = _unpacked(b.value(1).reshape(columns, -1), bits, b)
    if stored.shape[1] != blocks * block:
        raise wrong
    stored = stored[:, :depth]
    scales = b.value(2).reshape(columns, blocks)
    points = b.value(3) if b.has(3) else None
    if b.has(4):
        weight = _by_groups(b, stored, scales, points, bits)
    elif points is not None and points.dtype.kind not in "iu":
        weight = b.constant(_computed(stored, scales, points.reshape(columns, blocks), np.arange(depth) // block), scales.dtype)
    elif points is None:
        weight = _dequantized(b, _centred(stored, bits), scales, None, axis=1, block=block)
    else:
        zeros = _points(b, points, (columns, blocks), bits).astype(numpy_dtype(f"uint{bits}"))
        weight = _dequantized(b, stored.astype(numpy_dtype(f"uint{bits}")), scales, zeros, axis=1, block=block)
    product = b.MatMul(b.input(0), b.Transpose(weight, perm=[1, 0]))
    return b.done(b.Add(product, b.input(5)) if b.has(5) else product)


@meaning("GatherBlockQuantized", 21, "bits block_size gather_axis quantize_axis")
def gather(b: BodyBuilder) -> Graph:
    """GatherBlockQuantized: rows of a table that is quantized in blocks."""
    table, scales, block = b.value(0), b.value(2), int(b.attr("block_size", 128))
    axis, bits = int(b.attr("quantize_axis", 1)), int(b.attr("bits", 4))
    if not -table.ndim <= axis < table.ndim:
        raise NoBody(f"its quantize_axis is {axis}, and the table has {table.ndim} dimensions", where=b.where)
    axis %= table.ndim
    points = b.value(3) if b.has(3) else None
    if table.dtype == np.uint8:
        if axis != table.ndim - 1:
            raise NoBody("its bytes are packed along another axis than its blocks", where=b.where)
        table = _unpacked(table, bits, b).astype(numpy_dtype(f"uint{bits}"))
        points = None if points is None else _unpacked(points, bits, b)[..., : scales.shape[-1]].astype(table.dtype)
        table = table if points is not None else _centred(table.astype(np.uint8), bits)
    return b.done(b.Gather(_dequantized(b, table, scales, points, axis, block), b.input(1), axis=b.attr("gather_axis", 0)))


def _dequantized(b: BodyBuilder, stored: Array, scales: Array, points: Array | None, axis: int, block: int) -> NodeEntry:
    arrays = [b.constant(array, array.dtype) for array in (stored, scales, *([] if points is None else [points]))]
    return b.DequantizeLinear(*arrays, axis=axis, block_size=block)


def _unpacked(array: Array, bits: int, b: BodyBuilder) -> Array:
    """The integers that are packed into bytes along the last axis, lowest bits first."""
    if array.dtype != np.uint8:
        raise NoBody(f"its packed integers are {array.dtype}, and uint8 is known", where=b.where)
    if bits == 8:
        return array
    if bits != 4:
        raise NoBody(f"its weights have {bits} bits; 4 and 8 are supported", where=b.where)
    return np.stack([array & 15, array >> 4], -1).reshape(*array.shape[:-1], -1)


def _centred(stored: Array, bits: int) -> Array:
    """Unsigned integers as signed ones, shifted by half their range."""
    return (stored.astype(np.int16) - (1 << (bits - 1))).astype(numpy_dtype(f"int{bits}"))


def _by_groups(b: BodyBuilder, stored: Array, scales: Array, points: Array | None, bits: int) -> NodeEntry:
    """The dequantized matrix if an input holds the block of each index of the depth."""
    groups = b.value(4).reshape(-1)[: stored.shape[1]]
    if len(groups) < stored.shape[1] or not 0 <= groups.min() <= groups.max() < scales.shape[1]:
        raise NoBody(f"its input 4 does not have one of {scales.shape[1]} blocks for each index of the depth", where=b.where)
    if points is None:
        zeros = np.full(scales.shape, 1 << (bits - 1), np.float32)
    elif points.dtype.kind in "iu":
        zeros = _points(b, points, scales.shape, bits)
    else:
        zeros = points.reshape(scales.shape)
    return b.constant(_computed(stored, scales, zeros, groups), scales.dtype)


def _points(b: BodyBuilder, packed: Array, shape: tuple[int, ...], bits: int) -> Array:
    """The zero points of each column's blocks, which begin at a whole byte."""
    rows, blocks = shape
    points = _unpacked(packed.reshape(rows, -1), bits, b)
    if not blocks <= points.shape[1] < blocks + 8 // bits:
        raise NoBody(f"its zero points are not one for each of {blocks} blocks", where=b.where)
    return points[:, :blocks]


def _computed(stored: Array, scales: Array, points: Array, groups: Array) -> Array:
    """The dequantized numbers."""
    wide = stored.astype(np.float32) - points.astype(np.float32)[:, groups]
    return wide * scales.astype(np.float32)[:, groups]
