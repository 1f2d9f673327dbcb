"""Ops of ai.onnx.ml, and ops on nothing and in odd forms that onnxruntime takes, against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

import partita as pt

onnxruntime = pytest.importorskip("onnxruntime")


def check(model: onnx.ModelProto, feed: dict[str, Any], device: str = "reference") -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for result, wanted in zip(pt.compile(pt.load(model), device)(feed), session.run(None, feed), strict=True):
        if isinstance(wanted, list):
            assert result == wanted
            continue
        assert result.dtype == wanted.dtype and result.shape == wanted.shape
        if wanted.dtype == object:
            assert result.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-7)


def learned(op: str, x: np.ndarray, version: int, results: list[int], **attributes: Any) -> onnx.ModelProto:
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(results)]
    node = helper.make_node(op, ["x"], [value.name for value in outputs], domain="ai.onnx.ml", **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, x.shape)], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def tensor(values: list[Any], dtype: str) -> onnx.TensorProto:
    array = np.array(values, object if dtype == "string" else dtype)
    return onnx.numpy_helper.from_array(array, "t")


TEXTS = np.array([["a", "b"], ["c", ""]], object)
WHOLE = np.array([3, 1, 2, 9], np.int64)
REAL = np.array([0.1, np.nan, 7.0, 0.0], np.float32)

LABELS: dict[str, tuple[np.ndarray, int, int, dict[str, Any]]] = {
    "classes": (TEXTS, 1, 7, {"classes_strings": ["a", "c"]}),
    "classes back": (np.array([1, 0, 5], np.int64), 1, 8, {"classes_strings": ["a", "c"], "default_string": "none"}),
    "texts to floats": (TEXTS, 2, 1, {"keys_strings": ["a", "b"], "values_floats": [1.5, 2.5]}),
    "floats to integers": (REAL, 4, 7, {"keys_floats": [0.1, float("nan")], "values_int64s": [4, 5], "default_int64": 8}),
    "tensors": (WHOLE, 4, 1, {"keys_tensor": tensor([1, 2], "int64"), "values_tensor": tensor([0.5, 1.5], "float32"),
                              "default_tensor": tensor([-7.0], "float32")}),
    "tensors without a default": (WHOLE, 4, 8, {"keys_tensor": tensor([1, 2], "int64"),
                                                "values_tensor": tensor(["a", "b"], "string")}),
}


@pytest.mark.parametrize("case", LABELS)
def test_label_encoders(case: str) -> None:
    x, version, result, attributes = LABELS[case]
    check(learned("LabelEncoder", x, version, [result], **attributes), {"x": x})


def test_vectors_of_features() -> None:
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 1, 3), np.ones((2, 2), np.float32), np.ones((2, 1), np.float32)]
    names = ["a", "b", "c"]
    node = helper.make_node("FeatureVectorizer", names, ["y"], domain="ai.onnx.ml", inputdimensions=[3, 1, 2])
    infos = [helper.make_tensor_value_info(name, 1, array.shape) for name, array in zip(names, arrays, strict=True)]
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 1, None)])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    check(helper.make_model(graph, opset_imports=opsets, ir_version=8), dict(zip(names, arrays, strict=True)))


def test_a_linear_classifier_with_more_coefficients_than_it_needs() -> None:
    numbers = [0.4, 1.4, -2.1, -1.0, 0.6, -1.7, 0.5, -1.4, -1.7, -1.2, 2.2, 2.4]
    x = np.array([[1.0, 2.0], [-0.5, 0.25], [3.0, -1.0]], np.float32)
    attributes = {"coefficients": numbers, "intercepts": [0.25, 0.5, -1.0], "classlabels_ints": [0, 1, 2]}
    check(learned("LinearClassifier", x, 1, [7, 1], post_transform="LOGISTIC", **attributes), {"x": x})


@pytest.mark.parametrize("to", [1, 2, 3, 7, 9, 10, 13])
@pytest.mark.parametrize("text", ["3", "3.7", "-2", " 5 ", "+4", "300", "-0", "9007199254740993"])
def test_texts_as_numbers(text: str, to: int) -> None:
    proto = model(f"g (string[1] x) => (y) {{ y = Cast <to = {to}> (x) }}")
    check(proto, {"x": np.array([text], object)})


@pytest.mark.parametrize("text", ["abc", "", "1_000", "true"])
@pytest.mark.parametrize("to, kind", [(7, "whole number"), (1, "number")])
def test_a_text_that_is_no_number(text: str, to: int, kind: str) -> None:
    graph = pt.load(model(f"g (string[1] x) => (y) {{ y = Cast <to = {to}> (x) }}"))
    with pytest.raises(pt.PartitaError, match=f"the text '{text}' stands for no {kind}"):
        pt.compile(graph, "reference")(np.array([text], object))


def test_truths_as_text_and_back() -> None:
    proto = model("g (bool[2] x) => (string[2] t, int8[2] y) { t = Cast <to = 8> (x) y = Cast <to = 3> (t) }")
    check(proto, {"x": np.array([True, False])})


@pytest.mark.parametrize("labels", [{"classlabels_strings": ["a", "b"]}, {"classlabels_int64s": [5, 3]}])
def test_rows_as_dictionaries(labels: dict[str, Any]) -> None:
    x = np.array([[0.25, 0.5], [1.0, 2.0]], np.float32)
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", **labels)
    key = 8 if "classlabels_strings" in labels else 7
    value = helper.make_tensor_type_proto(1, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, x.shape)], [helper.make_value_info("y", kind)]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    check(helper.make_model(graph, opset_imports=opsets, ir_version=8), {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tree_ensemble_with_tensors(dtype: str) -> None:
    """A threshold between two doubles that are one float: the tensor's own precision decides."""
    threshold = 1 + (2.0**-40 if dtype == "float64" else 0)
    nodes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "nodes_values_as_tensor": tensor([threshold, 0, 0], dtype),
    }
    attributes = nodes | {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "n_targets": 1}
    attributes["target_weights_as_tensor"] = tensor([0.25, 0.75], dtype)
    x = np.array([[0.5], [1.0], [1 + 2.0**-39], [3.0]], dtype)
    check(learned("TreeEnsembleRegressor", x, 3, [1], **attributes), {"x": x})


