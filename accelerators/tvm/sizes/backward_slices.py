"""Slices with steps backward along dimensions of any size, as gathers: which positions are read the host says, once for each
size, by the same slice of all positions."""

from __future__ import annotations

from functools import partial

from accelerators.tvm.sizes.extent import Extent, Size
from accelerators.tvm.sizes.in_parts import whole
from graph.build import op, variable
from graph.graph import Graph
from graph.node import Node

LEAST_OPSET = 15
"""Since this version of ONNX a Shape says some of the sizes."""


def is_backward(node: Node, sizes: tuple[Size, ...], version: int) -> bool:
    """Does it step backward along a dimension that is not known?"""
    if node.op != "Slice" or node.domain or version < LEAST_OPSET or any(entry.node.value is None for entry in node.reads[1:]):
        return False
    return any(step < 0 and isinstance(sizes[axis], Extent) for _, _, axis, step in _spans(node, len(sizes)))


def goes_forward(node: Node) -> bool:
    """Is every step of the slice known, and forward? Then one that keeps all sizes changes nothing."""
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    return steps is None or (steps.node.value is not None and bool((steps.node.value > 0).all()))


def backward_parts(node: Node, rank: int, graph: Graph) -> Graph:
    """The body of one slice of so many dimensions: a gather for each that it names."""
    computed, given = partial(op, opset=graph.opsets.get("", 1)), node.inputs[0]
    assert given is not None
    x = variable("x", type=given.type)
    y = x
    for start, end, axis, step in _spans(node, rank):
        count = computed("Squeeze", computed("Shape", y, start=axis, end=axis + 1), whole([0]))
        every = computed("Range", whole(0), count, whole(1))
        seen = computed("Slice", every, *map(whole, ([start], [end], [0], [step])))
        y = computed("Gather", y, seen, axis=axis)
    return Graph([y], [x], "backward", graph.opsets)


def _spans(node: Node, rank: int) -> list[tuple[int, int, int, int]]:
    """Where the slice begins and ends along each dimension that it names, the dimension, and the step."""
    given = [[] if entry is None or entry.node.value is None else entry.node.value.tolist() for entry in node.inputs[1:]]
    starts, ends, axes, steps = [*given, [], []][:4]
    spans = zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts), strict=True)
    return [(start, end, axis % rank, step) for start, end, axis, step in spans]
