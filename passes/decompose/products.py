"""Convolutions and integer products as products that devices have kernels for.

A convolution of a signal or volume whose strides equal its windows is a matrix product of patches by the filters. Video
transformers begin with one. Convolutions of images have kernels of their own.

All sums of ConvInteger and MatMulInteger are int32, as in ONNX, so that the results agree bit for bit.

Weights that do not fit int8 once their zero point is subtracted become signed bytes plus one offset per output channel. The
product by an offset is the offset times the sum of the elements read. A product of two values with computed zero points is the
product of their integers, minus the contributions of the zero points. A ConvInteger with computed weights, or of a signal or
volume, is computed in float64, which represents every sum exactly."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.body_builder import BodyBuilder, static_shape
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Array, TensorType

LARGEST_PRODUCT = 255 * 255
"""The largest product of two bytes once their zero points are subtracted."""

LARGEST_SUM = 2**31 - 1
"""The largest int32."""


def is_far(node: Node) -> bool:
    """True for an op whose constant weights do not fit int8 once their zero point is subtracted."""
    weight, point = _weight_of(node), _point_of(node)
    if weight is None or point is None:
        return False
    per_result = (-1, *[1] * (weight.ndim - 1)) if node.op == "ConvInteger" else (-1,)
    distances = weight.astype(np.int16) - point.astype(np.int16).reshape(() if point.size == 1 else per_result)
    return bool(distances.min() < -128 or distances.max() > 127)


def is_pair_of_unknown_points(node: Node) -> bool:
    """True for a MatMulInteger of two values with a computed zero point."""
    if node.op != "MatMulInteger" or node.domain:
        return False
    if any(entry is None or entry.node.value is not None for entry in node.inputs[:2]):
        return False
    points = [entry for entry in node.inputs[2:] if entry is not None]
    return any(entry.node.value is None for entry in points) and all(static_shape(entry) in ((), (1,)) for entry in points)


def integer_product(b: BodyBuilder) -> Graph | None:
    """The body of an integer product; None if it needs no decomposition, or none is possible."""
    if is_pair_of_unknown_points(b.node):
        return _pair(b)
    if is_far(b.node):
        return _far(b)
    return _doubles(b) if b.node.op == "ConvInteger" else None


def _far(b: BodyBuilder) -> Graph:
    """The product by the signed bytes, plus the offsets times the product by ones."""
    weight, point = _weight_of(b.node), _point_of(b.node)
    assert weight is not None and point is not None
    shift = 128 if weight.dtype == np.uint8 else 0
    per_channel = (-1, *[1] * (weight.ndim - 2)) if b.node.op == "ConvInteger" else (-1,)
    offsets = np.asarray(shift - point.astype(np.int32), np.int32).reshape(() if point.size == 1 else per_channel)
    signed = (weight.astype(np.int16) - shift).astype(np.int8)
    sums, ones = (
        b.op(str(b.node.op), b.input(0), array, b.optional(2), **b.node.attrs) for array in (signed, _ones(b.node, weight))
    )
    return b.done(b.Add(sums, b.Mul(ones, offsets)))


def _ones(node: Node, weight: Array) -> Array:
    """Weights of 1, which sum up a window: for one output channel, or for all of them if there are groups."""
    if node.op == "MatMulInteger":
        return np.ones((len(weight), 1), np.int8)
    results = 1 if int(node.attrs.get("group", 1)) == 1 else len(weight)
    return np.ones((results, *weight.shape[1:]), np.int8)


def _pair(b: BodyBuilder) -> Graph | None:
    """The product of the integers minus the contributions of the zero points; None if sizes are dynamic."""
    left, right, shapes = b.input(0), b.input(1), [static_shape(entry) for entry in b.node.inputs[:2]]
    if None in shapes:
        return None
    points = [b.Reshape(b.Cast(b.input(i), to="int32"), []) if b.has(i) else None for i in (2, 3)]
    result = b.MatMulInteger(left, right)
    # The product lacks the dimension of a vector operand.
    rows, columns = (len(shape or ()) > 1 for shape in shapes)
    sums = (right, -2 if columns else -1, points[0]), (left, -1, points[1])
    for value, axis, point in sums:
        if point is not None:
            total = b.along("ReduceSum", b.Cast(value, to="int32"), [axis], keepdims=int(rows and columns))
            result = b.Sub(result, b.Mul(total, point))
    if points[0] is not None and points[1] is not None:
        depth = (shapes[0] or (1,))[-1]
        result = b.Add(result, b.Mul(b.Mul(*points), b.constant(depth, np.int32)))
    return b.done(result)


def _doubles(b: BodyBuilder) -> Graph | None:
    """The convolution in float64; None if its sums might overflow int32 or sizes are dynamic."""
    shape, results = static_shape(b.node.inputs[1]), static_shape(b.node[0])
    if not shape or not results or math.prod(shape[1:]) * LARGEST_PRODUCT > LARGEST_SUM:
        return None
    points = [b.optional(i) for i in (2, 3)]
    if any(entry is not None and len(static_shape(entry) or ()) > 1 for entry in points):
        return None
    aligned = None if points[1] is None else b.Reshape(points[1], [-1, *[1] * (len(shape) - 1)])
    sides = [_as_double(b, value, point) for value, point in ((b.input(0), points[0]), (b.input(1), aligned))]
    return b.done(b.Cast(b.Conv(*sides, **b.node.attrs), to="int32"))


def _as_double(b: BodyBuilder, value: NodeEntry, point: NodeEntry | None) -> NodeEntry:
    """The integers in float64 with their zero point subtracted."""
    double = b.Cast(value, to="float64")
    return double if point is None else b.Sub(double, b.Cast(point, to="float64"))


def _weight_of(node: Node) -> Array | None:
    """The constant weights of an integer product whose left operand is not constant; None for any other node."""
    if node.op not in ops("integer_product") or node.domain or node.inputs[0] is None or node.inputs[0].node.value is not None:
        return None
    array = None if node.inputs[1] is None else node.inputs[1].node.value
    fits = array is not None and array.size and (array.ndim == 2 if node.op == "MatMulInteger" else array.ndim > 2)
    return array if fits else None


def _point_of(node: Node) -> Array | None:
    """The constant zero point of the weights: a scalar, or one number per output channel; None if it is computed."""
    entry, weight = (*node.inputs, None, None)[3], _weight_of(node)
    if entry is None or weight is None:
        return np.zeros((), np.int32)
    point, results = entry.node.value, weight.shape[0 if node.op == "ConvInteger" else 1]
    return point if point is not None and point.ndim < 2 and point.size in (1, results) else None


# -- convolutions of patches -----------------------------------------------------------------------------

FEW = 16
"""Signals with fewer windows than this have no convolution kernel."""


def is_of_patches(node: Node) -> bool:
    """True for a float32 convolution of a volume, or of a signal with few windows, whose strides equal its windows: with static
    sizes, constant weights, one group and no padding."""
    if node.op != "Conv" or node.domain or None in node.inputs[:2]:
        return False
    weight, data, result = node.reads[1].node.value, node.reads[0].type, node.output_types[0]
    if weight is None or not isinstance(data, TensorType) or not isinstance(result, TensorType):
        return False
    if not data.is_static or not result.is_static or data.dtype != "float32" or weight.ndim not in (3, 5):
        return False
    taps, attributes = list(weight.shape[2:]), node.attrs
    ones = [1] * len(taps)
    is_tiling = list(attributes.get("strides") or ones) == taps and list(attributes.get("dilations") or ones) == ones
    is_plain = not any(attributes.get("pads") or ()) and attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    windows = math.prod((static_shape(node[0]) or ())[2:])
    is_few = windows < FEW or len(taps) == 3
    return is_tiling and is_plain and attributes.get("group", 1) == 1 and math.prod(taps) > 1 and windows > 0 and is_few


def patches(b: BodyBuilder) -> Graph:
    """The body of a convolution for which `is_of_patches` is true."""
    outs, channels, *taps = b.value(1).shape
    batch, _, *windows = static_shape(b.node[0]) or ()
    rank, depth = len(taps), channels * math.prod(taps)
    cut = b.Slice(b.input(0), [0] * rank, [t * n for t, n in zip(taps, windows, strict=True)], range(2, rank + 2))
    apart = b.Reshape(cut, [batch, channels, *(size for pair in zip(windows, taps, strict=True) for size in pair)])
    order = [0, *range(2, 2 * rank + 2, 2), 1, *range(3, 2 * rank + 3, 2)]
    rows = b.Reshape(b.Transpose(apart, perm=order), [-1, depth])
    total = b.MatMul(rows, b.Transpose(b.Reshape(b.input(1), [outs, depth]), perm=[1, 0]))
    total = b.Add(total, b.input(2)) if b.has(2) else total
    back = b.Transpose(b.Reshape(total, [batch, math.prod(windows), outs]), perm=[0, 2, 1])
    return b.done(b.Reshape(back, [batch, outs, *windows]))
