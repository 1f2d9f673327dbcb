"""The nodes that onnxruntime accepts, but then computes differently from ONNX's definition or fails to run.

Each was found by ONNX's own node tests with onnxruntime 1.31; they are refused, so that another device computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from partita.accelerators.engines.lost_nan import Table, always, not_known_finite, only_of, with_reduction
from partita.accelerators.engines.lower_bounds import Sizes, has_elements
from partita.accelerators.engines.operands import has_scales, known_scales, may_leave_all_sizes, scaled_sizes
from partita.accelerators.interface.empty_reductions import may_be_empty, sums_nothing
from partita.accelerators.onnxruntime import windows
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Dim, TensorType

Hazard = Callable[[Node], "str | None"]

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
    if node.op == "GatherBlockQuantized":
        return "onnxruntime reads outside of GatherBlockQuantized's data where an index is too large"
    if node.op == "Attention" and node.domain == "com.microsoft" and not _given(node, 2):
        return "onnxruntime reads the bias of its own Attention where there is none"
    hazard = _HAZARDS.get(node.op or "") if not node.domain else None
    known = None if hazard is None else hazard(node)
    return known or sums_nothing(node) or may_be_empty(node, graph)


def _attention(node: Node) -> str | None:
    scores = len(node.output_names) > 3 and bool(node.output_names[3])
    if scores and node.attrs.get("is_causal", 0) and _given(node, 3) and _given(node, 4):
        return "onnxruntime leaves the causal mask out of Attention's fourth output if there is a mask and a past"
    if _given(node, 6):
        return "onnxruntime takes Attention's nonpad_kv_seqlen for masks of its own length only"
    return None


def _affine_grid(node: Node) -> str | None:
    sizes = node.inputs[1].node.value if _given(node, 1) else None  # type: ignore[union-attr]
    if not node.attrs.get("align_corners", 0) or (sizes is not None and (sizes[2:] > 1).all()):
        return None
    return "onnxruntime puts the only pixel of an axis elsewhere in AffineGrid with align_corners"


def _col2im(node: Node) -> str | None:
    dilations = node.attrs.get("dilations", ())
    if len(dilations) in (0, 2) or max(dilations) == 1:
        return None
    return "onnxruntime misplaces the columns of a dilated Col2Im of anything but images"


def _conv_integer(node: Node) -> str | None:
    point = node.inputs[3] if _given(node, 3) else None
    if point is not None and not (isinstance(point.type, TensorType) and point.type.shape in ((), (1,))):
        return "onnxruntime knows one zero point of ConvInteger's weights only, not one for each channel"
    return None


def _einsum(node: Node) -> str | None:
    whole = any(isinstance(entry.type, TensorType) and "int" in entry.type.dtype for entry in node.reads)
    return "onnxruntime sums the integers of Einsum in floating point" if whole else None


def _integer_product(node: Node) -> str | None:
    """Checks the zero point, and for QLinearMatMul the scale, of the first matrix and of the result."""
    slots = (2,) if node.op == "MatMulInteger" else (1, 2, 6, 7)
    for slot in slots:
        kind = node.inputs[slot].type if _given(node, slot) else None  # type: ignore[union-attr]
        if isinstance(kind, TensorType) and kind.shape not in (None, (), (1,)):
            return f"onnxruntime refuses, while it runs, {node.op} with a zero point or a scale for each row"
    return None


def _scan(node: Node) -> str | None:
    axes = (*node.attrs.get("scan_input_axes", ()), *node.attrs.get("scan_output_axes", ()))
    return "onnxruntime ends the process where a Scan along an inner axis takes no step" if any(axes) else None


def _max_unpool(node: Node) -> str | None:
    if _given(node, 2):
        return "onnxruntime counts MaxUnpool's indices in the given output shape instead of the pooled one"
    return None


def _reduce_extreme(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if isinstance(data_type, TensorType) and data_type.dtype == "bool" and data_type.shape is not None and 0 in data_type.shape:
        return f"onnxruntime does not run {node.op} over an empty tensor of bool"
    return None


def _mod(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    if isinstance(data_type, TensorType) and "float" in data_type.dtype and not node.attrs.get("fmod", 0):
        return "onnxruntime takes floats in Mod only with fmod=1"
    if isinstance(data_type, TensorType) and data_type.dtype in ("int64", "uint64") and node.attrs.get("fmod", 0):
        return "onnxruntime computes Mod of 64-bit integers with fmod=1 in float64"
    return None


def _scatter(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    reduction = node.attrs.get("reduction", "none")
    if reduction != "none" and isinstance(data_type, TensorType) and data_type.dtype in ("float16", "bfloat16", "bool"):
        return f"onnxruntime has no reduction {reduction!r} of {data_type.dtype} in {node.op}"
    return None


def _lrn(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    if isinstance(data_type, TensorType) and data_type.shape is not None and len(data_type.shape) != 4:
        return "onnxruntime refuses, while it runs, LRN of anything but four dimensions"
    return None


def _whole_norm(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    whole = ("int64", "uint64") if node.op == "ReduceL1" else ("int32", "uint32", "int64", "uint64")
    if isinstance(data_type, TensorType) and data_type.dtype in whole:
        return f"onnxruntime computes {node.op} of {data_type.dtype} in floating point"
    return None


def _shrink(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    wide = isinstance(data_type, TensorType) and data_type.dtype in ("int32", "uint32", "int64", "uint64")
    return "onnxruntime computes Shrink of whole numbers in 32-bit floats" if wide else None


def _slice(node: Node) -> str | None:
    ends, steps = (node.inputs[slot].node.value if _given(node, slot) else None for slot in (2, 4))  # type: ignore[union-attr]
    if not _given(node, 4) or (steps is not None and (np.asarray(steps) > 0).all()):
        return None
    if ends is None or (np.asarray(ends) >= np.iinfo(np.int32).max).any():
        return "onnxruntime takes an end of 2^31 - 1 for no end, in a Slice with a negative step too"
    return None


def _loss(node: Node) -> str | None:
    labels = node.inputs[1].node.value if _given(node, 1) else None  # type: ignore[union-attr]
    if labels is not None and not ((labels < 0) & (labels != node.attrs.get("ignore_index"))).any():
        return None
    return f"onnxruntime counts the labels of {node.op} that are below zero from the end"


def _gather_rows(node: Node) -> str | None:
    data, indices = [getattr(entry and entry.type, "shape", None) for entry in node.inputs[:2]]
    count = int(node.attrs.get("batch_dims", 0))
    known = data is not None and indices is not None and tuple(data[:count]) == tuple(indices[:count])
    if not count or (known and None not in (data or ())[:count]):
        return None
    return "onnxruntime reads outside of the data where GatherND's indices have more batches, which cannot be known before"


def _recurrent(node: Node) -> str | None:
    unstated = [name for name in ("activation_alpha", "activation_beta") if not node.attrs.get(name)]
    named = {str(name) for name in node.attrs.get("activations") or ()} & {"Affine", "ScaledTanh", "ThresholdedRelu"}
    return f"onnxruntime takes 0 for the {unstated[0]} of {min(named)} that is not stated" if unstated and named else None


def _non_zero(node: Node) -> str | None:
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    is_scalar = not isinstance(data_type, TensorType) or not data_type.rank
    return "onnxruntime takes a scalar for a vector in NonZero" if is_scalar else None


def _given(node: Node, number: int) -> bool:
    return len(node.inputs) > number and node.inputs[number] is not None


def _resize(node: Node) -> str | None:
    """Resizes of integers, and by scales that do not give integer sizes, differ from ONNX's definition."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    is_mixed = node.attrs.get("mode", "nearest") != "nearest"
    if is_mixed and isinstance(data_type, TensorType) and "int" in data_type.dtype:
        return "onnxruntime cuts off what is behind the point where a resize mixes whole numbers"
    if not has_scales(node):
        return None
    scales = known_scales(node)
    aligned = node.attrs.get("coordinate_transformation_mode") == "align_corners"
    if aligned and not _makes_whole_sizes(scaled_sizes(node, scales), scales):
        return "onnxruntime aligns corners by the sizes that come of the scales, not by the scales"
    if scales is not None and may_leave_all_sizes(node, scales):
        return "onnxruntime copies what a scale that is not one leaves as large as it was"
    return None


