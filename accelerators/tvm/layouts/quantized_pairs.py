"""Rules for products of two quantized values: MatMul and Gemm between DequantizeLinear, and MatMulInteger."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN, is_weight
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.layouts.dividing import divide
from partita.accelerators.tvm.layouts.quantized_walk import Walk
from partita.accelerators.tvm.layouts.scales import DEEPEST, Scaling, is_lossless, scaling_of
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import TensorType

BYTES = ("uint8", "int8")

SIGN = 128
"""Difference between an int8 and the same value as an unsigned byte."""


def pair(walk: Walk, node: Node) -> bool | None:
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
    read = [_turned(walk, node, entry, name) for entry, name in ((left, "transA"), (right, "transB"))]
    scale = walk.sides.new_constant(np.asarray(factor).reshape(()), f"{node.name}_scale")
    product = _product(walk, node, (*read, scale), int(left_scaling.point), int(right_scaling.point))
    if bias is None:
        walk.sides.keep(node, product, False)
        return True
    walk.sides.need_plain(bias)
    first = walk.sides.named(product, f"{node.name}_product", node, False)
    walk.sides.keep(node, node.evolve(op="Add", inputs=(first[0], walk.rewriter.value(bias)), attrs=frozen_attrs({})), False)
    return True


def whole_pair(walk: Walk, node: Node) -> bool | None:
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
    walk.sides.keep(node, _product(walk, node, (*read, None), *points), False)
    return True


def _is_taken(walk: Walk, left: NodeEntry | None, right: NodeEntry | None) -> bool:
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


def _product(walk: Walk, node: Node, inputs: tuple[NodeEntry | None, ...], left: int, right: int) -> Node:
    """The product of two matrices; `inputs` are these and their scale. It reads the left zero point for unsigned bytes, the right
    one for signed bytes. The attributes tell which of them are not zero."""
    left, right = (left + SIGN if _is_signed(inputs[0]) else left), (right if _is_signed(inputs[1]) else right - SIGN)
    points = walk.sides.new_constant(np.array([left, right], np.int32), f"{node.name}_points") if left or right else None
    known = frozen_attrs({"left": int(left != 0), "right": int(right != 0)})
    read = (*inputs, points) if points is not None else inputs if inputs[-1] is not None else inputs[:2]
    return node.evolve(op="MatMul", domain=DOMAIN, inputs=read, attrs=known)


def _is_signed(entry: NodeEntry | None) -> bool:
    return entry is not None and isinstance(entry.type, TensorType) and entry.type.dtype == "int8"


def _either(walk: Walk, entry: NodeEntry | None) -> tuple[NodeEntry, Scaling] | None:
    """The bytes and the scaling of a value, or of a weight that is not int8 around zero."""
    if entry is None or not is_weight(entry):
        return walk.dequantized(entry)
    scaling, source = scaling_of(entry.node.evolve(op="DequantizeLinear", domain="")), entry.node.inputs[0]
    if scaling is None or scaling.axis is not None or source is None or not isinstance(source.type, TensorType):
        return None
    return (source, scaling) if source.type.dtype in BYTES else None


def _turned(walk: Walk, node: Node, entry: NodeEntry, name: str) -> NodeEntry:
    """A matrix of the product, transposed if the attribute `name` is set."""
    walk.sides.need_plain(entry)
    read, shape = walk.rewriter.value(entry), any_shape(entry) or ()
    if not node.attrs.get(name, 0):
        return read
    assert isinstance(entry.type, TensorType)
    return walk.helper(node, "Transpose", (read,), shape[::-1], {"perm": (1, 0)}, entry.type.dtype)
