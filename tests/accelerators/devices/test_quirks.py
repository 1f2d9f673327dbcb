"""Nodes that an engine accepts and computes otherwise than ONNX: each condition, and its nearest neighbour that is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import partita as pt
from partita.accelerators.engines.onnxruntime import quirks as of_onnxruntime
from partita.accelerators.engines.openvino import quirks as of_openvino
from partita.accelerators.engines.openvino.small_integers import _INDEXED
from partita.accelerators.engines.quirks import Case, Quirk
from partita.graph.types import numpy_dtype
from tests.accelerators.devices.engine_differences import PAGE, page


def v(*shape: Any, dtype: str = "float32") -> pt.Node:
    return pt.variable(None, dtype, shape)


def c(value: Any, dtype: str = "float32") -> pt.Node:
    return pt.constant(np.asarray(value, numpy_dtype(dtype)))


def ints(*values: int) -> pt.Node:
    return c(values, "int64")


def refusals(op: str, *inputs: pt.Node | None, opset: int = 21, **attributes: Any) -> tuple[str | None, str | None]:
    """The reasons of onnxruntime and of openvino."""
    node = pt.op(op, *inputs, opset=opset, name="it", **attributes)
    graph = pt.apply_pass(pt.Graph([entry for entry in node.outputs if entry.name], opsets={"": opset}), "InferShape")
    it = graph["it"]
    return of_onnxruntime.refused(it, graph), of_openvino.refused(it, graph, frozenset(graph.inputs))


def agree(reasons: tuple[str | None, str | None], ort: str | None, openvino: str | None) -> None:
    for reason, part in zip(reasons, (ort, openvino), strict=True):
        assert reason is None if part is None else part in str(reason), reason


X, IMAGE, ANY = v(4, 6), v(2, 4, 8, 8), v("N", 4, "H", "W")
WHOLE, WIDE = v(4, 6, dtype="int32"), v(4, 6, dtype="int64")
ROWS = v(5, 2, 4)
GRU_WEIGHTS = c(np.zeros((1, 9, 4))), c(np.zeros((1, 9, 3)))
LSTM_WEIGHTS = c(np.zeros((1, 12, 4))), c(np.zeros((1, 12, 3)))
KERNEL = c(np.ones((3, 4, 3, 3)))
FLAT, HALVED = {"kernel_shape": [3, 3]}, {"kernel_shape": [2, 2], "strides": [2, 2]}
NEGATIVE = "below zero from the end"


@pytest.mark.parametrize(
    ("asked", "ort", "openvino"),
    [
        (("Relu", X), None, None),
        (("Relu", v(4, dtype="float64")), None, "computes float64 in 32 bits"),
        (("Neg", v(0, 4)), None, "loses the sizes of empty tensors"),
        (("Abs", X), None, None),
        (("Mod", WHOLE, WHOLE), None, None),
        (("Mod", X, X, {"fmod": 1}), None, "Mod of large floats"),
        (("Mod", WIDE, WIDE, {"fmod": 1}), "64-bit integers with fmod=1", None),
        (("Cast", X, {"to": 9}), None, "returns False for NaN"),
        (("Cast", WHOLE, {"to": 9}), None, None),
        (("Cast", X, {"to": 10}), None, None),
        (("ReduceSum", X, ints(1)), None, None),
        (("ReduceL1", X, ints(1)), None, None),
        (("ReduceL1", X, {"noop_with_empty_axes": 1}), None, "ReduceL1 along no dimension"),
        (("ReduceL1", X, ints(1), {"noop_with_empty_axes": 1}), None, None),
        (("ReduceL1", X, {"noop_with_empty_axes": 0}), None, None),
        (("ReduceMean", X, {"noop_with_empty_axes": 1}), None, None),
        (("ReduceL1", v("N", 4), ints(1), {"keepdims": 0}), None, "may lose the kept dimensions of ReduceL1"),
        (("ReduceL1", v("N", 4), ints(1), {"keepdims": 1}), None, None),
        (("ReduceL2", v("N", 4), ints(1), {"keepdims": 0}), None, None),
        (("ReduceL1", WIDE, ints(1)), "ReduceL1 of int64 in floating point", None),
        (("ReduceL1", WHOLE, ints(1)), None, None),
        (("ReduceL2", WHOLE, ints(1)), "ReduceL2 of int32 in floating point", None),
        (("ReduceL1", X, {"axes": [1], "opset": 13}), None, "ignores the axes of ReduceL1 at opset 13"),
        (("ReduceL1", X, {"axes": [1], "opset": 11}), None, None),
        (("ReduceL1", X, {"opset": 13}), None, None),
        (("Range", c(0), c(4), c(1)), None, None),
        (("Range", v(), c(4), c(1)), None, "empty because it runs the wrong way"),
        (("QuantizeLinear", X, c(0.1), c(3, "uint8")), None, None),
        (("QuantizeLinear", X, c([0.1] * 6), c([3] * 6, "uint8")), None, None),
        (("QuantizeLinear", v(4, "N"), v("N"), v("N", dtype="uint8")), None, "along a dynamic axis"),
        (("QuantizeLinear", v("N", 4), c([0.1] * 4), c([3] * 4, "uint8")), None, None),
        (("MaxPool", IMAGE, FLAT), None, None),
        (("MaxPool", IMAGE, {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}), None, None),
        (("MaxPool", IMAGE, {"kernel_shape": [1, 1], "strides": [9, 9], "ceil_mode": 1}), None, "of padding alone"),
        (("MaxPool", IMAGE, {"kernel_shape": [1, 1], "strides": [7, 7], "ceil_mode": 1}), None, None),
        (("MaxPool", ANY, {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}), None, "of padding alone (ceil_mode)"),
        (("AveragePool", IMAGE, {**FLAT, "ceil_mode": 1, "count_include_pad": 1}), None, "beyond the padding too"),
        (("AveragePool", IMAGE, {**FLAT, "count_include_pad": 1}), None, None),
        (("LpPool", IMAGE, {**FLAT, "ceil_mode": 1}), None, "windows that end beyond the data"),
        (("LpPool", IMAGE, FLAT), None, None),
        (("GRU", ROWS, *GRU_WEIGHTS, {"hidden_size": 3}), None, None),
        (("GRU", v(2, 5, 4), *GRU_WEIGHTS, {"hidden_size": 3, "layout": 1}), None, "batch first"),
        (("GRU", ROWS, *GRU_WEIGHTS, {"hidden_size": 3, "activations": ["Affine", "Tanh"]}),
         "0 for the activation_alpha of Affine", None),
        (("GRU", ROWS, *GRU_WEIGHTS, {"hidden_size": 3, "activations": ["Affine", "Tanh"], "activation_alpha": [0.5]}),
         "0 for the activation_beta of Affine", None),
        (("GRU", ROWS, *GRU_WEIGHTS, {"hidden_size": 3, "activations": ["Affine", "Tanh"], "activation_alpha": [0.5],
                                      "activation_beta": [0.5]}), None, None),
        (("LSTM", ROWS, *LSTM_WEIGHTS, {"hidden_size": 3}), None, None),
        (("LSTM", ROWS, *LSTM_WEIGHTS, {"hidden_size": 3, "input_forget": 1}), None, "ignores input_forget"),
        (("LSTM", ROWS, *LSTM_WEIGHTS, None, None, None, None, c(np.zeros((1, 9))), {"hidden_size": 3}), None, "peepholes"),
        (("LRN", IMAGE, {"size": 3}), None, None),
        (("LRN", IMAGE, {"size": 4}), None, "even window"),
        (("LRN", IMAGE, {"size": 3, "bias": 2.0}), None, "bias other than 1"),
        (("LRN", v(2, 4, 8), {"size": 3}), "other than four dimensions", None),
        (("Compress", X, c([True, False, True], "bool"), {"axis": 0}), None, None),
        (("Compress", X, c([False, False], "bool"), {"axis": 0}), None, "Compress that keeps nothing"),
        (("Compress", X, v("N", dtype="bool"), {"axis": 0}), None, "condition is longer than the data"),
        (("NonZero", c([0, 0, 1])), None, None),
        (("NonZero", c([0, 0, 0])), None, "NonZero finds in a constant of zeros"),
        (("NonZero", v()), "a scalar as a vector", "empty tensors"),
        (("NonZero", X), None, None),
        (("Pad", X, ints(0, 1, 0, 1)), None, None),
        (("Pad", X, ints(0, 1, 0, 1), c(2)), None, None),
        (("Pad", X, ints(0, 1, 0, 1), v()), None, "pads with zeros"),
        (("Pad", X, ints(0, 1, 0, 1), v(), {"mode": "reflect"}), None, None),
        (("Slice", X, ints(0), ints(2), ints(1)), None, None),
        (("Slice", X, ints(0), ints(2), v(1, dtype="int64")), None, "axes of an empty Slice"),
        (("Slice", X, ints(5), ints(0), ints(1), ints(-1)), None, None),
        (("Slice", X, ints(5), ints(2**31 - 1), ints(1), ints(-1)), "an end of 2^31 - 1 as no end", "empty tensors"),
        (("Slice", X, ints(0), ints(2**31 - 1), ints(1), ints(1)), None, None),
        (("Slice", X, ints(0), ints(2**31 - 1), ints(1), v(1, dtype="int64")), "an end of 2^31 - 1 as no end", None),
        (("Slice", X, ints(5), ints(2**31 - 2), ints(1), ints(-1)), None, "empty tensors"),
        (("Expand", X, ints(3, 4, 6)), None, None),
        (("Expand", v(), v(0, dtype="int64")), None, "without dimensions"),
        (("GatherElements", X, v(4, 2, dtype="int64"), {"axis": 1}), None, None),
        (("GatherElements", X, v(3, 6, dtype="int64"), {"axis": 0}), None, None),
        (("GatherElements", X, v(3, 6, dtype="int64"), {"axis": 1}), None, "as long as the data along the other dimensions"),
        (("GatherElements", X, v("N", 6, dtype="int64"), {"axis": 1}), None, None),
        (("GatherElements", X, v(3, 6, dtype="int64"), {"axis": -2}), None, None),
        (("Unique", X), None, "sorts floats wrongly"),
        (("Unique", WHOLE), None, None),
        (("Conv", IMAGE, KERNEL), None, None),
        (("ConvTranspose", IMAGE, c(np.ones((4, 3, 3, 3)))), None, None),
        (("ConvTranspose", IMAGE, c(np.ones((4, 3, 3, 3))), {"output_shape": [16, 16], "strides": [2, 2]}), None,
         "pads differently for output_shape"),
        (("ConvTranspose", IMAGE, c(np.ones((4, 3, 3, 3))), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}), None, None),
        (("ConvTranspose", ANY, c(np.ones((4, 3, 3, 3))), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}), None, "auto_pad"),
        (("ConvTranspose", ANY, c(np.ones((4, 3, 3, 3))), {"strides": [2, 2]}), None, None),
        (("Shrink", X), None, None),
        (("Shrink", WHOLE), "Shrink of integers", "bias and the threshold"),
        (("Shrink", v(4, dtype="int8")), None, "bias and the threshold"),
        (("Trilu", X, c(1, "int64")), None, None),
        (("Trilu", X, c(2**31, "int64")), None, "32 bits of Trilu's diagonal"),
        (("Trilu", X, c(-(2**31), "int64")), None, "32 bits of Trilu's diagonal"),
        (("Trilu", X, c(2**31 - 1, "int64")), None, None),
        (("Trilu", X), None, None),
        (("TopK", X, ints(2)), None, "any index among equal elements"),
        (("GlobalLpPool", IMAGE), None, None),
        (("GlobalLpPool", ANY), None, "needs fixed sizes"),
        (("Softmax", X, {"axis": 0, "opset": 13}), None, None),
        (("Softmax", X, {"axis": 0, "opset": 12}), None, "normalises over all dimensions from 0 on"),
        (("Softmax", X, {"axis": 1, "opset": 12}), None, None),
        (("Softmax", X, {"axis": -1, "opset": 12}), None, None),
        (("Softmax", v(2, 3, 4), {"opset": 11}), None, "normalises over all dimensions from 1 on"),
        (("Tile", X, ints(2, 1)), None, None),
        (("Tile", X, v(2, dtype="int64")), None, "constant repeats"),
        (("OneHot", WIDE, c(3, "int64"), c([0, 1])), None, None),
        (("OneHot", WIDE, c(3, "int64"), c([0, 1]), {"opset": 10}), None, "OneHot of opset 9"),
        (("OneHot", WIDE, c(3, "int64"), c([0, 1]), {"opset": 11}), None, None),
        (("RoiAlign", IMAGE, v(3, 4), v(3, dtype="int64"), {"sampling_ratio": 2}), None, None),
        (("RoiAlign", IMAGE, v(3, 4), v(3, dtype="int64"), {"sampling_ratio": 2, "mode": "max"}), None, "mode max"),
        (("RoiAlign", IMAGE, v(3, 4), v(3, dtype="int64"), {"sampling_ratio": 2, "opset": 15}), None, "below opset 16"),
        (("BitShift", v(4, dtype="uint8"), v(4, dtype="uint8"), {"direction": "LEFT"}), None, None),
        (("BitShift", v(dtype="uint8"), v(dtype="uint8"), {"direction": "LEFT"}), None, "vector for a BitShift"),
        (("AffineGrid", v(2, 2, 3), ints(2, 3, 4, 4)), None, None),
        (("AffineGrid", v(2, 2, 3), ints(2, 3, 4, 4), {"align_corners": 1}), None, None),
        (("AffineGrid", v(2, 2, 3), ints(2, 3, 1, 4), {"align_corners": 1}), "the only pixel of an axis", None),
        (("AffineGrid", v(2, 2, 3), v(4, dtype="int64"), {"align_corners": 1}), "the only pixel of an axis", None),
        (("Col2Im", v(1, 18, 12), ints(7, 9), ints(3, 3), {"strides": [2, 2], "pads": [0, 0, 1, 0], "dilations": [1, 1]}),
         None, None),
        (("Col2Im", v(1, 6, 5), ints(7), ints(3), {"dilations": [1]}), None, None),
        (("Col2Im", v(1, 6, 3), ints(7), ints(3), {"dilations": [2]}), "dilated Col2Im", None),
        (("Einsum", X, v(6, 3), {"equation": "ij,jk->ik"}), None, None),
        (("Einsum", WHOLE, v(6, 3, dtype="int32"), {"equation": "ij,jk->ik"}), "integers of Einsum", None),
        (("MaxUnpool", v(1, 1, 2, 2), v(1, 1, 2, 2, dtype="int64"), HALVED), None, None),
        (("MaxUnpool", v(1, 1, 2, 2), v(1, 1, 2, 2, dtype="int64"), ints(1, 1, 5, 5), HALVED), "MaxUnpool's indices", None),
        (("ScatterElements", X, v(2, 6, dtype="int64"), v(2, 6)), None, None),
        (("ScatterElements", X, v(2, 6, dtype="int64"), v(2, 6), {"reduction": "add"}), None, None),
        (("ScatterElements", v(4, dtype="float16"), v(2, dtype="int64"), v(2, dtype="float16"), {"reduction": "add"}),
         "no reduction 'add' of float16", None),
        (("ScatterElements", v(4, dtype="float16"), v(2, dtype="int64"), v(2, dtype="float16")), None, None),
        (("GatherND", v(2, 3, 4), v(2, 5, 1, dtype="int64"), {"batch_dims": 1}), None, None),
        (("GatherND", v("N", 3, 4), v("N", 5, 1, dtype="int64"), {"batch_dims": 1}), None, None),
        (("GatherND", v("N", 3, 4), v("M", 5, 1, dtype="int64"), {"batch_dims": 1}), "more batches", None),
        (("GatherND", v("N", 3, 4), v("M", 5, 1, dtype="int64")), None, None),
        (("NegativeLogLikelihoodLoss", X, ints(0, 1, 2, 3)), None, None),
        (("NegativeLogLikelihoodLoss", X, ints(0, -1, 2, 3)), NEGATIVE, None),
        (("NegativeLogLikelihoodLoss", X, ints(0, -1, 2, 3), {"ignore_index": -1}), None, None),
        (("NegativeLogLikelihoodLoss", X, v(4, dtype="int64")), NEGATIVE, None),
        (("MatMulInteger", v(4, 6, dtype="uint8"), v(6, 3, dtype="uint8"), v(dtype="uint8")), None, None),
        (("MatMulInteger", v(4, 6, dtype="uint8"), v(6, 3, dtype="uint8"), v(4, dtype="uint8")), "for each row", None),
        (("MatMulInteger", v(4, 6, dtype="uint8"), v(6, 3, dtype="uint8"), v(dtype="uint8"), v(3, dtype="uint8")), None, None),
        (("Resize", IMAGE, None, c([1, 1, 2, 2])), None, None),
        (("Resize", IMAGE, None, c([1, 1, 2, 2]), {"mode": "linear", "antialias": 1}), None, "antialiasing differs"),
        (("Resize", IMAGE, None, c([1, 1, 2, 2]), {"mode": "cubic", "exclude_outside": 1}), None, "exclude_outside"),
        (("Resize", IMAGE, None, None, ints(2, 4, 9, 7), {"keep_aspect_ratio_policy": "not_larger"}), None, "keep_aspect"),
        (("Resize", IMAGE, None, c([1, 1, 2, 2]), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}), None,
         "aligns corners by the scales"),
        (("Resize", IMAGE, None, c([1, 1, 1.3, 2]), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
         "aligns corners by the sizes", "aligns corners by the scales"),
        (("Resize", IMAGE, None, None, ints(2, 4, 9, 7), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
         None, None),
        (("Resize", IMAGE, None, c([1, 1, 1.1, 2])), None, "a scale other than one"),
        (("Resize", IMAGE, None, c([1, 1, 1.1, 1.1])), "whose scale is not one", "a scale other than one"),
        (("Resize", v(1, 1, 4, 4, dtype="int32"), None, c([1, 1, 2, 2]), {"mode": "linear"}), "interpolates integers", None),
        (("Upsample", IMAGE, c([1, 1, 2, 2]), {"opset": 9}), None, None),
        (("Upsample", IMAGE, c([1, 1, 1.5, 2]), {"opset": 9}), None, "fractional scales"),
    ],
    ids=lambda row: f"{row[0]}" if isinstance(row, tuple) else None,
)
def test_what_an_engine_computes_otherwise(asked: tuple[Any, ...], ort: str | None, openvino: str | None) -> None:
    op, *rest = asked
    attributes = rest.pop() if rest and isinstance(rest[-1], dict) else {}
    agree(refusals(op, *rest, **attributes), ort, openvino)


def test_results_that_are_read_decide() -> None:
    pooled = {"kernel_shape": [2, 2], "n_outputs": 2}
    agree(refusals("MaxPool", v(1, 1, 4, 4, dtype="uint8"), **pooled), None, "an index in the padding for a zero")
    agree(refusals("MaxPool", v(1, 1, 4, 4, dtype="int8"), **pooled), None, None)
    agree(refusals("MaxPool", v(1, 1, 4, 4, dtype="uint8"), kernel_shape=[2, 2]), None, None)
    agree(refusals("Unique", WHOLE, axis=0, n_outputs=2), None, "Unique along an axis")
    agree(refusals("Unique", WHOLE, axis=0, output_names=("y", "", "inverse")), None, None)
    agree(refusals("Unique", WHOLE, n_outputs=4), None, None)


def test_what_follows_from_constants() -> None:
    """Openvino drops an Abs of what it folds; an input of the whole graph is none."""
    x = v(3)
    graph = pt.apply_pass(pt.Graph([pt.op("Abs", pt.op("Neg", c([1, 2, 3])), name="it"), pt.op("Neg", x)], [x]), "InferShape")
    assert "drops an Abs" in str(of_openvino.refused(graph["it"], graph, frozenset(graph.inputs)))
    graph = pt.apply_pass(pt.Graph([pt.op("Abs", pt.op("Neg", x), name="it")], [x]), "InferShape")
    assert of_openvino.refused(graph["it"], graph, frozenset(graph.inputs)) is None
    assert "drops an Abs" in str(of_openvino.refused(graph["it"], graph, frozenset())), "an input of a body may be a constant"


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("quantized", [True, False])
def test_convolutions_of_dequantized_data(constant: bool, quantized: bool) -> None:
    step, zero = c(0.1), c(3, "uint8")
    source = c(np.ones((1, 4, 8, 8))) if constant else v(1, 4, 8, 8)
    whole = c(np.ones((1, 4, 8, 8)), "uint8") if constant else v(1, 4, 8, 8, dtype="uint8")
    data = pt.op("DequantizeLinear", pt.op("QuantizeLinear", source, step, zero) if quantized else whole, step, zero)
    agree(refusals("Conv", data, KERNEL), None, "loses the zero point of constant data" if constant else None)


def test_the_page_of_differences_is_what_the_tables_say() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.accelerators.devices.engine_differences writes it"


@pytest.mark.parametrize("op", _INDEXED)
def test_sizes_axes_and_indices_are_read_where_onnx_has_them(op: str) -> None:
    inputs = onnx.defs.get_schema(op, 10 if op == "Scatter" else 21).inputs
    names = {inputs[slot].name for slot in _INDEXED[op]}
    assert names <= set(
        "K axes axis batch_indices depth indices input k max_output_boxes_per_class pads repeats sequence_lens shape sizes split "
        "starts ends steps".split()
    )
    assert all("tensor(int64)" in inputs[slot].types and (op, slot) != ("OneHot", 2) for slot in _INDEXED[op])


def test_attributes_are_words_that_hide_no_others() -> None:
    node = pt.op("Mine", v(2), domain="mine", name="it", op="other", dtype="other", text=b"\xff")
    graph = pt.Graph([node])
    assert Quirk("mine.Mine", "{op} of {dtype}: {text}").reason(Case(node, graph)) == "Mine of float32: b'\\xff'"
    assert Case(node, graph).attr("text") == "\N{REPLACEMENT CHARACTER}"


def test_every_row_can_be_a_reason() -> None:
    """The first row of an op without a condition hides those behind it; conditions see the opset."""
    for quirks in (of_onnxruntime.QUIRKS, of_openvino.QUIRKS):
        for rows in quirks.by_op.values():
            certain = [row.when is Quirk("Op", "why").when for row in rows]
            assert not any(certain[:-1]) and all(row.since < row.until for row in rows)
