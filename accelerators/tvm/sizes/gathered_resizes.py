"""Resizes whose positions are known only when the model is called, as sums of what the host says is read.

Whatever its mode, a resize is linear along each dimension: each result is a sum of few positions, times their shares. The host
works these out once for each size, by ONNX's own op on a few vectors, and the model gathers them. A dimension that keeps its size
is left as it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from partita.accelerators.tvm.sizes.in_parts import whole
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.resize import RESIZES_SAY_HOW, older_positions
from partita.graph.types import TensorType

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""For each mode, how many positions along a dimension a result is made of."""

BY_FACTORS = frozenset(("asymmetric", "half_pixel", "pytorch_half_pixel"))
"""How resizes find positions where a factor says all about them."""

REPEATS = frozenset((("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")))
"""How resizes to the nearest pixel find it where whole factors make each pixel several alike."""

IMAGES = 4
"""How many dimensions images have."""

FLOAT32, INT64 = 1, 7
"""ONNX's numbers for element types."""

NARROW = frozenset(("float16", "bfloat16"))
"""The element types whose numbers are gathered as they are stored, mixed in float32, and rounded once."""

MIXED = NARROW | {"float32"}
"""The element types whose mixtures are made so; the nearest pixel may be of any."""


def can_gather(node: Node, version: int) -> bool:
    """Is it a resize of all dimensions whose results are sums of few positions?"""
    attributes, scales, sizes = node.attrs, said_input(node, 2), said_input(node, 3)
    if node.op != "Resize" or node.domain or version < RESIZES_SAY_HOW or (scales is None) == (sizes is None):
        return False
    is_plain = attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch" and not attributes.get("antialias", 0)
    is_cropped = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    is_known = scales is None or scales.node.value is not None
    kind = node.output_types[0]
    is_taken = isinstance(kind, TensorType) and (kind.dtype in MIXED or attributes.get("mode", "nearest") == "nearest")
    return is_plain and not is_cropped and is_known and is_taken and attributes.get("axes") is None


def has_kernel(node: Node, factors: Sequence[float | None]) -> bool:
    """Is a resize by these factors, as far as they are known, made by a kernel: ours for whole ones, or TVM's? TVM takes other
    positions where two are equally near, and refuses its own code for mixtures that are counted from the corner."""
    if None in factors:
        return False
    is_whole = all(factor is not None and factor % 1 == 0 for factor in factors)
    transformed, rounding = (
        str(node.attrs.get(name, usual))
        for name, usual in (("coordinate_transformation_mode", "half_pixel"), ("nearest_mode", "round_prefer_floor"))
    )
    if node.attrs.get("mode", "nearest") == "nearest":
        return is_whole and (transformed, rounding) in REPEATS
    if transformed == "asymmetric":
        return is_whole and len(factors) == IMAGES and node.attrs["mode"] == "linear"
    return transformed in BY_FACTORS


def changes_nothing(node: Node) -> bool:
    """Does a resize whose result has the sizes of what it reads leave all numbers as they are?"""
    is_cropped = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return not is_cropped and len(node.inputs) > 2 and all(factor == 1 for factor in stated_factors(node) or ())


def said_input(node: Node, slot: int) -> NodeEntry | None:
    """The input that says the factors (2) or the sizes (3) of a resize; older files have an empty one where the other counts."""
    entry = node.inputs[slot] if slot < len(node.inputs) else None
    is_empty = entry is not None and entry.node.value is not None and entry.node.value.size == 0
    return None if is_empty else entry


def stated_factors(node: Node) -> list[float] | None:
    """What a resize that is given factors multiplies its dimensions by."""
    scales = said_input(node, 2)
    return None if scales is None or scales.node.value is None else [float(scale) for scale in scales.node.value]


def in_newer_form(node: Node) -> Node:
    """A resize as opset 11 writes it, if it is older and enlarges by whole factors, which kernels of ours take in that form."""
    scales = node.inputs[1] if node.op in ("Resize", "Upsample") and not node.domain and len(node.inputs) == 2 else None
    factors = None if scales is None else scales.node.value
    if factors is None or (factors % 1 != 0).any():
        return node
    attributes = {"mode": "nearest", **node.attrs}
    positions = older_positions(attributes["mode"], factors)
    return node.evolve(op="Resize", inputs=(node.inputs[0], None, scales), attrs={**attributes, **positions})


