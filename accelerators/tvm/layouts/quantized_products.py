"""Rules for products: a convolution or a matrix product by a quantized weight becomes a sum of products of bytes."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import Window, make_window, window_attributes, window_of
from partita.accelerators.tvm.layouts.dividing import divide
from partita.accelerators.tvm.layouts.quantized_pairs import pair, whole_pair
from partita.accelerators.tvm.layouts.quantized_walk import Walk
from partita.accelerators.tvm.layouts.scales import (
    Scaling,
    weight_of,
    whole_weight,
)
from partita.accelerators.tvm.layouts.sums import sums_of
from partita.accelerators.tvm.layouts.wide_zero_point import far_convolution
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array, TensorType

PIXEL = Window((1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0))
"""A window of one pixel."""

INT32 = 6
"""ONNX's number for the element type."""

WORD = 4
"""Largest number of channels of an image that is read in NCHW."""


def convolution(walk: Walk, node: Node) -> bool | None:
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


def repeated(walk: Walk, node: Node, read: NodeEntry, times: int) -> NodeEntry:
    """The NHWC bytes with each channel repeated `times` times in place."""
    *sizes, channels = any_shape(read) or ()
    apart, spread, whole = (*sizes, channels, 1), (*sizes, channels, times), (*sizes, channels * times)
    single = walk.helper(node, "Reshape", (read, *walk.sizes(node, apart)), apart, {}, "uint8")
    several = walk.helper(node, "Expand", (single, *walk.sizes(node, spread)), spread, {}, "uint8")
    return walk.helper(node, "Reshape", (several, *walk.sizes(node, whole)), whole, {}, "uint8")


def matrices(walk: Walk, node: Node) -> bool | None:
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


def whole_product(walk: Walk, node: Node) -> bool | None:
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
    moved = 128 if isinstance(source.type, TensorType) and source.type.dtype == "int8" else 0
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
    walk.sides.need_plain(points[0])
    first = walk.sides.named(product, f"{name}_product", node, False)
    point = walk.helper(node, "Cast", (walk.rewriter.value(points[0]),), any_shape(points[0]) or (), {"to": INT32})
    if any_shape(points[0]):
        point = walk.helper(node, "Reshape", (point, new(np.zeros(0, np.int64), f"{name}_shape")), (), {})
    sums = walk.helper(node, "Mul", (point, new(columns.astype(np.int32), f"{name}_columns")), (outs,), {})
    walk.sides.keep(node, node.evolve(op="Sub", inputs=(first[0], sums), attrs=frozen_attrs({})), False)
    return True


def _product(
    walk: Walk,
    node: Node,
    scaling: Scaling,
    read: NodeEntry,
    weight: Array,
    scales: Array,
    geometry: dict[str, Any],
    is_beside: bool,
    op: str = "Product",
) -> bool | None:
    """The product of the integers; its bias is added in int32 if it is stored so, else in float32.

    None if a sum might overflow int32, or the product of the two scales float32.
    """
    name, point = node.name, scaling.unsigned_point
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    sums = sums_of(scaling, weight, scales, bias)
    if sums is None:
        return None
    beginning, factor, added = sums
    if added is None:
        factor = divide(walk, node, factor)
    new = walk.sides.new_constant
    inputs = (read, new(weight, f"{name}_weight"), new(beginning, f"{name}_beginning"),
              new(factor.reshape(-1) if factor.size > 1 else factor.reshape(()), f"{name}_scale"))
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