def test_a_classifier_with_tensors_is_the_one_with_lists() -> None:
    numbers = {"nodes_values": [1.5, 0.0, 0.0], "class_weights": [0.25, 0.75]}
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "nodes_missing_value_tracks_true": [0, 0, 0], "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1],
        "classlabels_int64s": [3, 4],
    }
    x = np.array([[0.5], [3.0]], np.float32)
    lists = learned("TreeEnsembleClassifier", x, 3, [7, 1], **attributes, **numbers)
    tensors = {f"{name}_as_tensor": tensor(values, "float32") for name, values in numbers.items()}
    results = pt.compile(pt.load(learned("TreeEnsembleClassifier", x, 3, [7, 1], **attributes, **tensors)), "reference")(x)
    assert results[0].tolist() == [3, 4]
    for result, wanted in zip(results, pt.compile(pt.load(lists), "reference")(x), strict=True):
        np.testing.assert_array_equal(result, wanted)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


@pytest.mark.parametrize("device", ["reference", "HETERO:cpu,reference"])
@pytest.mark.parametrize("kind, turns", [("float", 0), ("int64", 0), ("int64", 2)])
def test_a_loop_of_no_turn_whose_results_have_no_known_rank(kind: str, turns: int, device: str) -> None:
    proto = model(f"""g (int64 n, bool c, {kind}[N] x, int64[K] s) => ({kind} v, {kind} r) {{
      v, r = Loop (n, c, x) <body = b (int64 i, bool ci, {kind} xi) => (bool co, {kind} xo, {kind} so) {{
        co = Identity(ci) xo = Neg(xi) so = Reshape(xo, s) }}> }}""")
    x = np.ones(4, {"float": np.float32, "int64": np.int64}[kind])
    check(proto, {"n": np.array(turns), "c": np.array(True), "x": x, "s": np.array([2, 2])}, device)


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("rows", [0, 3])
def test_a_dynamic_range_of_nothing(rows: int, device: str) -> None:
    proto = model("g (float[N] x) => (uint8[N] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }")
    check(proto, {"x": np.linspace(-1, 2, rows, dtype=np.float32)}, device)


def test_a_batch_norm_of_one_dimension() -> None:
    proto = model("g (float[10] x, float[1] s, float[1] b, float[1] m, float[1] v) => (float[10] y) "
                  "{ y = BatchNormalization (x, s, b, m, v) }")
    rng = np.random.default_rng(2)
    feed = {name: np.abs(rng.standard_normal(10 if name == "x" else 1)).astype(np.float32) for name in "xsbmv"}
    check(proto, feed)


