"""Resizes of dynamic sizes: those that are made of gathers, and those that have a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.resize import RESIZES_SAY_HOW, older_positions
from partita.graph.ops.traits import ops
from partita.graph.types import HALVES, TensorType

BY_FACTORS = frozenset(("asymmetric", "half_pixel", "pytorch_half_pixel"))
"""Coordinate modes in which the factor alone determines the positions."""

REPEATS = frozenset((("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")))
"""Coordinate and rounding modes in which a nearest resize by integer factors repeats each pixel."""

IMAGES = 4
"""Rank of images."""

MIXED = HALVES | {"float32"}
"""The element types that are interpolated by gathers; nearest resizes take any type."""


def can_gather(node: Node, version: int) -> bool:
    """True for a resize of all dimensions whose results are sums of few positions."""
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
    """True if a resize by these factors (None if not constant) has a kernel: ours for integer factors, or TVM's. TVM picks other
    positions if two are equally near, and rejects its own code for linear resizes with asymmetric coordinates."""
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
    """True if a resize that keeps all sizes keeps all elements too."""
    is_cropped = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return not is_cropped and len(node.inputs) > 2 and all(factor == 1 for factor in stated_factors(node) or ())


def said_input(node: Node, slot: int) -> NodeEntry | None:
    """The factors (slot 2) or the sizes (slot 3) of a resize; None if the input is absent or, as in older files, empty."""
    entry = node.inputs[slot] if slot < len(node.inputs) else None
    is_empty = entry is not None and entry.node.value is not None and entry.node.value.size == 0
    return None if is_empty else entry


def stated_factors(node: Node) -> list[float] | None:
    """The constant factors of a resize; None if it has none."""
    scales = said_input(node, 2)
    return None if scales is None or scales.node.value is None else [float(scale) for scale in scales.node.value]


def in_newer_form(node: Node) -> Node:
    """An older resize by integer factors in the form of opset 11, which our kernels take; any other node unchanged."""
    scales = node.inputs[1] if node.op in ops("resizing") and not node.domain and len(node.inputs) == 2 else None
    factors = None if scales is None else scales.node.value
    if factors is None or (factors % 1 != 0).any():
        return node
    attributes = {"mode": "nearest", **node.attrs}
    positions = older_positions(attributes["mode"], factors)
    return node.evolve(op="Resize", inputs=(node.inputs[0], None, scales), attrs={**attributes, **positions})