def resize_parts(node: Node, axes: Sequence[int], graph: Graph) -> Graph:
    """The body of one resize; its inputs are those of the node's that are no constants."""
    version = graph.opsets.get("", 1)

    def given(i: int) -> NodeEntry | None:
        entry = said_input(node, i)
        if entry is None:
            return None
        return constant(entry.node.value)[0] if entry.node.value is not None else variable(f"x{i}", type=entry.type)[0]

    x, scales, sizes = given(0), given(2), given(3)
    assert x is not None and isinstance(x.type, TensorType) and x.type.rank is not None
    y, taps = x, TAPS[str(node.attrs.get("mode", "nearest"))]
    for axis in axes:
        resized = _resized_combs(node, x, axis, scales, sizes, version)
        y = _mixed(y, *_taps(resized, x, axis, taps, version), axis, x.type.rank, taps, version)
    if taps > 1 and x.type.dtype in NARROW:
        y = op("Cast", y, opset=version, to=x.type.dtype)[0]
    inputs = [entry.node for entry in (x, sizes) if entry is not None and entry.node.value is None]
    return Graph([y], inputs, "gathered", graph.opsets)


def _resized_combs(
    node: Node, x: NodeEntry, axis: int, scales: NodeEntry | None, sizes: NodeEntry | None, version: int
) -> Node:
    """[positions made, 2 * taps] of one dimension: what the resize makes of combs, each of which has a one at every so many
    positions, and of the same combs with the positions' numbers in the place of the ones. The taps of a result are neighbours, so
    that each of them meets a comb of its own."""
    computed, taps = partial(op, opset=version), TAPS[str(node.attrs.get("mode", "nearest"))]
    count = computed("Gather", computed("Shape", x), whole(axis))
    numbers = computed("Reshape", computed("Range", whole(0), count, whole(1)), whole([-1, 1]))
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
    last = computed("Sub", computed("Gather", computed("Shape", x), whole([axis])), whole([1]))
    inside = computed("Max", computed("Min", computed("Round", quotient), computed("Cast", last, to=FLOAT32)), zero)
    nearby = computed("Where", is_none, _over_taps("ReduceMax", inside, version), inside)
    positions = computed("Cast", nearby, to=INT64)
    if taps != 2:
        return positions, shares
    # Half a position twice is the position, infinite or not; one that is infinite has no share of zero.
    is_one = computed("Equal", _over_taps("ReduceMin", computed("Abs", shares), version), zero)
    half = computed("Mul", _over_taps("ReduceSum", shares, version), constant(np.float32(0.5)))
    return positions, computed("Where", is_one, half, shares)


def _over_taps(name: str, numbers: Node, version: int) -> Node:
    """The numbers of all taps reduced to one. Which dimension that is was an attribute before it was an input."""
    if version < (13 if name == "ReduceSum" else 18):
        return op(name, numbers, axes=[1], opset=version)
    return op(name, numbers, whole([1]), opset=version)


def _mixed(y: NodeEntry, positions: Node, shares: Node, axis: int, rank: int, taps: int, version: int) -> NodeEntry:
    """The value's positions along a dimension, each times its share, added up."""
    computed, total = partial(op, opset=version), None
    for tap in range(taps):
        part = computed("Gather", y, computed("Gather", positions, whole(tap), axis=1), axis=axis)
        if taps > 1 and isinstance(y.type, TensorType) and y.type.dtype in NARROW:
            part = computed("Cast", part, to=FLOAT32)
        if taps > 1:
            share = computed("Gather", shares, whole(tap), axis=1)
            part = computed("Mul", part, computed("Reshape", share, whole([-1, *[1] * (rank - 1 - axis)])))
        total = part if total is None else computed("Add", total, part)
    assert total is not None
    return total[0]
