"""Rules for products: a convolution or a matrix product by a quantized weight becomes a sum of products of bytes."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN, PAIR, is_weight
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import Window, make_window, window_attributes, window_of
from partita.accelerators.tvm.layouts.quantized.scales import (
    BYTE_TYPES,
    DEEPEST,
    Scaling,
    distances_of,
    is_lossless,
    scaling_of,
    sums_of,
    weight_of,
    whole_weight,
)
from partita.accelerators.tvm.layouts.quantized.walk import QuantizingWalk, divide
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import ELEMENT_TYPES, Array, TensorType

PIXEL = Window((1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0))
"""A window of one pixel."""

SIGN = 128
"""Difference between an int8 and the same value as an unsigned byte."""

WORD = 4
"""Largest number of channels of an image that is read in NCHW."""


def convolution(walk: QuantizingWalk, node: Node) -> bool | None:
    """Conv of NHWC bytes, or of an NCHW image of few channels."""
    given = walk.dequantized(node.inputs[0])
    weight = weight_of(node.inputs[1], 0)
    window = make_window(node, any_shape)
    if given is None or window is None:
        return None
    if weight is None:
        return far_convolution(walk, node, window, *given)
    (source, scaling), (array, scales) = given, weight
    shape, channels, groups = any_shape(node[0]) or (), (any_shape(node.inputs[0]) or ())[1], int(node.attrs.get("group", 1))
    alone = groups == channels and groups > 1
    plain = channels <= WORD and source not in walk.sides.beside and groups == 1
    read = walk.sides.unsigned(source, not plain)
    if alone and shape[1] > channels:
        read, channels = repeated(walk, node, read, shape[1] // channels), shape[1]
        groups = channels
    more = {"plain": int(plain), "channels": channels, "outs": shape[1], "group": groups, "batch": shape[0]}
    geometry = {**window_attributes(window), **more}
    return _product(walk, node, scaling, read, array, scales, geometry, True, "Depthwise" if alone else "Product")


def repeated(walk: QuantizingWalk, node: Node, read: NodeEntry, times: int) -> NodeEntry:
    """The NHWC bytes with each channel repeated `times` times in place."""
    *sizes, channels = any_shape(read) or ()
    apart, spread, whole = (*sizes, channels, 1), (*sizes, channels, times), (*sizes, channels * times)
    single = walk.helper(node, "Reshape", (read, *walk.sizes(node, apart)), apart, {}, "uint8")
    several = walk.helper(node, "Expand", (single, *walk.sizes(node, spread)), spread, {}, "uint8")
    return walk.helper(node, "Reshape", (several, *walk.sizes(node, whole)), whole, {}, "uint8")


def matrices(walk: QuantizingWalk, node: Node) -> bool | None:
    """Gemm and MatMul by a quantized matrix."""
    given, shape = walk.dequantized(node.inputs[0]), any_shape(node[0]) or ()
    turned = bool(node.attrs.get("transB", 0))
    weight = weight_of(node.inputs[1], 0 if turned else 1)
    factors = {float(node.attrs.get(name, 1.0)) for name in ("alpha", "beta")}
    if given is None or weight is None or factors != {1.0} or node.attrs.get("transA", 0) or not shape:
        return pair(walk, node)
    (source, scaling), (array, scales) = given, weight
    if array.ndim != 2:
        return None
    matrix = array if turned else array.T
    outs, depth = matrix.shape
    rows = math.prod(shape[:-1])
    walk.sides.need_plain(source)
    read = walk.sides.unsigned(source, False)
    return _product(walk, node, scaling, read, matrix.reshape(outs, depth, 1, 1), scales, _geometry(rows, outs, depth), False)


def whole_product(walk: QuantizingWalk, node: Node) -> bool | None:
    """MatMulInteger: the int32 sums. A zero point that is not constant is subtracted afterwards, times the column sums."""
    source, shape = node.inputs[0], any_shape(node[0]) or ()
    points = [None if entry is None else entry for entry in (*node.inputs[2:], None, None)[:2]]
    weight = whole_weight(node.inputs[1], points[1])
    if source is None or weight is None or not shape or source.node.value is not None:
        return whole_pair(walk, node)
    if points[0] is not None and any(size != 1 for size in any_shape(points[0]) or ()):
        return None
    walk.sides.need_plain(source)
    read, name = walk.sides.unsigned(source, False), node.name
    outs, columns = weight.shape[1], weight.sum(0, dtype=np.int64)
    known = 0 if points[0] is None else None if points[0].node.value is None else int(points[0].node.value.item())
    moved = SIGN if is_signed(source) else 0
    beginning = -((known or 0) + moved) * columns
    new = walk.sides.new_constant
    matrix = weight.T.reshape(outs, -1, 1, 1)
    inputs = (read, new(matrix, f"{name}_weight"), new(beginning.astype(np.int32), f"{name}_beginning"))
    geometry = {**_geometry(math.prod(shape[:-1]), *matrix.shape[:2]), "zero": 0}
    product = node.evolve(op="Product", domain=DOMAIN, inputs=inputs, attrs=frozen_attrs(geometry))
    if known is not None:
        walk.sides.keep(node, product, False)
        return True
    assert points[0] is not None
    first = walk.sides.named(product, f"{name}_product", node, False)
    point = whole_point(walk, node, points[0])
    sums = walk.helper(node, "Mul", (point, new(columns.astype(np.int32), f"{name}_columns")), (outs,), {})
    walk.sides.keep(node, node.evolve(op="Sub", inputs=(first[0], sums), attrs=frozen_attrs({})), False)
    return True


def whole_point(walk: QuantizingWalk, node: Node, point: NodeEntry) -> NodeEntry:
    """The zero point as an int32 scalar."""
    walk.sides.need_plain(point)
    to, shape = ELEMENT_TYPES["int32"].number, any_shape(point) or ()
    number = walk.helper(node, "Cast", (walk.rewriter.value(point),), shape, {"to": to})
    return walk.helper(node, "Reshape", (number, *walk.sizes(node, ())), (), {}) if shape else number


def _product(
    walk: QuantizingWalk, node: Node, scaling: Scaling, read: NodeEntry, weight: Array, scales: Array, geometry: dict[str, Any],
    is_beside: bool, op: str = "Product",
) -> bool | None:
    """The product of the integers; its bias is added in int32 if it is stored so, else in float32.

    None if a sum might overflow int32, or the product of the two scales float32."""
    name, point = node.name, scaling.unsigned_point
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    sums = sums_of(scaling, weight, scales, bias)
    if sums is None:
        return None
    beginning, factor, added = sums
    if added is None:
        factor = divide(walk, node, factor)
    new = walk.sides.new_constant
    inputs = (read, new(weight, f"{name}_weight"), new(beginning, f"{name}_beginning"), walk.factor(factor, f"{name}_scale"))
    quantized = node.evolve(op=op, domain=DOMAIN, inputs=inputs, attrs=frozen_attrs({**geometry, "zero": point}))
    if window_of(quantized).is_inside:  # No padding is read, and layers that differ in their zero point alone share a kernel.
        quantized = quantized.evolve(attrs=frozen_attrs({**geometry, "zero": 0}))
    if added is None:
        walk.sides.keep(node, quantized, is_beside)
        return True
    walk.sides.need_plain(added)
    first = walk.sides.named(quantized, f"{name}_product", node, is_beside)
    number = walk.sides.low(walk.rewriter.value(added), f"{name}_bias")
    walk.sides.keep(node, node.evolve(op="Add", inputs=(first[0], number), attrs=frozen_attrs({})), is_beside)
    return True


def _geometry(rows: int, outs: int, depth: int) -> dict[str, Any]:
    """The attributes of a product of matrices."""
    window = attrs.evolve(PIXEL, sizes=(rows, 1), out=(rows, 1))
    return {**window_attributes(window), "plain": 0, "channels": depth, "outs": outs, "group": 1, "batch": 1}


def far_convolution(walk: QuantizingWalk, node: Node, window: Window, source: NodeEntry, scaling: Scaling) -> bool | None:
    """Conv by the weights as signed bytes, and by ones; None if a sum might overflow int32, or the weight is not of bytes."""
    weight, bias = distances_of(node.inputs[1], 0), node.inputs[2] if len(node.inputs) > 2 else None
    known = None if weight is None else sums_of(scaling, *weight, bias)
    if weight is None or known is None:
        return None
    (beginning, factor, added), (distances, _) = known, weight
    outs, channels, groups = len(distances), (any_shape(node.inputs[0]) or ())[1], int(node.attrs.get("group", 1))
    is_alone = groups == channels == outs and groups > 1
    apart = distances.min((1, 2, 3)).astype(np.int32) + 128
    signed = (distances - apart[:, None, None, None]).astype(np.int8)
    ones = np.ones((1 if groups == 1 else outs, *distances.shape[1:]), np.int8)
    batch, _, *sizes = any_shape(node[0]) or ()
    geometry = {**window_attributes(window), "plain": 0, "channels": channels, "group": groups, "batch": batch,
                "zero": scaling.unsigned_point}
    read, new = walk.sides.unsigned(source, True), walk.sides.new_constant

    def computed(op: str, *inputs: NodeEntry, dtype: str = "int32", **attributes: Any) -> NodeEntry:
        return walk.helper(node, op, inputs, (batch, *sizes, outs), attributes, dtype)

    def product(weights: Array, begins: Array) -> NodeEntry:
        operands = read, new(weights, f"{node.name}_weight"), new(begins, f"{node.name}_beginning")
        attributes, op = {**geometry, "outs": len(weights)}, "Depthwise" if is_alone else "Product"
        return walk.helper(node, op, operands, (batch, *sizes, len(weights)), attributes, "int32", DOMAIN)

    sums, seen = product(signed, beginning), product(ones, np.zeros(len(ones), np.int32))
    whole = computed("Add", sums, computed("Mul", seen, new(apart, f"{node.name}_apart")))
    numbers = computed("Cast", whole, dtype="float32", to=ELEMENT_TYPES["float32"].number)
    if added is None:
        factor = divide(walk, node, factor)
    scale = walk.factor(factor, f"{node.name}_scale")
    if added is not None:
        walk.sides.need_plain(added)
        numbers = computed("Mul", numbers, scale, dtype="float32")
        scale = walk.sides.low(walk.rewriter.value(added), f"{node.name}_bias")
    final = "Mul" if added is None else "Add"
    walk.sides.keep(node, node.evolve(op=final, inputs=(numbers, scale), attrs=frozen_attrs({})), True)
    return True


def pair(walk: QuantizingWalk, node: Node) -> bool | None:
    """MatMul or Gemm: the product of the integers, times both scales; a bias is added in float32."""
    if len(node.inputs) < 2 or not _is_taken(walk, node.inputs[0], node.inputs[1]):
        return None
    given = walk.dequantized(node.inputs[0]), _either(walk, node.inputs[1])
    if given[0] is None or given[1] is None or node.attrs.get("beta", 1.0) != 1.0:
        return None
    (left, left_scaling), (right, right_scaling) = given[0], given[1]
    scales = np.multiply(left_scaling.scale, right_scaling.scale, dtype=np.float64)
    factor = np.asarray(scales * float(node.attrs.get("alpha", 1.0)))
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not is_lossless(left_scaling.scale, right_scaling.scale, scales, factor):
        return None
    factor = factor.astype(np.float32)
    if bias is None:
        factor = divide(walk, node, factor)
    read = [_transposed(walk, node, entry, name) for entry, name in ((left, "transA"), (right, "transB"))]
    scale = walk.sides.new_constant(np.asarray(factor).reshape(()), f"{node.name}_scale")
    product = _pair_product(walk, node, (*read, scale), int(left_scaling.point), int(right_scaling.point))
    if bias is None:
        walk.sides.keep(node, product, False)
        return True
    walk.sides.need_plain(bias)
    first = walk.sides.named(product, f"{node.name}_product", node, False)
    walk.sides.keep(node, node.evolve(op="Add", inputs=(first[0], walk.rewriter.value(bias)), attrs=frozen_attrs({})), False)
    return True


def whole_pair(walk: QuantizingWalk, node: Node) -> bool | None:
    """MatMulInteger: the int32 sums, if both zero points are constant."""
    if not _is_taken(walk, node.inputs[0], node.inputs[1]):
        return None
    points = [0, 0]
    for i, entry in enumerate(node.inputs[2:]):
        if entry is not None and (entry.node.value is None or entry.node.value.size != 1):
            return None
        points[i] = 0 if entry is None or entry.node.value is None else int(entry.node.value.item())
    read: list[NodeEntry | None] = []
    for entry in node.inputs[:2]:
        assert entry is not None
        walk.sides.need_plain(entry)
        read.append(walk.rewriter.value(entry))
    walk.sides.keep(node, _pair_product(walk, node, (*read, None), *points), False)
    return True


def _is_taken(walk: QuantizingWalk, left: NodeEntry | None, right: NodeEntry | None) -> bool:
    """True if both are (batches of) matrices that a kernel takes and the depth cannot overflow int32. Only GPUs have kernels for
    dynamic rows and columns.

    A constant of one element is excluded: kernels inline it."""
    if any(entry is not None and entry.node.value is not None and entry.node.value.size == 1 for entry in (left, right)):
        return False
    shapes = [any_shape(entry) for entry in (left, right)]
    if not all(shape is not None and len(shape) > 1 and 0 not in shape for shape in shapes):
        return False
    is_any = any(isinstance(size, Extent) for shape in shapes for size in (shape or ())[-2:])
    depth = (shapes[0] or (0,))[-1]
    return (walk.is_for_gpu or not is_any) and (isinstance(depth, Extent) or depth <= DEEPEST)


def _pair_product(walk: QuantizingWalk, node: Node, inputs: tuple[NodeEntry | None, ...], left: int, right: int) -> Node:
    """The product of two matrices; `inputs` are these and their scale. It reads the left zero point for unsigned bytes, the right
    one for signed bytes. The attributes tell which of them are not zero."""
    left, right = (left + SIGN if is_signed(inputs[0]) else left), (right if is_signed(inputs[1]) else right - SIGN)
    points = walk.sides.new_constant(np.array([left, right], np.int32), f"{node.name}_points") if left or right else None
    known = frozen_attrs({"left": int(left != 0), "right": int(right != 0)})
    read = (*inputs, points) if points is not None else inputs if inputs[-1] is not None else inputs[:2]
    return node.evolve(op=PAIR, domain=DOMAIN, inputs=read, attrs=known)


def is_signed(entry: NodeEntry | None) -> bool:
    """True for int8 values."""
    return entry is not None and isinstance(entry.type, TensorType) and entry.type.dtype == "int8"


def _either(walk: QuantizingWalk, entry: NodeEntry | None) -> tuple[NodeEntry, Scaling] | None:
    """The bytes and the scaling of a value, or of a weight that is not int8 around zero."""
    if entry is None or not is_weight(entry):
        return walk.dequantized(entry)
    scaling, source = scaling_of(entry.node.evolve(op="DequantizeLinear", domain="")), entry.node.inputs[0]
    if scaling is None or scaling.axis is not None or source is None or not isinstance(source.type, TensorType):
        return None
    return (source, scaling) if source.type.dtype in BYTE_TYPES else None


def _transposed(walk: QuantizingWalk, node: Node, entry: NodeEntry, name: str) -> NodeEntry:
    """A matrix of the product, transposed if the attribute `name` is set."""
    walk.sides.need_plain(entry)
    read, shape = walk.rewriter.value(entry), any_shape(entry) or ()
    if not node.attrs.get(name, 0):
        return read
    assert isinstance(entry.type, TensorType)
    return walk.helper(node, "Transpose", (read,), shape[::-1], {"perm": (1, 0)}, entry.type.dtype)
