"""Rules for element-wise computations: quantizing, dequantizing, and element-wise ops around products of integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.layouts.quantized_walk import QuantizingWalk
from partita.accelerators.tvm.layouts.scales import scaling_of
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.passes.fold_batch_norm import is_inference, scale_and_shift


def rounding(walk: QuantizingWalk, node: Node) -> bool | None:
    """QuantizeLinear or DequantizeLinear, with its scale and zero point as broadcast operands."""
    scaling, source = scaling_of(node), node.inputs[0]
    assert scaling is not None and source is not None
    if source.node.value is not None:
        return None
    before = walk.rewriter.value(source).node if source not in walk.sides.beside else walk.sides.beside[source].entry.node
    if node.op == "QuantizeLinear" and scaling.is_plain and before.domain == DOMAIN and before.op == "DequantizeLinear":
        if scaling.is_like(walk.sides.scalings.get(before)):
            walk.stand_for(node, source, before.inputs[0])
            return True
    is_beside = source in walk.sides.beside
    shape = any_shape(source) or ()
    if is_beside and scaling.axis not in (None, 1):
        return None
    read = walk.sides.beside[source].entry if is_beside else walk.rewriter.value(source)
    tail = 0 if is_beside or scaling.axis is None else len(shape) - 1 - scaling.axis
    scale = np.float32(1.0) if node in walk.divided else scaling.scale
    operands = [walk.operand(node, np.asarray(array), tail) for array in (scale, scaling.point)]
    own = _own(walk, node, (read, *operands), is_beside)
    walk.sides.scalings[own] = scaling
    return True


def _own(walk: QuantizingWalk, node: Node, inputs: tuple[NodeEntry, ...], is_beside: bool) -> Node:
    """Keeps the op in our domain."""
    quantized = node.evolve(domain=DOMAIN, inputs=inputs, attrs=frozen_attrs({}))
    return walk.sides.keep(node, quantized, is_beside)


def elementwise(walk: QuantizingWalk, node: Node) -> bool | None:
    """An element-wise op of which an operand is NHWC, or a Clip of values that are divided already."""
    shape = any_shape(node[0])
    if node in walk.divided and node.op == "Clip" and node.inputs[0] not in walk.sides.beside:
        bounds = [_bound(walk, node, i) for i in range(1, len(node.inputs))]
        walk.sides.keep(node, node.evolve(inputs=(walk.rewriter.value(node.reads[0]), *bounds)), False)
        return True
    if shape is None or len(shape) != 4 or not any(entry in walk.sides.beside for entry in node.reads):
        return None
    ways = [None if entry is None else _operand(walk, entry, shape) for entry in node.inputs]
    if any(entry is not None and way is None for entry, way in zip(node.inputs, ways)):
        return None
    inputs = [None if way is None else way() for way in ways]
    if node in walk.divided and node.op == "Clip":
        inputs[1:] = [_bound(walk, node, i) for i in range(1, len(inputs))]
    walk.sides.keep(node, node.evolve(inputs=tuple(inputs)), True)
    return True


def normalized(walk: QuantizingWalk, node: Node) -> bool | None:
    """BatchNormalization as a Mul and an Add per channel."""
    source = node.inputs[0]
    if source not in walk.sides.beside or not is_inference(node, walk.graph):
        return None
    factors = scale_and_shift(node)
    if factors is None or not all(np.isfinite(part).all() for part in factors):
        return None
    scale, shift = (walk.sides.new_constant(part.astype(np.float32), f"{node.name}_part") for part in factors)
    shape = any_shape(walk.sides.beside[source].entry) or ()
    scaled = walk.helper(node, "Mul", (walk.sides.beside[source].entry, scale), shape, {}, "float32")
    walk.sides.keep(node, node.evolve(op="Add", inputs=(scaled, shift), attrs=frozen_attrs({})), True)
    return True


def looked_up(walk: QuantizingWalk, node: Node) -> bool | None:
    """A Table, whose bytes may be NHWC."""
    source, table = node.reads
    if source not in walk.sides.beside:
        return None
    walk.sides.keep(node, node.evolve(inputs=(walk.sides.beside[source].entry, walk.rewriter.value(table))), True)
    return True


def _bound(walk: QuantizingWalk, node: Node, i: int) -> NodeEntry | None:
    """A Clip's bound, divided by the scale that its values are divided by."""
    entry = node.inputs[i]
    if entry is None or entry.node.value is None:
        return None
    return walk.sides.new_constant(np.asarray(entry.node.value / np.float32(walk.divided[node])), f"{node.name}_bound")


def _operand(walk: QuantizingWalk, entry: NodeEntry, shape: tuple[int, ...]) -> Callable[[], NodeEntry] | None:
    """A function that returns the operand of an element-wise op in NHWC; None if it has no such form."""
    own, array = any_shape(entry), entry.node.value
    if own is None:
        return None
    if array is not None and array.size == 1:
        return lambda: walk.rewriter.value(entry)
    if array is not None:
        aligned = array.reshape((1,) * (4 - len(own)) + own)
        return lambda: walk.sides.new_constant(np.ascontiguousarray(aligned.transpose(0, 2, 3, 1)), f"{entry.name}_beside")
    if len(own) <= len(shape) and all(size == 1 for size in own):
        return lambda: _single(walk, entry)
    if own == shape or (len(own) == 4 and own == (1, shape[1], 1, 1)):
        return lambda: walk.sides.need_beside(entry)
    return None


def _single(walk: QuantizingWalk, entry: NodeEntry) -> NodeEntry:
    """A value of one element, unchanged."""
    walk.sides.need_plain(entry)
    return walk.rewriter.value(entry)
