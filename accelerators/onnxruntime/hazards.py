"""What onnxruntime takes and then computes differently from ONNX's definition, or fails to run.

Each was found by ONNX's own node tests with onnxruntime 1.31; they are refused, so that another device computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graph.graph import Graph
from graph.node import Node
from graph.types import TensorType

Hazard = Callable[[Node], "str | None"]


def refused(node: Node, graph: Graph) -> str | None:
    """Why the node had better run elsewhere, if it had."""
    if node.op == "EPContext":
        return "EPContext holds or names code that an engine compiled, which no graph may bring along"
    hazard = _HAZARDS.get(node.op or "") if not node.domain else None
    return None if hazard is None else hazard(node)


def _attention(node: Node) -> str | None:
    scores = len(node.output_names) > 3 and bool(node.output_names[3])
    if scores and node.attrs.get("is_causal", 0) and _given(node, 3) and _given(node, 4):
        return "onnxruntime leaves the causal mask out of Attention's fourth output if there is a mask and a past"
    if _given(node, 6):
        return "onnxruntime takes Attention's nonpad_kv_seqlen for masks of its own length only"
    return None


def _conv_integer(node: Node) -> str | None:
    point = node.inputs[3] if _given(node, 3) else None
    if point is not None and not (isinstance(point.type, TensorType) and point.type.shape in ((), (1,))):
        return "onnxruntime knows one zero point of ConvInteger's weights only, not one for each channel"
    return None


def _conv_transpose(node: Node) -> str | None:
    """An output_shape that only negative padding reaches."""
    wanted = node.attrs.get("output_shape")
    data, weight = (entry.type if entry is not None else None for entry in node.inputs[:2])
    if not (wanted and isinstance(data, TensorType) and isinstance(weight, TensorType) and data.is_static and weight.is_static):
        return None
    dims = len(data.shape or ()) - 2
    strides, gaps, more = (node.attrs.get(k) or (d,) * dims for k, d in (("strides", 1), ("dilations", 1), ("output_padding", 0)))
    rows = zip(data.shape[2:], weight.shape[2:], strides, gaps, more, wanted[-dims:], strict=True)  # type: ignore[index]
    if any(n * s + (k - 1) * g + add < out for n, k, s, g, add, out in rows):  # type: ignore[operator]
        return "onnxruntime does not make ConvTranspose's result larger than its windows reach"
    return None


def _max_unpool(node: Node) -> str | None:
    if _given(node, 2):
        return "onnxruntime counts MaxUnpool's indices in the given output shape instead of the pooled one"
    return None


def _reduce_extreme(node: Node) -> str | None:
    made = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    if isinstance(made, TensorType) and made.dtype == "bool" and made.shape is not None and 0 in made.shape:
        return f"onnxruntime does not run {node.op} over an empty tensor of bool"
    return None


def _resize(node: Node) -> str | None:
    if node.attrs.get("coordinate_transformation_mode") != "align_corners" or node.attrs.get("mode", "nearest") == "nearest":
        return None
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    made = node.inputs[0].type if node.inputs[0] is not None else None
    if scales is None or (scales.node.value is not None and not scales.node.value.size):
        return None
    if scales.node.value is not None and isinstance(made, TensorType) and made.is_static and "axes" not in node.attrs:
        sizes = np.asarray(made.shape) * scales.node.value
        if np.array_equal(sizes, np.floor(sizes)):
            return None
    return "onnxruntime aligns corners by the scales, not by the sizes that come of them"


def _mod(node: Node) -> str | None:
    made = node.inputs[0].type if node.inputs[0] is not None else None
    if isinstance(made, TensorType) and "float" in made.dtype and not node.attrs.get("fmod", 0):
        return "onnxruntime takes floats in Mod only with fmod=1"
    if isinstance(made, TensorType) and made.dtype in ("int64", "uint64") and node.attrs.get("fmod", 0):
        return "onnxruntime computes Mod of 64-bit integers with fmod=1 in float64"
    return None


def _scatter(node: Node) -> str | None:
    made = node.inputs[0].type if node.inputs[0] is not None else None
    reduction = node.attrs.get("reduction", "none")
    if reduction != "none" and isinstance(made, TensorType) and made.dtype in ("float16", "bfloat16", "bool"):
        return f"onnxruntime has no reduction {reduction!r} of {made.dtype} in {node.op}"
    return None


def _convolution(node: Node) -> str | None:
    if _dilated_same(node):
        return f"onnxruntime refuses, while it runs, {node.op} that is dilated and padded to the same size"
    return _conv_integer(node) if node.op == "ConvInteger" else None


def _pool(node: Node) -> str | None:
    if _dilated_same(node):
        return f"onnxruntime makes other sizes of {node.op} that is dilated and padded to the same size"
    return None


def _dilated_same(node: Node) -> bool:
    same = str(node.attrs.get("auto_pad", "")).startswith("SAME")
    return same and any(step != 1 for step in node.attrs.get("dilations", ()))


def _lrn(node: Node) -> str | None:
    made = node.inputs[0].type if node.inputs[0] is not None else None
    if isinstance(made, TensorType) and made.shape is not None and len(made.shape) != 4:
        return "onnxruntime refuses, while it runs, LRN of anything but four dimensions"
    return None


def _slice(node: Node) -> str | None:
    values = [entry.node.value for entry in node.inputs[2:5] if entry is not None]
    if len(values) < 3 or values[2] is None or (values[2] > 0).all():
        return None
    if values[0] is None or (np.asarray(values[0]) >= np.iinfo(np.int32).max).any():
        return "onnxruntime takes an end of 2^31 - 1 for no end, in a Slice with a negative step too"
    return None


def _given(node: Node, number: int) -> bool:
    return len(node.inputs) > number and node.inputs[number] is not None


_HAZARDS: Mapping[str, Hazard] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _conv_transpose,
    "LRN": _lrn,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MaxUnpool": _max_unpool,
    "Mod": _mod,
    "ReduceMax": _reduce_extreme,
    "ReduceMin": _reduce_extreme,
    "QLinearConv": _convolution,
    "Resize": _resize,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Slice": _slice,
}
