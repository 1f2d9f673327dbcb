"""Files that deviate from ONNX and that onnxruntime reads: read with a note, or with `strict` refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

import partita as pt
from partita.graph.errors import PartitaError, ReadError
from tests.close import assert_close


def model(text: str, opsets: str = '"" : 18') -> onnx.ModelProto:
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> {text}")


def reordered(proto: onnx.ModelProto, order: list[int]) -> onnx.ModelProto:
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend([nodes[i] for i in order])
    return proto


CHAIN = "g (float[4] x) => (float[4] y) { a = Neg (x) b = Abs (a) c = Exp (x) y = Add (b, c) }"


def test_nodes_out_of_order_are_sorted_with_a_note() -> None:
    right = pt.load(model(CHAIN))
    proto = reordered(model(CHAIN), [3, 1, 2, 0])
    with pytest.raises(ReadError, match="the nodes are unsorted: 'b' is made by a later node, 'b' .Abs."):
        pt.load(proto, strict=True)
    graph = pt.load(proto)
    (note,) = graph.attrs["notes"]
    assert note == "g, node 'y' (Add): the nodes are unsorted: 'b' is made by a later node, 'b' (Abs); they are sorted"
    assert [node.name for node in graph.nodes if node.is_op] == ["c", "a", "b", "y"]
    x = np.arange(4, dtype=np.float32)
    compiled = pt.compile(graph, "reference")
    np.testing.assert_array_equal(compiled(x)[0], pt.compile(right, "reference")(x)[0])
    assert compiled.report.notes[0] == note
    assert "notes" not in right.attrs


def test_a_body_that_reads_a_later_node_and_bodies_out_of_order() -> None:
    text = """g (float[4] x, bool c) => (float[4] y) {
      y = If (c) <then_branch = t () => (float[4] u) { u = Abs (v)  v = Neg (late) },
                  else_branch = e () => (float[4] w) { w = Exp (x) }>
      late = Sqrt (x)
    }"""
    graph = pt.load(model(text))
    x = np.arange(4, dtype=np.float32)
    for chosen, wanted in ((True, np.sqrt(x)), (False, np.exp(x))):
        np.testing.assert_allclose(pt.compile(graph, "reference")(x, np.array(chosen))[0], wanted, rtol=1e-6)
    with pytest.raises(ReadError, match="unsorted: 'v' is made by a later node"):
        pt.load(model(text), strict=True)


def test_a_cycle_stays_an_error() -> None:
    with pytest.raises(ReadError, match="the node depends on itself through the value 'a', .*: y -> a -> y"):
        pt.load(model("g (float[4] x) => (float[4] y) { y = Neg (a) a = Abs (y) }"))


OLDER: dict[str, tuple[int, dict[str, Any], int]] = {
    "Affine": (8, {"alpha": 2.0, "beta": 1.0}, 1),
    "Affine of version 6": (6, {"alpha": 2.0, "beta": 1.0}, 1),
    "Crop": (8, {"border": [1, 0, 2, 1]}, 1),
    "Crop to a size": (9, {"border": [1, 0, 0, 0], "scale": [2, 3]}, 1),
    "ImageScaler of an early version": (6, {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}, 1),
    "ImageScaler": (8, {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}, 1),
    "LayerNormalization": (16, {"epsilon": 1e-3}, 3),
    "LayerNormalization of two axes": (11, {"axis": -2}, 2),
    "LayerNormalization from the front": (13, {"axis": 3}, 3),
    "LayerNormalization with a misspelt attribute": (11, {"epsion": 1e-3}, 2),
    "MeanVarianceNormalization": (8, {}, 1),
    "MeanVarianceNormalization across channels": (8, {"across_channels": 1, "normalize_variance": 0}, 1),
    "ParametricSoftplus": (8, {"alpha": 2.0, "beta": 0.5}, 1),
    "Scale": (8, {"scale": 2.0}, 1),
    "ScaledTanh": (8, {"alpha": 2.0, "beta": 0.5}, 1),
    "SimplifiedLayerNormalization": (21, {"epsilon": 1e-3}, 2),
    "ThresholdedRelu": (9, {"alpha": 0.5}, 1),
    "ThresholdedRelu below zero": (5, {"alpha": -0.5}, 1),
}


@pytest.mark.parametrize("case", OLDER)
@pytest.mark.parametrize("device", ["reference", "HETERO:cpu,reference"])
def test_ops_of_older_days_are_read_as_onnxruntime_reads_them(case: str, device: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "cpu" in device:
        pytest.importorskip("tvm")
    version, attributes, inputs = OLDER[case]
    op, shape = case.split()[0], (2, 3, 4, 5)
    rng = np.random.default_rng(5)
    tail = shape[int(attributes.get("axis", -1)) :]
    arrays = {"x": rng.standard_normal(shape).astype(np.float32)}
    arrays |= {name: rng.standard_normal(tail).astype(np.float32) for name in ("w", "b")[: inputs - 1]}
    infos = [helper.make_tensor_value_info(name, 1, array.shape) for name, array in arrays.items()]
    graph = helper.make_graph(
        [helper.make_node(op, list(arrays), ["y"], **attributes)], "g", infos, [helper.make_tensor_value_info("y", 1, None)]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)
    with pytest.raises(PartitaError, match=f"'?{op}'?"):
        pt.load(proto, strict=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    read = pt.load(proto)
    result = pt.compile(read, device)(arrays)[0]
    assert_close(result, session.run(None, arrays)[0], rtol=1e-4)
    note = f"ai.onnx version {version} has no such op; it is read as onnxruntime reads it"
    assert f"g, node 'y' ({op}): {note}" in read.attrs["notes"]


@pytest.mark.parametrize("opsets, note", [
    ('"" : 18', "the model uses domain 'ai.onnx.ml' and does not import its opset; version 5 is taken"),
    ('"ai.onnx.ml" : 3', "the model uses domain 'ai.onnx' and does not import its opset; version"),
    ('"" : 18, "ai.onnx.ml" : 0', "the model uses domain 'ai.onnx.ml' and does not import its opset; version 5 is taken"),
    ('"" : 18, "ai.onnx.ml" : 3, "ai.onnx.ml" : 3, "ai.onnx" : 18', None),
    ('"" : 0, "" : 18, "ai.onnx.ml" : 3', None),
])
def test_domains_that_are_not_imported_or_twice(opsets: str, note: str | None) -> None:
    text = "g (float[2] x) => (float[1, 2] y) { a = Neg (x) y = ai.onnx.ml.Scaler <scale = [2.0], offset = [1.0]> (a) }"
    proto = model(text, opsets)
    graph = pt.load(proto)
    notes = graph.attrs.get("notes", ())
    assert notes == () if note is None else note in notes[0]
    np.testing.assert_array_equal(pt.compile(graph, "reference")(np.ones(2, np.float32))[0].ravel(), [-4.0, -4.0])
    if note is not None:
        with pytest.raises(ReadError, match="does not import its opset"):
            pt.load(proto, strict=True)


@pytest.mark.parametrize(
    ("kind", "sizes", "fits"),
    [(1, ["K"], True), (1, None, True), (1, [4], True), (1, [5], False), (1, [4, 1], False), (7, [4], False)],
)
@pytest.mark.parametrize("field", ["input", "value_info"])
def test_a_constant_whose_declared_type_is_another_s(field: str, kind: int, sizes: list[Any] | None, fits: bool) -> None:
    x, y = (helper.make_tensor_value_info(name, 1, [3, 4]) for name in "xy")
    values = [numpy_helper.from_array(np.ones(4, np.float32), "w")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], values)
    getattr(graph, field).append(helper.make_tensor_value_info("w", kind, sizes))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    notes = pt.load(proto).attrs.get("notes", ())
    if fits:
        assert not notes and pt.load(proto, strict=True)
    else:
        assert "but holds float32[4]; the latter is used" in notes[0]
        with pytest.raises(ReadError, match="it is declared as "):
            pt.load(proto, strict=True)


def test_of_an_opset_that_is_imported_in_two_versions_the_last_is_taken() -> None:
    text = "g (float[1, 2] x) => (float[2] y) { y = Squeeze <axes = [0]> (x) }"
    graph = pt.load(model(text, '"" : 13, "ai.onnx" : 11'))
    assert graph.attrs["notes"] == ("g: the opset of domain 'ai.onnx' is imported in versions 13 and 11; the last is used",)
    assert pt.compile(graph, "reference")(np.ones((1, 2), np.float32))[0].shape == (2,)
    with pytest.raises(ReadError, match="in versions 13 and 11"):
        pt.load(model(text, '"" : 13, "" : 11'), strict=True)
    with pytest.raises(ReadError, match="axes"):
        pt.load(model(text, '"" : 11, "" : 13'))


@pytest.mark.parametrize("device", ["reference", "HETERO:cpu,reference"])
def test_a_loop_whose_body_declares_vectors(device: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto = model("""g (float[3, 2] x, int64 n) => (float[2] y) <float[2] zero = {0, 0}, bool true = {1}> {
      y = Loop (n, true, zero) <body = b (int64[1] i, bool ci, float[2] t) => (bool co, float[2] to) {
        co = Identity (ci)  k = Squeeze <axes = [0]> (i)  row = Gather <axis = 0> (x, k)  to = Add (t, row) }> }""", '"" : 11')
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    feeds = {"x": x, "n": np.array(2)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    graph = pt.load(proto)
    result = pt.compile(graph, device)(feeds)[0]
    np.testing.assert_array_equal(result, session.run(None, feeds)[0])
    assert "the body declares 'i' as a vector, but a Loop passes a scalar" in graph.attrs["notes"][0]
    with pytest.raises(ReadError, match="the body declares 'i' as a vector"):
        pt.load(proto, strict=True)


@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_an_older_norm_has_the_type_of_its_scale(op: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto = model(f"g (float16[2, 4] x, float[4] w) => (float[2, 4] y) {{ a = Neg (x) y = {op} (a, w) }}", '"" : 12')
    arrays = {"x": np.arange(8).reshape(2, 4).astype(np.float16), "w": np.arange(4, dtype=np.float32)}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    result = pt.compile(pt.load(proto), "reference")(arrays)[0]
    assert result.dtype == np.float32
    assert_close(result, session.run(None, arrays)[0], rtol=1e-3)


def test_an_op_that_a_version_has_withdrawn_is_read_with_a_note() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    proto = model("""g (float[2, 4, 3] x, float[2] s, float[2] b) => (float[2, 4, 3] y) {
      y = GroupNormalization <num_groups = 2, epsilon = 0.01> (x, s, b) }""")
    with pytest.raises(ReadError, match="GroupNormalization is withdrawn"):
        pt.load(proto, strict=True)
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 3), (2,), (2,))]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(zip("xsb", arrays, strict=True)))[0]
    graph = pt.load(proto)
    assert "is withdrawn" in graph.attrs["notes"][0]
    assert_close(pt.compile(graph, "HETERO:cpu,reference")(*arrays)[0], wanted, rtol=1e-4)


@pytest.mark.parametrize("constant", ["starts ends axes", "axes", ""])
@pytest.mark.parametrize("device", ["reference", "HETERO:cpu,reference"])
def test_dynamic_slice_is_read_as_onnxruntime_reads_it(constant: str, device: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "cpu" in device:
        pytest.importorskip("tvm")
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    bounds = {"starts": [-2, 1], "ends": [2**31 - 1, -1], "axes": [-1, 1]}
    names = [name for name in bounds if name != "axes" or constant]
    arrays = {"x": x} | {name: np.array(bounds[name], np.int32) for name in names}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in arrays.items()]
    graph = helper.make_graph(
        [helper.make_node("DynamicSlice", list(arrays), ["y"])], "g",
        [info for info in infos if info.name not in constant.split()], [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(arrays[name], name) for name in constant.split()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=7)
    feeds = {name: array for name, array in arrays.items() if name not in constant.split()}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(pt.compile(pt.load(proto), device)(feeds)[0], session.run(None, feeds)[0])
    del proto.opset_import[0]
    proto.opset_import.extend([helper.make_opsetid("", 8)])
    if len(names) > len(constant.split()):
        with pytest.raises(ReadError, match="the bounds of DynamicSlice follow from other values"):
            pt.load(proto)


def test_axes_of_a_squeeze_that_are_empty_are_all_of_size_1() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.ones((3, 1, 5, 1), np.float32)
    by_input = model("g (float[3, 1, 5, 1] x) => (y) <int64[0] axes = {}> { y = Squeeze (x, axes) }")
    by_attribute = model("g (float[3, 1, 5, 1] x) => (y) { y = Squeeze <axes = [1]> (x) }", '"" : 11')
    del by_attribute.graph.node[0].attribute[0].ints[:]
    for proto in (by_input, by_attribute):
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": x})[0].shape == (3, 5)
        graph = pt.load(proto)
        assert pt.apply_pass(graph, "InferShape").outputs[0].type.shape == (3, 5)  # type: ignore[union-attr]
        assert pt.compile(graph, "reference")(x)[0].shape == (3, 5)
        assert "its axes are given and empty; all dimensions of size 1 are removed" in graph.attrs["notes"][0]
        with pytest.raises(ReadError, match="its axes are given and empty"):
            pt.load(proto, strict=True)


@pytest.mark.parametrize("opset", [11, 13])
def test_a_squeeze_that_is_made_with_empty_axes_is_a_copy_elsewhere(opset: int, tmp_path: Path) -> None:
    """ONNX removes no dimension then, and onnxruntime all of size 1."""
    onnxruntime = pytest.importorskip("onnxruntime")
    axes = {"axes": []} if opset == 11 else {}
    inputs = [] if axes else [pt.constant(np.zeros(0, np.int64))]
    x = pt.variable("x", "float32", (1, 2))
    graph = pt.Graph([pt.op("Squeeze", x, *inputs, name="y", opset=opset, **axes)], opsets={"": opset})
    array = np.ones((1, 2), np.float32)
    for device in ("reference", "HETERO:onnxruntime,reference"):
        assert pt.compile(graph, device)(array)[0].shape == (1, 2)
    pt.save(graph, tmp_path / "saved.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "saved.onnx"), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": array})[0].shape == (1, 2)
    assert pt.compile(pt.load(tmp_path / "saved.onnx"), "reference")(array)[0].shape == (1, 2)


@pytest.mark.parametrize(
    ("op", "attributes", "cause"),
    [
        ("Crop", {"border": 1}, "the attribute 'border' must be INTS, not INT"),
        ("ImageScaler", {"scale": 2.0, "bias": "x"}, "the attribute 'bias' must be FLOATS, not STRING"),
        ("LayerNormalization", {"axis": "x"}, "the attribute 'axis' must be INT, not STRING"),
        ("LayerNormalization", {"axis": -(2**62)}, "'x' has no axis that could be normalized"),
        ("LayerNormalization", {"axis": 4}, "'x' has no axis that could be normalized"),
        ("Crop", {}, "Crop needs the attribute 'border'"),
        ("Crop", {"border": [1, 2]}, "Crop needs four borders, and a scale of two sizes or none"),
        ("Crop", {"border": [0, 0, 0, 0], "scale": [2, 2, 2]}, "Crop needs four borders, and a scale of two sizes or none"),
        ("Crop", {"border": [0, 0, 0, 0], "scale": [2]}, "Crop needs four borders, and a scale of two sizes or none"),
        ("ImageScaler", {"scale": 2.0}, "ImageScaler needs the attribute 'bias'"),
    ],
)
def test_an_attribute_of_an_older_op_is_of_its_kind(op: str, attributes: dict[str, Any], cause: str) -> None:
    info = helper.make_tensor_value_info("x", 1, (2, 3, 4, 5))
    result = helper.make_tensor_value_info("y", 1, None)
    node = helper.make_node(op, ["x", "x"] if op == "LayerNormalization" else ["x"], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [info], [result])
    with pytest.raises(ReadError, match=cause):
        pt.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=7))


def test_an_older_norm_of_a_scalar_is_an_error() -> None:
    x, y = (helper.make_tensor_value_info(name, 1, []) for name in "xy")
    graph = helper.make_graph([helper.make_node("LayerNormalization", ["x", "x"], ["y"], axis=0)], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(ReadError, match="'x' has no axis that could be normalized"):
        pt.load(proto)


def test_a_squeeze_whose_axis_is_a_scalar_is_written() -> None:
    """Its axes have to be a vector; who says otherwise is told so by whoever runs it, not by the writer."""
    squeezed = pt.op("Squeeze", pt.variable("x", "float32", (1, None)), pt.constant(np.array(0)))
    pt.apply_pass(pt.Graph([squeezed]), "InferShape")
