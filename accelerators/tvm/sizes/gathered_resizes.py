"""Resizes whose positions are known only when the model is called, as sums of what the host says is read.

Whatever its mode, a resize is linear along each dimension: each result is a sum of few positions, times their shares. The host
works these out once for each size, by ONNX's own op on a few vectors, and the model gathers them. A dimension that keeps its size
is left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from accelerators.tvm.sizes.in_parts import whole
from graph.build import constant, op, variable
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.types import TensorType

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""For each mode, how many positions along a dimension a result is made of."""

FLOAT32, INT64 = 1, 7
"""ONNX's numbers for element types."""

LEAST_OPSET = 18
"""Since this version of ONNX all ops mean what they are used for here."""


def can_gather(node: Node, version: int) -> bool:
    """Is it a resize of all dimensions whose results are sums of few positions?"""
    attributes, (_, _, scales, sizes) = node.attrs, (*node.inputs, None, None, None, None)[:4]
    if node.op != "Resize" or node.domain or version < LEAST_OPSET or (scales is None) == (sizes is None):
        return False
    is_plain = attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch" and not attributes.get("antialias", 0)
    is_cropped = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    is_known = scales is None or scales.node.value is not None
    kind = node.output_types[0]
    is_float = isinstance(kind, TensorType) and kind.dtype == "float32"
    return is_plain and not is_cropped and is_known and is_float and attributes.get("axes") is None


def resize_parts(node: Node, axes: Sequence[int], graph: Graph) -> Graph:
    """The body of one resize; its inputs are those of the node's that are no constants."""
    version = graph.opsets.get("", 1)

    def given(i: int) -> NodeEntry | None:
        entry = node.inputs[i] if i < len(node.inputs) else None
        if entry is None:
            return None
        return constant(entry.node.value)[0] if entry.node.value is not None else variable(f"x{i}", type=entry.type)[0]

    x, scales, sizes = given(0), given(2), given(3)
    assert x is not None and isinstance(x.type, TensorType) and x.type.rank is not None
    y, taps = x, TAPS[str(node.attrs.get("mode", "nearest"))]
    for axis in axes:
        resized = _resized_combs(node, x, axis, scales, sizes, version)
        y = _mixed(y, *_taps(resized, x, axis, taps, version), axis, x.type.rank, taps, version)
    inputs = [entry.node for entry in (x, sizes) if entry is not None and entry.node.value is None]
    return Graph([y], inputs, "gathered", graph.opsets)


def _resized_combs(
    node: Node, x: NodeEntry, axis: int, scales: NodeEntry | None, sizes: NodeEntry | None, version: int
) -> Node:
    """[positions made, 2 * taps] of one dimension: what the resize makes of combs, each of which has a one at every so many
    positions, and of the same combs with the positions' numbers in the place of the ones. The taps of a result are neighbours, so
    that each of them meets a comb of its own."""
    computed, taps = partial(op, opset=version), TAPS[str(node.attrs.get("mode", "nearest"))]
    count = computed("Squeeze", computed("Shape", x, start=axis, end=axis + 1), whole([0]))
    numbers = computed("Unsqueeze", computed("Range", whole(0), count, whole(1)), whole([1]))
    own = computed("Equal", computed("Mod", numbers, whole([taps])), whole(list(range(taps))))
    combs = computed("Cast", own, to=FLOAT32)
    both = computed("Concat", combs, computed("Mul", combs, computed("Cast", numbers, to=FLOAT32)), axis=1)
    if sizes is not None:
        wanted = computed("Concat", computed("Gather", sizes, whole([axis])), whole([2 * taps]), axis=0)
        return computed("Resize", both, None, None, wanted, **node.attrs)
    assert scales is not None and scales.node.value is not None
    scale = np.array([scales.node.value[axis], 1], scales.node.value.dtype)
    return computed("Resize", both, None, constant(scale), **node.attrs)


def _taps(resized: Node, x: NodeEntry, axis: int, taps: int, version: int) -> tuple[Node, Node]:
    """The positions that each result reads, and their shares, both [positions made, taps]. One without a share is another that
    has one, and so inside of the image."""
    computed, zero = partial(op, opset=version), constant(np.float32(0))
    shares, sums = (computed("Slice", resized, whole([i * taps]), whole([(i + 1) * taps]), whole([1])) for i in (0, 1))
    is_none = computed("Equal", shares, zero)
    quotient = computed("Div", sums, computed("Where", is_none, constant(np.float32(1)), shares))
    last = computed("Sub", computed("Shape", x, start=axis, end=axis + 1), whole([1]))
    inside = computed("Max", computed("Min", computed("Cast", computed("Round", quotient), to=INT64), last), whole([0]))
    positions = computed("Where", is_none, computed("ReduceMax", inside, whole([1])), inside)
    if taps != 2:
        return positions, shares
    # Half a position twice is the position, infinite or not; one that is infinite has no share of zero.
    is_one = computed("Equal", computed("ReduceMin", computed("Abs", shares), whole([1])), zero)
    half = computed("Mul", computed("ReduceSum", shares, whole([1])), constant(np.float32(0.5)))
    return positions, computed("Where", is_one, half, shares)


def _mixed(y: NodeEntry, positions: Node, shares: Node, axis: int, rank: int, taps: int, version: int) -> NodeEntry:
    """The value's positions along a dimension, each times its share, added up."""
    computed, total = partial(op, opset=version), None
    for tap in range(taps):
        part = computed("Gather", y, computed("Gather", positions, whole(tap), axis=1), axis=axis)
        if taps > 1:
            share = computed("Gather", shares, whole(tap), axis=1)
            part = computed("Mul", part, computed("Reshape", share, whole([-1, *[1] * (rank - 1 - axis)])))
        total = part if total is None else computed("Add", total, part)
    assert total is not None
    return total[0]