def test_a_layer_norm_that_names_no_type_for_its_statistics() -> None:
    proto = model("g (float[2, 6] x, float[6] s) => (float[2, 6] y) { y = LayerNormalization <stash_type = 0> (x, s) }")
    rng = np.random.default_rng(3)
    check(proto, {"x": rng.integers(-4, 5, (2, 6)).astype(np.float32), "s": np.ones(6, np.float32)})


@pytest.mark.parametrize("device", ["reference", "HETERO:cpu,reference"])
def test_the_product_of_an_attention_that_is_capped_later(device: str) -> None:
    proto = onnx.parser.parse_model("""<ir_version: 11, opset_import: ["" : 23]>
      g (float[1, 2, 3, 4] q, float[1, 2, 5, 4] k, float[1, 2, 5, 4] v) => (float[1, 2, 3, 4] y, float[1, 2, 3, 5] s) {
        y, , , s = Attention <softcap = 2.0> (q, k, v) }""")
    rng = np.random.default_rng(2)
    feed = {name: rng.standard_normal((1, 2, rows, 4)).astype(np.float32) for name, rows in (("q", 3), ("k", 5), ("v", 5))}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for result, wanted in zip(pt.compile(pt.load(proto), device)(feed), session.run(None, feed), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rank, onesided, windowed", [(2, 1, True), (2, 0, False), (3, 1, False), (3, 0, True)])
def test_spectra_of_signals(rank: int, onesided: int, windowed: bool) -> None:
    """torch's exporter writes signals of two dimensions, where ONNX asks for three."""
    shape = [2, 40] + [1] * (rank - 2)
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]> g (float{shape} x, float[16] w) => (float[] y)
      <int64 step = {{5}}, int64 length = {{16}}> {{
        y = STFT <onesided = {onesided}> (x, step, {"w" if windowed else ""}, length) }}""")
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(4)
    feed = {"x": rng.standard_normal(shape).astype(np.float32), "w": np.hanning(16).astype(np.float32)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,), (wanted,) = pt.compile(pt.load(proto), "reference")(feed), session.run(None, feed)
    assert result.dtype == wanted.dtype and result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, atol=1e-5)


def test_a_frame_that_does_not_fit_its_signal_or_a_reduction_that_is_none() -> None:
    one = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8, 1] x) => (y)
      <int64 step = {5}, int64 length = {16}> { y = STFT (x, step, , length) }""")
    with pytest.raises(pt.PartitaError, match="a frame of 16 does not fit a signal of 8"):
        pt.compile(pt.load(one), "reference")(np.ones((2, 8, 1), np.float32))
    other = model("""g (float[2] x) => (float[2] y) <int64[1] i = {0}, float[1] u = {3}> {
      y = ScatterElements <reduction = "sum"> (x, i, u) }""")
    with pytest.raises(pt.PartitaError, match="its reduction is 'sum': none, add, mul, max, min are known"):
        pt.compile(pt.load(other), "reference")(np.ones(2, np.float32))


def test_a_norm_along_no_axis_is_one_along_all() -> None:
    """As in the body that ONNX defines it by, whose means are along all axes then."""
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    norm = pt.op("MeanVarianceNormalization", pt.variable("x", "float32", x.shape), axes=[], opset=13)
    graph = pt.Graph([norm], opsets={"": 13})
    for device in ("reference", "HETERO:cpu,reference"):
        np.testing.assert_allclose(pt.compile(graph, device)(x)[0], (x - x.mean()) / x.std(), rtol=1e-5)


COORDINATES = [(0, (0,)), (0, (2, 0)), (0, (5, 2)), (1, (3, 2)), (1, (3, 6, 1)), (1, (3, 4, 0)), (2, (3, 4, 1))]


@pytest.mark.parametrize("batch, shape", COORDINATES)
def test_slices_at_coordinates(batch: int, shape: tuple[int, ...]) -> None:
    x = np.arange(120, dtype=np.float32).reshape(3, 4, 5, 2)
    indices = np.random.default_rng(1).integers(-2, 2, shape)
    proto = model(f"g (float[3, 4, 5, 2] x, int64{list(shape)} i) => (y) {{ y = GatherND <batch_dims = {batch}> (x, i) }}")
    check(proto, {"x": x, "i": indices})


def test_batches_of_indices_that_are_not_those_of_the_data() -> None:
    graph = pt.load(model("g (float[A, 4] x, int64[B, 1] i) => (y) { y = GatherND <batch_dims = 1> (x, i) }"))
    with pytest.raises(pt.PartitaError, match="3 and 1|batches of"):
        pt.compile(graph, "reference")(np.ones((3, 4), np.float32), np.zeros((1, 1), np.int64))
