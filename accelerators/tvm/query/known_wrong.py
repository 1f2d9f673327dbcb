"""Lists the nodes that TVM compiles without complaint and computes wrongly, each with the reason; they are refused.

They were found with ONNX's own node tests; `tests/accelerators/tvm/node_cases.py` finds new ones.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from accelerators.interface.empties import has_no_elements, sums_nothing
from accelerators.interface.provenance import FUSED
from accelerators.tvm.prepare.contractions import MOST_PRODUCTS, is_long
from accelerators.tvm.prepare.reductions import UNREDUCED, reduces_nothing
from graph.node import Node
from graph.types import TensorType


@attrs.frozen(slots=True)
class Rule:
    """One thing not to ask of TVM."""

    op: str
    """The op."""
    when: Callable[[Node], bool]
    """Is the node such a case?"""
    reason: str
    """The reason: what would go wrong."""


def _set(name: str, *values: object) -> Callable[[Node], bool]:
    """Has the attribute one of these values?"""
    return lambda node: node.attrs.get(name) in values


def _dtype(node: Node, which: int = 0) -> str:
    entry = node.inputs[which] if len(node.inputs) > which else None
    return entry.type.dtype if entry is not None and isinstance(entry.type, TensorType) else ""


def _is_float(node: Node) -> bool:
    return "float" in _dtype(node)


WIDE = frozenset(("int64", "uint64"))
SORTED = frozenset("float64 int8 uint8 int32 int64".split())
"""The element types that TVM's TopK sorts right, except NaN among doubles: `prepare.parts` hands it none."""


LONGEST = 1 << 20
"""The numbers of a constant that the importer may make of an op."""


def _drops_nan(node: Node) -> bool:
    return _is_float(node)


def _other_sizes(node: Node) -> bool:
    """Are the indices shorter than the data along another dimension than the axis?"""
    shapes = [entry.type.shape for entry in node.reads[:2] if isinstance(entry.type, TensorType) and entry.type.is_static]
    if len(shapes) < 2 or not shapes[0] or shapes[1] is None:
        return False
    axis = int(node.attrs.get("axis", 0)) % len(shapes[0])
    return any(a != b for d, (a, b) in enumerate(zip(shapes[0], shapes[1], strict=True)) if d != axis)


def _is_written_out(node: Node) -> bool:
    """Is it a Range of constants with more numbers than a constant may have?"""
    value_type = node.output_types[0]
    size = value_type.shape[0] if isinstance(value_type, TensorType) and value_type.shape else None
    return isinstance(size, int) and size > LONGEST and all(entry.node.value is not None for entry in node.reads)


def samples_nan(node: Node) -> bool:
    """Is it a GridSample of the nearest pixels whose positions may be NaN? As a part of itself it gets none."""
    entry = node.inputs[1] if len(node.inputs) > 1 else None
    grid = None if entry is None else entry.node.value
    is_finite = grid is not None and bool(np.isfinite(grid.astype(np.float64)).all())
    return node.attrs.get("mode") == "nearest" and _is_float(node) and not is_finite and FUSED not in node.metadata


RULES = (
    Rule("BatchNormalization", _set("training_mode", 1),
         "TVM's importer computes training-mode batch norm as if it were inference"),
    Rule("BitShift", lambda n: _dtype(n).startswith("int"), "TVM shifts by negative or too large counts as the processor does"),
    Rule("MeanVarianceNormalization", lambda n: True, "TVM divides by the deviation alone, which is zero for equal numbers"),
    *[Rule(op, _drops_nan, f"TVM's {op} passes over NaN") for op in ("GlobalMaxPool", "Hardmax")],
    Rule("TopK", lambda n: _dtype(n) not in SORTED, "TVM's TopK has no order for NaN, and does not take every element type"),
    Rule("TopK", lambda n: _dtype(n) == "float64" and FUSED not in n.metadata,
         "TVM's TopK has no order for NaN among float64"),
    Rule("Pow", lambda n: "int" in _dtype(n) and "int" in _dtype(n, 1), "TVM makes whole powers in floating point"),
    Rule("ReduceMean", lambda n: _dtype(n) in WIDE, "TVM's sum of 64-bit numbers may run over before it is divided"),
    Rule("ReduceLogSumExp", lambda n: True, "TVM subtracts the largest number even where it is infinite"),
    *[Rule(op, _other_sizes, "TVM takes it that indices are as long as the data") for op in ("Scatter", "ScatterElements")],
    Rule("GridSample", samples_nan, "TVM's GridSample takes the first pixel, or none, where a position is NaN"),
    Rule("IsInf", lambda n: n.attrs.get("detect_negative", 1) != 1 or n.attrs.get("detect_positive", 1) != 1,
         "TVM's importer ignores detect_negative and detect_positive"),
    Rule("Mod", lambda n: _is_float(n) and n.attrs.get("fmod", 0) == 0,
         "TVM's floor_mod of floats is NaN where an operand is infinite"),
    *[Rule(op, reduces_nothing, "TVM's importer returns what it is given where no axes are named and noop_with_empty_axes is set")
      for op in UNREDUCED],
    Rule("Range", _is_written_out, "TVM's importer writes a Range of constants out, and this one is long"),
    Rule("Resize", _set("antialias", 1), "TVM's importer ignores antialias"),
    Rule("Resize", _set("coordinate_transformation_mode", "half_pixel_symmetric"), "TVM knows no half_pixel_symmetric"),
    Rule("RoiAlign", lambda n: n.attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel",
         "TVM makes regions that are smaller than a pixel as large as one, ONNX does not with half_pixel"),
    Rule("RoiAlign", _set("mode", "max"), "TVM takes the maximum after interpolation, ONNX before"),
    Rule("Shrink", lambda n: "int" in _dtype(n), "TVM rounds the bias and the threshold of Shrink where numbers are whole"),
    Rule("SpaceToDepth", _set("mode", "CRD"), "TVM's importer ignores the mode"),
)

