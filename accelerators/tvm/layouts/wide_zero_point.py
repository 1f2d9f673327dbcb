"""Rule for a convolution of bytes by weights that do not fit int8 once their zero point is subtracted, as uint8 may not.

Such a weight is a signed byte plus one number per output channel. So the sum is that of the signed bytes, plus this number times
the sum of the window's elements: exact in int32, and dequantized once."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.window import Window, window_attributes
from partita.accelerators.tvm.layouts.dividing import divide
from partita.accelerators.tvm.layouts.quantized_walk import Walk
from partita.accelerators.tvm.layouts.scales import Scaling, distances_of
from partita.accelerators.tvm.layouts.sums import sums_of
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.types import Array

FLOAT32 = 1
"""ONNX's number for the element type."""


def far_convolution(walk: Walk, node: Node, window: Window, source: NodeEntry, scaling: Scaling) -> bool | None:
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
    numbers = computed("Cast", whole, dtype="float32", to=FLOAT32)
    if added is None:
        factor = divide(walk, node, factor)
    scale = new(factor.reshape(-1) if factor.size > 1 else factor.reshape(()), f"{node.name}_scale")
    if added is not None:
        walk.sides.need_plain(added)
        numbers = computed("Mul", numbers, scale, dtype="float32")
        scale = walk.sides.low(walk.rewriter.value(added), f"{node.name}_bias")
    final = "Mul" if added is None else "Add"
    walk.sides.keep(node, node.evolve(op=final, inputs=(numbers, scale), attrs=frozen_attrs({})), True)
    return True
