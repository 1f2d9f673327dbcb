"""Padding by amounts that follow from sizes, as gathers: which positions are read the host says, once for each size, by the same
padding of all positions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.accelerators.tvm.sizes.in_parts import whole
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

LEAST_OPSET = 15
"""Since this version of ONNX a Shape says some of the sizes."""

PADDED = frozenset("float32 float64 int32 int64".split())
"""The element types whose padding has such parts."""

Amounts = dict[int, tuple[int, int]]
"""By dimension, where the numbers before and after it stand among the pads."""


def padded_by_sizes(node: Node, reading: Reading, version: int) -> Amounts:
    """The dimensions that are padded, where one of them is by an amount that follows from sizes; none for any other op."""
    if node.op != "Pad" or node.domain or version < LEAST_OPSET or node.inputs[0] is None:
        return {}
    pads: list[Size] = list(reading.vector(node.inputs[1]))
    if not any(isinstance(size, Extent) for size in pads) or reading.type_of(node.inputs[0]).dtype not in PADDED:
        return {}
    named = node.inputs[3] if len(node.inputs) > 3 else None
    rank, count = len(reading.sizes(node.inputs[0])), len(pads) // 2
    axes = range(rank) if named is None else reading.numbers(named)
    return {axis % rank: (i, count + i) for i, axis in enumerate(axes) if pads[i] != 0 or pads[count + i] != 0}


def padding_parts(node: Node, amounts: Amounts, graph: Graph) -> Graph:
    """The body of one: a gather for each dimension. Numbers count from one, so that a zero tells what is no position."""
    computed, mode = partial(op, opset=graph.opsets.get("", 1)), str(node.attrs.get("mode", "constant"))
    (x, pads, value), y = [_given(node, slot) for slot in range(3)], None
    assert x is not None and isinstance(x.type, TensorType) and x.type.rank is not None
    for axis, ends in amounts.items():
        end = computed("Squeeze", computed("Shape", y or x, start=axis, end=axis + 1), whole([0]))
        numbers = computed("Range", whole(1), computed("Add", end, whole(1)), whole(1))
        read = computed("Pad", numbers, computed("Gather", pads, whole(list(ends))), mode=mode)
        positions = computed("Max", computed("Sub", read, whole(1)), whole(0))
        y = computed("Gather", y or x, positions, axis=axis)
        if mode == "constant":
            inside = computed("Reshape", computed("Greater", read, whole(0)), whole([-1, *[1] * (x.type.rank - 1 - axis)]))
            y = computed("Where", inside, y, constant(np.zeros((), x.type.dtype)) if value is None else value)
    assert y is not None
    inputs = [entry.node for entry in (x, pads, value) if entry is not None and entry.node.value is None]
    return Graph([y], inputs, "padded", graph.opsets)


def _given(node: Node, slot: int) -> NodeEntry | None:
    """The body's own of an input: the constant, or an input of the body."""
    entry = node.inputs[slot] if slot < len(node.inputs) else None
    if entry is None:
        return None
    return constant(entry.node.value)[0] if entry.node.value is not None else variable(f"x{slot}", type=entry.type)[0]
