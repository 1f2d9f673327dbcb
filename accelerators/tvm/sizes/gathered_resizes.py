"""Resizes whose positions are known only when the model is called: those that are made of gathers, and those with a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.resize import RESIZES_SAY_HOW, older_positions
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.passes.decompose.halves import HALVES

BY_FACTORS = frozenset(("asymmetric", "half_pixel", "pytorch_half_pixel"))
"""How resizes find positions where a factor says all about them."""

REPEATS = frozenset((("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")))
"""How resizes to the nearest pixel find it where whole factors make each pixel several alike."""

IMAGES = 4
"""How many dimensions images have."""

MIXED = HALVES | {"float32"}
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
    scales = node.inputs[1] if node.op in ops("resizing") and not node.domain and len(node.inputs) == 2 else None
    factors = None if scales is None else scales.node.value
    if factors is None or (factors % 1 != 0).any():
        return node
    attributes = {"mode": "nearest", **node.attrs}
    positions = older_positions(attributes["mode"], factors)
    return node.evolve(op="Resize", inputs=(node.inputs[0], None, scales), attrs={**attributes, **positions})
