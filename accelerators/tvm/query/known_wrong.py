"""Nodes that TVM compiles without an error but computes wrongly, with the reasons; they are refused.

They were found with ONNX's own node tests; `tests/accelerators/tvm/node_cases.py` finds new ones."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from partita.accelerators.interface.provenance import FUSED
from partita.graph.node import Node
from partita.graph.types import TensorType
from partita.passes.decompose.reductions import UNREDUCED, reduces_nothing


@attrs.frozen(slots=True)
class Rule:
    """One case that TVM computes wrongly."""

    op: str
    """Name of the op."""
    when: Callable[[Node], bool]
    """True for nodes that are such a case."""
    reason: str
    """The reason: the error that TVM would make."""


def _set(name: str, *values: object) -> Callable[[Node], bool]:
    """Predicate: the attribute has one of these values."""
    return lambda node: node.attrs.get(name) in values


def _dtype(node: Node, which: int = 0) -> str:
    entry = node.inputs[which] if len(node.inputs) > which else None
    return entry.type.dtype if entry is not None and isinstance(entry.type, TensorType) else ""


def _is_float(node: Node) -> bool:
    return "float" in _dtype(node)


WIDE = frozenset(("int64", "uint64"))
SORTED = frozenset("float64 int8 uint8 int32 int64".split())
"""Element types that TVM's TopK sorts correctly, except NaN among float64, which its decomposition removes before."""


LONGEST = 1 << 20
"""Maximum number of elements of a constant that the importer may make of an op."""


def _other_sizes(node: Node) -> bool:
    """True if indices are shorter than the data along a dimension other than the axis."""
    shapes = [entry.type.shape for entry in node.reads[:2] if isinstance(entry.type, TensorType) and entry.type.is_static]
    if len(shapes) < 2 or not shapes[0] or shapes[1] is None:
        return False
    axis = int(node.attrs.get("axis", 0)) % len(shapes[0])
    return any(a != b for d, (a, b) in enumerate(zip(shapes[0], shapes[1], strict=True)) if d != axis)


def _has_fractions(node: Node) -> bool:
    """True for an integer product with factors that are not integers."""
    factors = [float(node.attrs.get(name, 1.0)) for name in ("alpha", "beta")]
    return "int" in _dtype(node) and not all(factor.is_integer() for factor in factors)


def _is_written_out(node: Node) -> bool:
    """True for a Range of constants with more elements than a constant may have."""
    value_type = node.output_types[0]
    size = value_type.shape[0] if isinstance(value_type, TensorType) and value_type.shape else None
    return isinstance(size, int) and size > LONGEST and all(entry.node.value is not None for entry in node.reads)


def _is_cropped_by_nothing(node: Node) -> bool:
    """True for a Resize of a region that is not given, which stands for all of the data."""
    region = node.inputs[1] if len(node.inputs) > 1 else None
    is_absent = region is None or (region.node.value is not None and not region.node.value.size)
    return is_absent and node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"


def samples_nan(node: Node) -> bool:
    """True for a GridSample of nearest pixels whose positions may be NaN. As a part of a decomposed op it gets no NaN."""
    entry = node.inputs[1] if len(node.inputs) > 1 else None
    grid = None if entry is None else entry.node.value
    is_finite = grid is not None and bool(np.isfinite(grid.astype(np.float64)).all())
    return node.attrs.get("mode") == "nearest" and _is_float(node) and not is_finite and FUSED not in node.metadata


RULES = (
    Rule("BatchNormalization", lambda n: bool(n.attrs.get("training_mode", 0)),
         "TVM's importer computes training-mode batch norm as if it were inference"),
    Rule("BitShift", lambda n: _dtype(n).startswith("int"), "TVM shifts by negative or too large counts as the processor does"),
    Rule("Gemm", _has_fractions, "TVM's importer makes the factors of Gemm whole where numbers are"),
    Rule("GroupNormalization", lambda n: True, "TVM's importer scales by channel in every opset, and its kernel takes no chain"),
    Rule("MeanVarianceNormalization", lambda n: True, "TVM divides by the deviation alone, which is zero for equal numbers"),
    *[Rule(op, _is_float, f"TVM's {op} ignores NaN") for op in ("GlobalMaxPool", "Hardmax")],
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
    Rule("Resize", _is_cropped_by_nothing, "TVM's importer takes a region that is not given for an empty one"),
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
    """Why TVM's result would be wrong; None if no problem is known."""
    return next((rule.reason for rule in _by_op.get(str(node.op), ()) if rule.when(node)), None)