_by_op: dict[str, list[Rule]] = {}
for _rule in RULES:
    _by_op.setdefault(_rule.op, []).append(_rule)


def known_wrong(node: Node) -> str | None:
    """Why TVM's answer would be wrong; None if nothing is known against it."""
    return next((rule.reason for rule in _by_op.get(str(node.op), ()) if rule.when(node)), None)


def wrong_size(node: Node) -> str | None:
    """Why TVM's answer would be wrong for these sizes; None if nothing is known against them."""
    nothing = None if all(has_no_elements(value_type) for value_type in node.output_types) else sums_nothing(node)
    if nothing is not None:
        return nothing
    padding = _wrong_padding(node)
    if padding is not None:
        return padding
    if is_long(node):
        return f"TVM walks all letters of {node.op} at once, which are more than {MOST_PRODUCTS:,} products here"
    if node.op not in ("Resize", "Upsample") or node.domain:
        return None
    given, result = (e.type if e is not None else None for e in (node.inputs[0], node[0]))
    if not (isinstance(given, TensorType) and isinstance(result, TensorType) and given.shape and result.shape):
        return None
    old, new = ([int(size or 0) for size in shape] for shape in (given.shape, result.shape))
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "TVM's importer does not keep proportions"
    if any(np.float32(scale) * n != m for scale, n, m in zip(_scales(node), old, new)):
        return "TVM works with the ratio of the sizes where ONNX works with the scales"
    if node.attrs.get("mode", "nearest") == "nearest" and not all(_is_settled(node, n, m) for n, m in zip(old, new)):
        return "TVM chooses another nearest position where two are equally near"
    return None


def _wrong_padding(node: Node) -> str | None:
    """Why TVM's Pad would read elsewhere than ONNX's: outside of the data, or what negative padding cuts off."""
    mode, given = node.attrs.get("mode", "constant"), node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if node.op != "Pad" or node.domain or mode not in ("reflect", "wrap"):
        return None
    pads, axes = _numbers(node, 1, "pads"), _numbers(node, 3, "axes")
    if pads is None or not isinstance(given, TensorType) or not given.is_static or not given.shape:
        return None
    if mode == "wrap":
        return "TVM's Pad wraps around what negative padding cuts off" if min(pads) < 0 < max(pads) else None
    sizes = [int(given.shape[axis] or 0) for axis in (range(len(given.shape)) if axes is None else axes)]
    for low, high, size in zip(pads[: len(sizes)], pads[len(sizes) :], sizes):
        if max(low, high) > 0 and max(low, high) >= size + min(low, high, 0):
            return "TVM's Pad reflects once, and reads outside of the data where a padding is not shorter than its dimension"
    return None


def _numbers(node: Node, position: int, attribute: str) -> list[int] | None:
    """The whole numbers that a constant input, or below some opset an attribute, says."""
    entry = node.inputs[position] if position < len(node.inputs) else None
    if entry is None or entry.node.value is None:
        return node.attrs.get(attribute)
    return [int(value) for value in entry.node.value.reshape(-1)]


def _scales(node: Node) -> list[float]:
    """The scales that a resize is given; none where it is given sizes."""
    values = [entry.node.value for entry in node.inputs[1:] if entry is not None and entry.node.value is not None]
    scales = [value for value in values[-1:] if value.dtype == np.float32 and node.attrs.get("axes") is None]
    return scales[0].tolist() if scales else list(node.attrs.get("scales", ()))


def _is_settled(node: Node, old: int, new: int) -> bool:
    """Are no two positions equally near, or is every position computed without rounding, as for a power of two?"""
    small, large = sorted((max(old, 1), max(new, 1)))
    if large % small:
        return False
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    how = node.attrs.get("nearest_mode", "round_prefer_floor")
    apart = (coordinates == "asymmetric") == (how == "floor") and how != "ceil" and coordinates != "align_corners"
    return (large // small).bit_count() == 1 or (new > old and apart)
