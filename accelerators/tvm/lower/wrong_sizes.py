"""Ops that TVM computes wrongly for some sizes only."""

from __future__ import annotations

import numpy as np

from partita.accelerators.interface.empty_reductions import has_no_elements, sums_nothing
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.passes.decompose.einsum import MOST_PRODUCTS, is_long


def wrong_size(node: Node) -> str | None:
    """Why TVM's result would be wrong for these sizes; None if no problem is known."""
    nothing = None if all(has_no_elements(value_type) for value_type in node.output_types) else sums_nothing(node)
    if nothing is not None:
        return nothing
    padding = _wrong_padding(node)
    if padding is not None:
        return padding
    if is_long(node):
        return f"TVM walks all letters of {node.op} at once, which are more than {MOST_PRODUCTS:,} products here"
    if node.op not in ops("resizing") or node.domain:
        return None
    given, result = (e.type if e is not None else None for e in (node.inputs[0], node[0]))
    if not (isinstance(given, TensorType) and isinstance(result, TensorType) and given.shape and result.shape):
        return None
    old, new = ([int(size or 0) for size in shape] for shape in (given.shape, result.shape))
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "TVM's importer does not keep proportions"
    if any(np.float32(scale) * n != m for scale, n, m in zip(_scales(node), old, new)):
        return "TVM works with the ratio of the sizes where ONNX works with the scales"
    if node.op == "Upsample" and len(node.inputs) < 2:
        return "TVM takes other positions for an Upsample whose factors are attributes"
    if node.attrs.get("mode", "nearest") == "nearest" and not all(_is_settled(node, n, m) for n, m in zip(old, new)):
        return "TVM chooses another nearest position where two are equally near"
    return None


def _wrong_padding(node: Node) -> str | None:
    """Why TVM's Pad would read other elements than ONNX's: out of bounds, or what negative padding cuts off."""
    mode, given = node.attrs.get("mode", "constant"), node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if node.op != "Pad" or node.domain or mode not in ("edge", "reflect", "wrap"):
        return None
    pads, axes = _numbers(node, 1, "pads"), _numbers(node, 3, "axes")
    if pads is None or not isinstance(given, TensorType) or not given.is_static or not given.shape:
        return None
    if mode == "wrap":
        return "TVM's Pad wraps around what negative padding cuts off" if min(pads) < 0 < max(pads) else None
    sizes = [int(given.shape[axis] or 0) for axis in (range(len(given.shape)) if axes is None else axes)]
    for low, high, size in zip(pads[: len(sizes)], pads[len(sizes) :], sizes):
        left = size + min(low, high, 0)
        if mode == "edge" and max(low, high) > 0 and left < 1:
            return "TVM's Pad reads outside of the data where a dimension has no edge, since nothing is in it"
        if mode == "reflect" and max(low, high) > 0 and max(low, high) >= left:
            return "TVM's Pad reflects once, and reads outside of the data where a padding is not shorter than its dimension"
    return None


def _numbers(node: Node, position: int, attribute: str) -> list[int] | None:
    """Integers of a constant input or, in early opsets, of an attribute."""
    entry = node.inputs[position] if position < len(node.inputs) else None
    if entry is None or entry.node.value is None:
        return node.attrs.get(attribute)
    return [int(value) for value in entry.node.value.reshape(-1)]


def _scales(node: Node) -> list[float]:
    """Scales of a resize; empty if it has sizes instead."""
    values = [entry.node.value for entry in node.inputs[1:] if entry is not None and entry.node.value is not None]
    scales = [value for value in values[-1:] if value.dtype == np.float32 and node.attrs.get("axes") is None]
    return scales[0].tolist() if scales else list(node.attrs.get("scales", ()))


def _is_settled(node: Node, old: int, new: int) -> bool:
    """True if no two positions are equally near, or if positions are computed without rounding, as for a power of two."""
    small, large = sorted((max(old, 1), max(new, 1)))
    if large % small:
        return False
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    how = node.attrs.get("nearest_mode", "round_prefer_floor")
    apart = (coordinates == "asymmetric") == (how == "floor") and how != "ceil" and coordinates != "align_corners"
    return (large // small).bit_count() == 1 or (new > old and apart)