def _makes_whole_sizes(shape: tuple[Dim, ...], scales: np.ndarray[Any, Any] | None) -> bool:
    if scales is None or not all(isinstance(size, int) for size in shape):
        return False
    sizes = np.asarray(shape, np.float64) * scales
    return np.array_equal(sizes, np.floor(sizes))


_HAZARDS: Mapping[str, Hazard] = {
    "AffineGrid": _affine_grid,
    "Attention": _attention,
    "AveragePool": windows.pool,
    "Col2Im": _col2im,
    "Conv": windows.convolution,
    "ConvInteger": lambda node: windows.convolution(node) or _conv_integer(node),
    "ConvTranspose": windows.transposed,
    "Einsum": _einsum,
    "GRU": _recurrent,
    "GatherND": _gather_rows,
    "LRN": _lrn,
    "LSTM": _recurrent,
    "LpPool": windows.pool,
    "MatMulInteger": _integer_product,
    "MaxPool": windows.pool,
    "MaxUnpool": _max_unpool,
    "MeanVarianceNormalization": lambda node: "onnxruntime makes NaN of equal numbers in MeanVarianceNormalization",
    "Mod": _mod,
    "NonZero": _non_zero,
    "RNN": _recurrent,
    "ReduceL1": _whole_norm,
    "ReduceL2": _whole_norm,
    "ReduceMax": _reduce_extreme,
    "ReduceMin": _reduce_extreme,
    "ReduceSumSquare": _whole_norm,
    "NegativeLogLikelihoodLoss": _loss,
    "QLinearConv": windows.convolution,
    "QLinearMatMul": _integer_product,
    "Resize": _resize,
    "Scan": _scan,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shrink": _shrink,
    "Slice": _slice,
    "SoftmaxCrossEntropyLoss": _loss,
    "Upsample": _resize,
}

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
