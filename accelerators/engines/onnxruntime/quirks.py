"""The nodes that onnxruntime accepts, but then computes differently from ONNX's definition or fails to run.

Each was found by ONNX's own node tests with onnxruntime 1.31; they are refused, so that another device computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from partita.accelerators.engines.lost_nan import Table, always, not_known_finite, only_of, with_reduction
from partita.accelerators.engines.lower_bounds import Sizes, has_elements
from partita.accelerators.engines.onnxruntime import windows
from partita.accelerators.engines.operands import has_scales, known_scales, may_leave_all_sizes, scaled_sizes
from partita.accelerators.engines.quirks import Case, Quirk, Quirks
from partita.accelerators.interface.empty_reductions import may_be_empty, sums_nothing
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Dim, TensorType

BRINGS_CODE = "EPContext holds or names code that an engine compiled, which no graph may bring along"
"""The reason why no engine is even asked about a graph with such a node."""


def brings_code(graph: Graph) -> bool:
    """True if a node of the graph, or of a body in it, holds or names compiled code."""
    return any(node.op == "EPContext" for inner in graphs_in(graph) for node in inner.nodes)


MEANS_OF_NOTHING = frozenset(("ReduceMean",))
"""Ops that return a number for an empty input where ONNX defines none."""


FATAL = frozenset(("Einsum", "InstanceNormalization"))
"""Ops at which onnxruntime 1.31 ends the process if an operand is empty."""


def dies_of_nothing(node: Node, least: Callable[[], Mapping[NodeEntry, Sizes]]) -> str | None:
    """The reason why the op might end the process: an operand may turn out to be empty though the inputs of the graph are not.
    `least` returns the lower bounds of sizes in the graph; it is empty for a body, whose inputs may be empty."""
    if node.op not in FATAL or node.domain:
        return None
    known = least()
    empty = next((entry for entry in node.reads if not (has_elements(entry, known) or _is_fixed_in_body(entry, known))), None)
    if empty is None:
        return None
    return f"onnxruntime ends the process if {node.op} reads a value without elements, and {empty.name!r} may turn out to be one"


def _is_fixed_in_body(entry: NodeEntry, least: Mapping[NodeEntry, Sizes]) -> bool:
    return entry not in least and isinstance(entry.type, TensorType) and entry.type.is_static


def refused(node: Node, graph: Graph) -> str | None:
    """The reason why the node should run elsewhere, or None."""
    if node.op == "EPContext":
        return BRINGS_CODE
    return QUIRKS.reason(node, graph) or sums_nothing(node) or may_be_empty(node, graph)


# -- conditions ----------------------------------------------------------------------------------------------


def _has_one_pixel(c: Case) -> bool:
    sizes = c.constant(1)
    return bool(c.attr("align_corners", 0)) and (sizes is None or not bool((sizes[2:] > 1).all()))


def _is_no_image(c: Case) -> bool:
    dilations = c.attr("dilations", ())
    return not (len(dilations) in (0, 2) or max(dilations) == 1)


def _by_row(c: Case) -> bool:
    """True for a zero point of the first matrix or of the result, and for QLinearMatMul a scale, that is not a single number."""
    slots = (2,) if c.op == "MatMulInteger" else (1, 2, 6, 7)
    return any(c.shape(slot) not in (None, (), (1,)) for slot in slots)


def _unstated(c: Case) -> object:
    missing = [name for name in ("activation_alpha", "activation_beta") if not c.attr(name)]
    named = {str(name) for name in c.attr("activations") or ()} & {"Affine", "ScaledTanh", "ThresholdedRelu"}
    return {"number": missing[0], "activation": min(named)} if missing and named else None


def _may_end_far(c: Case) -> bool:
    ends, steps = c.constant(2), c.constant(4)
    if not c.has(4) or (steps is not None and bool((np.asarray(steps) > 0).all())):
        return False
    return ends is None or bool((np.asarray(ends) >= np.iinfo(np.int32).max).any())


def _may_have_labels_below_zero(c: Case) -> bool:
    labels = c.constant(1)
    return labels is None or bool(((labels < 0) & (labels != c.attr("ignore_index"))).any())


def _may_have_other_batches(c: Case) -> bool:
    data, indices, count = c.shape(), c.shape(1), int(c.attr("batch_dims", 0))
    known = data is not None and indices is not None and data[:count] == indices[:count]
    return bool(count) and not (known and None not in (data or ())[:count])


def _is_scaled_otherwise(c: Case) -> bool:
    if not has_scales(c.node) or c.attr("coordinate_transformation_mode") != "align_corners":
        return False
    scales = known_scales(c.node)
    return not _makes_whole_sizes(scaled_sizes(c.node, scales), scales)


def _makes_whole_sizes(shape: tuple[Dim, ...], scales: np.ndarray[Any, Any] | None) -> bool:
    if scales is None or not all(isinstance(size, int) for size in shape):
        return False
    sizes = np.asarray(shape, np.float64) * scales
    return np.array_equal(sizes, np.floor(sizes))


def _is_copied(c: Case) -> bool:
    scales = known_scales(c.node) if has_scales(c.node) else None
    return scales is not None and may_leave_all_sizes(c.node, scales)


_POOLS = " ".join(sorted(ops("pool")))
_PADS_NEGATIVELY = "onnxruntime pads {op} negatively if its automatic padding has strides longer than its windows"

ROWS = (
    Quirk(
        "AffineGrid", "onnxruntime misplaces the only pixel of an axis in AffineGrid with align_corners", _has_one_pixel,
    ),
    Quirk(
        "Attention", "onnxruntime leaves the causal mask out of Attention's fourth output if there is a mask and a past",
        lambda c: c.gives(3) and c.attr("is_causal", 0) and c.has(3) and c.has(4),
    ),
    Quirk(
        "Attention", "onnxruntime supports Attention's nonpad_kv_seqlen only with a mask of the same length", lambda c: c.has(6),
    ),
    Quirk("Col2Im", "onnxruntime misplaces the columns of a dilated Col2Im, except for images", _is_no_image),
    Quirk(
        "Conv ConvInteger QLinearConv", "onnxruntime fails at run time on {op} that is dilated and padded to the same size",
        windows.is_same_dilated,
    ),
    Quirk("Conv ConvInteger QLinearConv", _PADS_NEGATIVELY, lambda c: windows.least_padding(c) < -1),
    Quirk(
        _POOLS, "onnxruntime computes other sizes for {op} that is dilated and padded to the same size", windows.is_same_dilated,
    ),
    Quirk(_POOLS, _PADS_NEGATIVELY, lambda c: windows.least_padding(c) < 0),
    Quirk(
        _POOLS, "onnxruntime rounds up the number of {op}'s windows in ceil_mode with VALID padding",
        windows.leaves_a_rest,
    ),
    Quirk(
        "ConvInteger", "onnxruntime supports one zero point of ConvInteger's weights, not one for each channel",
        lambda c: c.has(3) and c.shape(3) not in ((), (1,)),
    ),
    Quirk(
        "ConvTranspose", "onnxruntime does not run ConvTranspose with an output_padding of its stride or more",
        windows.is_padded_by_a_stride,
    ),
    Quirk(
        "ConvTranspose", "onnxruntime makes ConvTranspose's result no larger than its windows reach",
        windows.is_larger_than_windows,
    ),
    Quirk(
        "Einsum", "onnxruntime sums integers of Einsum in floating point",
        lambda c: any("int" in c.dtype(slot) for slot in range(len(c.node.inputs))),
    ),
    Quirk(
        "GRU LSTM RNN", "onnxruntime takes 0 for the {number} of {activation} that is not stated", _unstated,
    ),
    Quirk(
        "GatherND",
        "onnxruntime reads outside the data if GatherND's indices have more batches, which is known only at run time",
        _may_have_other_batches,
    ),
    Quirk(
        "LRN", "onnxruntime fails at run time on LRN of other than four dimensions",
        lambda c: c.shape() is not None and len(c.shape() or ()) != 4,
    ),
    Quirk(
        "MatMulInteger QLinearMatMul", "onnxruntime fails at run time on {op} with a zero point or a scale for each row",
        _by_row,
    ),
    Quirk(
        "MaxUnpool", "onnxruntime counts MaxUnpool's indices in the given output shape instead of the pooled one",
        lambda c: c.has(2),
    ),
    Quirk("MeanVarianceNormalization", "onnxruntime returns NaN for equal numbers in MeanVarianceNormalization"),
    Quirk(
        "Mod", "onnxruntime supports floats in Mod only with fmod=1", lambda c: "float" in c.dtype() and not c.attr("fmod", 0),
    ),
    Quirk(
        "Mod", "onnxruntime computes Mod of 64-bit integers with fmod=1 in float64",
        lambda c: c.dtype() in ("int64", "uint64") and c.attr("fmod", 0),
    ),
    Quirk(
        "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        "onnxruntime counts the labels of {op} that are below zero from the end", _may_have_labels_below_zero,
    ),
    Quirk("NonZero", "onnxruntime treats a scalar as a vector in NonZero", lambda c: not c.shape()),
    Quirk(
        "ReduceL1", "onnxruntime computes {op} of {dtype} in floating point", lambda c: c.dtype() in ("int64", "uint64"),
    ),
    Quirk(
        "ReduceL2 ReduceSumSquare", "onnxruntime computes {op} of {dtype} in floating point",
        lambda c: c.dtype() in ("int32", "uint32", "int64", "uint64"),
    ),
    Quirk(
        "ReduceMax ReduceMin", "onnxruntime does not run {op} over an empty tensor of bool",
        lambda c: c.dtype() == "bool" and 0 in (c.shape() or ()),
    ),
    Quirk(
        "Resize Upsample", "onnxruntime truncates where a resize interpolates integers",
        lambda c: c.attr("mode", "nearest") != "nearest" and "int" in c.dtype(),
    ),
    Quirk(
        "Resize Upsample", "onnxruntime aligns corners by the sizes computed from the scales, not by the scales",
        _is_scaled_otherwise,
    ),
    Quirk("Resize Upsample", "onnxruntime copies an axis whose scale is not one but leaves its size unchanged", _is_copied),
    Quirk(
        "Scan", "onnxruntime ends the process if a Scan along an inner axis takes no step",
        lambda c: any((*c.attr("scan_input_axes", ()), *c.attr("scan_output_axes", ()))),
    ),
    Quirk(
        "ScatterElements ScatterND", "onnxruntime has no reduction {reduction!r} of {dtype} in {op}",
        lambda c: c.attr("reduction", "none") != "none" and c.dtype() in ("float16", "bfloat16", "bool"),
    ),
    Quirk(
        "Shrink", "onnxruntime computes Shrink of integers in float32",
        lambda c: c.dtype() in ("int32", "uint32", "int64", "uint64"),
    ),
    Quirk("Slice", "onnxruntime treats an end of 2^31 - 1 as no end, even in a Slice with a negative step", _may_end_far),
    Quirk(
        "com.microsoft.Attention", "onnxruntime reads the bias of its own Attention where there is none",
        lambda c: not c.has(2),
    ),
    Quirk(
        "com.microsoft.GatherBlockQuantized",
        "onnxruntime reads outside of GatherBlockQuantized's data where an index is too large",
    ),
)
"""The first row that applies to an op gives the reason."""

QUIRKS = Quirks(ROWS)

LOSES_NAN: Table = {
    **dict.fromkeys(
        "ArgMax ArgMin DFT DeformConv DynamicQuantizeLinear GRU GlobalMaxPool GridSample Hardmax LRN LSTM MaxPool RNN ReduceMax"
        " ReduceMin Resize RoiAlign STFT TopK Unique".split(),
        always,
    ),
    "Clip": not_known_finite(1),
    "Conv": not_known_finite(1),
    "LogSoftmax": only_of("float64"),
    "ScatterElements": with_reduction,
    "ScatterND": with_reduction,
    "Sign": only_of("float16"),
}
"""The ops refused with NAN=exact. A Clip ignores a bound that is NaN, a Conv does not multiply its padding by weights."""
