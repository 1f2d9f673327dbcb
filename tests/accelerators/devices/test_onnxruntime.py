"""The device `onnxruntime`."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.devices.making import answer, compiled, run
from tests.close import assert_close
from tests.graphs.networks import conv_relu
from tests.graphs.topologies import one_op

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

IMAGE = np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)


def test_it_agrees_with_the_reference() -> None:
    (mine,), (want,) = run("onnxruntime", conv_relu(), IMAGE), run("reference", conv_relu(), IMAGE)
    assert_close(mine, want, rtol=1e-4)


def test_it_says_why_not() -> None:
    assert answer("onnxruntime", one_op("Relu", ("float32", (2,)))) is True
    assert "Could not find an implementation for Relu" in str(answer("onnxruntime", one_op("Relu", ("bfloat16", (2,)))))
    own = pt.op("Own", pt.variable("x", "float32", None), domain="mine", name="own")
    unknown = pt.Graph([pt.op("Relu", own, name="n")], opsets={"": 21, "mine": 1})
    assert answer("onnxruntime", unknown) == "the type of its input 'own' is not known (run the pass InferShape)"


def test_an_opset_that_it_does_not_know() -> None:
    newest = accelerator("onnxruntime").get_metric("NEWEST_OPSET")
    x = pt.variable("x", "float32", (2,))
    relu = pt.Graph([pt.op("Relu", x, name="n")], opsets={"": 28})
    assert answer("onnxruntime", relu) is True, "Relu is the same as in the older opset"
    assert run("onnxruntime", relu, np.array([-1, 1], np.float32))[0].tolist() == [0, 1]
    if newest < 27:
        y = pt.variable("y", "float32", (1, 4, 2, 2))
        deep = pt.Graph([pt.op("SpaceToDepth", y, name="n", blocksize=2, opset=28)], opsets={"": 28})
        assert f"knows ONNX up to opset {newest}; SpaceToDepth at opset 28 is newer" in str(answer("onnxruntime", deep))


def test_what_it_computes_wrongly_is_refused() -> None:
    assert answer("onnxruntime", one_op("Mod", ("float32", (2,)), ("float32", (2,)), fmod=1)) is True
    empty = one_op("ReduceMax", ("bool", (0, 2)))
    assert answer("onnxruntime", empty) == "onnxruntime does not run ReduceMax over an empty tensor of bool"


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "reason"),
    [
        ("LRN", [(1, 3, 4)], {"size": 3}, "LRN of other than four dimensions"),
        ("Conv", [(1, 1, 9), (1, 1, 3)], {"auto_pad": "SAME_UPPER", "dilations": [2]}, "Conv that is dilated and padded"),
        ("ScatterElements", [(3,), [0], (1,)], {"reduction": "add"}, "no reduction 'add' of bool in ScatterElements"),
        ("AveragePool", [(1, 1, 9)], {"auto_pad": "SAME_UPPER", "dilations": [2], "kernel_shape": [2]}, "computes other sizes"),
        ("Einsum", [[[2**60 + 1, 2]]], {"equation": "ij->i"}, "sums integers of Einsum in floating point"),
        ("Einsum", [np.full((1, 2), 2**30, "int32")], {"equation": "ij->i"}, "sums integers of Einsum"),
        ("Shrink", [[2**60 + 1, 2]], {}, "Shrink of integers in float32"),
        ("ReduceL1", [[[2**60 + 1, 2]]], {}, "computes ReduceL1 of int64 in floating point"),
        ("ReduceSumSquare", [[[2**30 + 1, 2]]], {}, "computes ReduceSumSquare of int64 in floating point"),
        ("Mod", [[2**60], [7]], {"fmod": 1}, "computes Mod of 64-bit integers with fmod=1 in float64"),
        ("Slice", [(3, 3), [0], [2**31 - 1], [0], [-1]], {}, "treats an end of 2^31 - 1 as no end"),
        ("Slice", [(3, 3), [0], [1], None, (1,)], {}, None),
        ("Slice", [(3, 3), [0], (1,), None, (1,)], {}, "treats an end of 2^31 - 1 as no end"),
        ("AveragePool", [(1, 1, 8)], {"auto_pad": "SAME_UPPER", "strides": [4], "kernel_shape": [2]}, "AveragePool negatively"),
        ("MaxPool", [(1, 1, "L")], {"auto_pad": "SAME_LOWER", "strides": [2], "kernel_shape": [1]}, "pads MaxPool negatively"),
        ("MaxPool", [(1, 1, 8)], {"auto_pad": "SAME_LOWER", "strides": [2], "kernel_shape": [2]}, None),
        ("MaxPool", [(1, 1, 10)], {"auto_pad": "VALID", "strides": [3], "kernel_shape": [3], "ceil_mode": 1}, "rounds up"),
        ("MaxPool", [(1, 1, 9)], {"auto_pad": "VALID", "strides": [3], "kernel_shape": [3], "ceil_mode": 1}, None),
        ("Conv", [(1, 1, 4), (1, 1, 1)], {"auto_pad": "SAME_UPPER", "strides": [4]}, "pads Conv negatively"),
        ("Conv", [(1, 1, "L"), (1, 1, 1)], {"auto_pad": "SAME_UPPER", "strides": [2]}, None),
        ("ConvTranspose", [(1, 1, 4), (1, 1, 3)], {"dilations": [2], "output_padding": [1]}, "of its stride or more"),
        ("ConvTranspose", [("N", 1, 4), (1, 1, 3)], {"output_shape": [9]}, "larger than its windows reach"),
        ("MeanVarianceNormalization", [(1, 2, 3, 3)], {}, "returns NaN for equal numbers"),
        ("AffineGrid", [(1, 2, 3), [1, 2, 1, 3]], {"align_corners": 1}, "misplaces the only pixel of an axis"),
        ("AffineGrid", [(1, 2, 3), [1, 2, 2, 3]], {"align_corners": 1}, None),
        ("Col2Im", [(1, 2, 4), [6], [2]], {"dilations": [2]}, "dilated Col2Im, except for images"),
        ("Col2Im", [(1, 2, 5), [6], [2]], {"dilations": [1]}, None),
    ],
)
def test_what_it_refuses_while_it_runs_is_refused_before(op: str, inputs: list, attributes: dict, reason: str | None) -> None:
    """A list is a constant, sizes are an input, a number a condition of that length."""

    def entry(i: int, given: object) -> object:
        if given is None:
            return None
        if isinstance(given, (list, np.ndarray)):
            return pt.constant(np.array(given))
        if isinstance(given, int):
            return pt.variable(f"x{i}", "bool", (given,))
        return pt.variable(f"x{i}", "bool" if op == "ScatterElements" else "int64" if i and op == "Slice" else "float32", given)

    read = [entry(i, given) for i, given in enumerate(inputs)]
    graph = pt.apply_pass(pt.Graph([pt.op(op, *read, name="n", **attributes)]), "InferShape")
    said = answer("onnxruntime", graph)
    assert said is True if reason is None else reason in str(said)


def test_trials_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    device = accelerator("onnxruntime")
    x = pt.variable("x", "float32", (2, 3, 5, 7))
    for i in range(30):
        x = pt.op("Relu", x, name=f"r{i}")
    g = pt.Graph([x])
    device.query(g)
    monkeypatch.setattr(device._trials, "_attempt", lambda graph: pytest.fail("a second trial of the same op"))
    assert set(device.query(g).values()) == {True}


def test_narrow_types_go_in_and_out() -> None:
    x = pt.variable("x", "float32", (3,))
    narrow = pt.op("Cast", x, name="n", to=16)
    g = pt.Graph([narrow])
    (output,) = run("onnxruntime", g, np.array([1.5, -2, 3.140625], np.float32))
    assert output.dtype == ml_dtypes.bfloat16
    back = pt.Graph([pt.op("Cast", pt.variable("y", "bfloat16", (3,)), to=1)])
    assert run("onnxruntime", back, output)[0].tolist() == [1.5, -2, 3.140625]


def test_int4_goes_in_and_out() -> None:
    four = np.array([-8, 7, 3], ml_dtypes.int4)
    g = pt.Graph([pt.op("Cast", pt.variable("x", "int4", (3,)), name="n", to=6)])
    assert run("onnxruntime", g, four)[0].tolist() == [-8, 7, 3]
    back = pt.Graph([pt.op("Cast", pt.variable("x", "int32", (3,)), name="n", to=22)])
    assert run("onnxruntime", back, np.array([-8, 7, 3], np.int32))[0].astype(int).tolist() == [-8, 7, 3]


def test_large_weights_of_half_bytes() -> None:
    random = np.random.default_rng(0)
    stored = random.integers(-8, 8, (64, 96)).astype(ml_dtypes.int4)
    scales = random.uniform(0.01, 0.02, (2, 96)).astype("float32")
    weight = pt.op("DequantizeLinear", pt.constant(stored), pt.constant(scales), axis=0, block_size=32)
    g = pt.Graph([pt.op("MatMul", pt.variable("x", "float32", (3, 64)), weight)])
    x = random.standard_normal((3, 64)).astype("float32")
    wanted = x @ (stored.astype("float32") * np.repeat(scales, 32, axis=0))
    assert np.abs(run("onnxruntime", g, x)[0] - wanted).max() < 1e-4


def test_strings_and_sequences() -> None:
    words = np.array(["a", "ü"], object)
    g = pt.Graph([pt.op("Identity", pt.variable("s", "string", (2,)))])
    assert run("onnxruntime", g, words)[0].tolist() == ["a", "ü"]
    result = pt.op("SequenceConstruct", pt.variable("x", "float32", (2,)), pt.variable("y", "float32", (2,)))
    (pair,) = run("onnxruntime", pt.Graph([result]), np.zeros(2, np.float32), np.ones(2, np.float32))
    assert [array.tolist() for array in pair] == [[0, 0], [1, 1]]


def test_hostile_names() -> None:
    x = pt.variable("y0", "float32", (2,))
    g = pt.Graph([pt.op("Relu", x, name="x0\n\"'\\", output_names=["n0"]), x], output_names=["x0", "y1"])
    outputs = run("onnxruntime", g, np.array([-1, 1], np.float32))
    assert [value.tolist() for value in outputs] == [[0, 1], [-1, 1]]


def test_large_weights_are_shared_not_copied() -> None:
    weights = np.random.default_rng(0).normal(size=(600, 600)).astype(np.float32)
    g = pt.Graph([pt.op("MatMul", pt.variable("x", "float32", (1, 600)), pt.constant(weights, name="w"))])
    model = compiled("onnxruntime", g)
    assert any(array is weights for array in model.model.weights.values())  # type: ignore[attr-defined]
    x = np.ones((1, 600), np.float32)
    assert_close(model.run([x])[0], x @ weights, atol=1e-4, rtol=1e-4)


def test_out_takes_a_large_output() -> None:
    target = np.empty((1024, 512), np.float32)
    outputs = compiled("onnxruntime", one_op("Relu", ("float32", (1024, 512)))).run([np.ones((1024, 512), np.float32)], [target])
    assert outputs[0] is target
    assert target.min() == 1


def test_odd_layouts() -> None:
    square = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = compiled("onnxruntime", one_op("Relu", ("float32", (4, 3))))
    frozen = square.T
    frozen.setflags(write=False)
    assert model.run([frozen])[0].tolist() == square.T.tolist()


def test_outputs_outlive_the_next_run() -> None:
    model = compiled("onnxruntime", one_op("Relu", ("float32", (2,))))
    first = model.run([np.array([1, 2], np.float32)])[0]
    model.run([np.array([8, 9], np.float32)])
    assert first.tolist() == [1, 2]


def test_profile_rows_of_the_last_run() -> None:
    model = compiled("onnxruntime", conv_relu(), PERF_COUNT=True)
    assert model.profile_rows() == ()
    model.run([IMAGE])
    status = {row.node: row.status for row in model.profile_rows()}
    assert "EXECUTED" in (status["conv"], status["relu"]), "they may have been fused"
    model.run([IMAGE])
    assert model.profile_rows()


def test_configuration_values_are_checked() -> None:
    with pytest.raises(pt.AcceleratorError, match=r"PROVIDER cannot be .CPUExecutionProvidr"):
        compiled("onnxruntime", conv_relu(), PROVIDER="CPUExecutionProvidr")
    with pytest.raises(pt.AcceleratorError, match=r"the device cannot compute in f16\s+Its capabilities are FP32"):
        compiled("onnxruntime", conv_relu(), PRECISION="f16")
    with pytest.raises(pt.AcceleratorError, match="NUM_THREADS cannot be -1"):
        compiled("onnxruntime", conv_relu(), NUM_THREADS=-1)
    assert run("onnxruntime", conv_relu(), IMAGE, NUM_THREADS=1, GRAPH_OPTIMIZATION="off", ALLOW_SPINNING="NO")


def test_a_failing_run_names_the_node() -> None:
    g = pt.Graph([pt.op("Reshape", pt.variable("x", "float32", (6,)), pt.variable("s", "int64", (1,)), name="mould")])
    with pytest.raises(pt.RunError, match=r"device 'onnxruntime': .*'mould'"):
        run("onnxruntime", g, np.zeros(6, np.float32), np.array([4]))


def test_export_and_import() -> None:
    device, g = accelerator("onnxruntime"), conv_relu()
    data = compiled("onnxruntime", g).export()
    again = device.import_(data, g, device.full_config({}))
    np.testing.assert_array_equal(again.run([IMAGE])[0], run("onnxruntime", g, IMAGE)[0])
    with pytest.raises(pt.AcceleratorError, match=r"cannot be read: it is not an ONNX model\s+Compile the model again"):
        device.import_(b"?", g, device.full_config({}))
    with pytest.raises(pt.AcceleratorError, match="its inputs and outputs are not those of the subgraph"):
        device.import_(data, one_op("Add", ("float32", (2,)), ("float32", (2,))), device.full_config({}))


def test_an_imported_model_opens_no_file() -> None:
    import onnx

    device, g = accelerator("onnxruntime"), conv_relu()
    model = onnx.ModelProto.FromString(compiled("onnxruntime", g).export())
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(pt.AcceleratorError, match="it refers to data in other files"):
        device.import_(model.SerializeToString(), g, device.full_config({}))


def test_extensions() -> None:
    device = accelerator("onnxruntime")
    with pytest.raises(pt.AcceleratorError, match="an extension is the path of a library of custom ops, not int"):
        device.add_extension(3)
    with pytest.raises(pt.AcceleratorError, match="extension 'no_such.so' of device 'onnxruntime'"):
        device.add_extension("no_such.so")


def test_a_transposed_convolution_that_is_larger_than_its_windows() -> None:
    wide = one_op("ConvTranspose", ("float32", (2, 3, 5, 5)), ("float32", (3, 4, 3, 3)), output_shape=[14, 13], strides=[2, 2])
    assert "larger than its windows reach" in str(answer("onnxruntime", wide))
    fits = one_op("ConvTranspose", ("float32", (2, 3, 5, 5)), ("float32", (3, 4, 3, 3)), output_shape=[10, 11], strides=[2, 2])
    assert answer("onnxruntime", fits) is True


@pytest.mark.parametrize(("size", "fits"), [((), True), ((1,), True), ((2,), False)])
def test_products_with_a_zero_point_for_each_row(size: tuple[int, ...], fits: bool) -> None:
    a, b = pt.variable("a", "uint8", (2, 3)), pt.variable("b", "int8", (3, 4))
    points = [pt.constant(np.ones(size, np.uint8)), pt.constant(np.zeros(4, np.int8))]
    scales = [pt.constant(np.ones(size, np.float32)), pt.constant(np.ones(4, np.float32))]
    y = [pt.constant(np.float32(1)), pt.constant(np.uint8(0))]
    nodes = [
        pt.op("MatMulInteger", a, b, *points, name="n"),
        pt.op("QLinearMatMul", a, scales[0], points[0], b, scales[1], points[1], *y, name="n"),
    ]
    for node in nodes:
        said = answer("onnxruntime", pt.apply_pass(pt.Graph([node]), "InferShape"))
        assert said is True if fits else "with a zero point or a scale for each row" in str(said)


@pytest.mark.parametrize("device", ["onnxruntime", "openvino"])
def test_attributes_that_make_no_sense_are_refused_without_a_crash(device: str) -> None:
    if device == "openvino":
        pytest.importorskip("openvino")
    x, c, w = pt.variable("x", "float32", (1, 1, 8)), pt.variable("c", "bool", (3,)), pt.variable("w", "float32", (1, 1, 3))
    lengths = pt.variable("l", "int32", (8,))
    for node in (
        pt.op("Compress", x, c, axis=9, name="n"),
        pt.op("MaxPool", x, kernel_shape=[2], strides=[0], auto_pad="SAME_UPPER", name="n"),
        pt.op("ConvTranspose", x, w, strides=[0], output_shape=[9], name="n"),
        pt.op("RNN", c, w, w, None, lengths, hidden_size=1, layout=1, name="n", n_outputs=1),
    ):
        assert isinstance(answer(device, pt.Graph([node])), str)


MOVES: dict[str, tuple[list[list[int]], dict[str, object]]] = {
    "MaxPool": ([], {"kernel_shape": [1]}),
    "Reshape": ([[8, 1, 1]], {}),
    "Slice": ([[0], [1], [0]], {}),
    "Squeeze": ([[0]], {}),
    "Transpose": ([], {"perm": [2, 1, 0]}),
    "Unsqueeze": ([[0]], {}),
    "Flatten": ([], {}),
    "Gather": ([[0]], {}),
    "Expand": ([[2, 1, 8]], {}),
    "Tile": ([[1, 1, 2]], {}),
    "Concat": ([], {"axis": 0}),
    "Pad": ([[0, 0, 1, 0, 0, 1]], {}),
    "Relu": ([], {}),
}


@pytest.mark.parametrize("identity", [False, True])
@pytest.mark.parametrize(("dtype", "point"), [("int8", None), ("int32", None), ("int32", 0), ("int8", 3), ("uint8", None)])
@pytest.mark.parametrize("op", MOVES)
def test_what_is_dequantized_and_moved_keeps_its_numbers(op: str, dtype: str, point: int | None, identity: bool) -> None:
    """onnxruntime's optimizer would quantize it again behind the move, to uint8 or in vain to int32."""
    x = pt.variable("x", dtype, (1, 1, 8))
    points = [] if point is None else [pt.constant(np.array(point, dtype))]
    dequantized = pt.op("DequantizeLinear", x, pt.constant(np.float32(0.25)), *points)
    more, attributes = MOVES[op]
    moved = pt.op("Identity", dequantized) if identity else dequantized
    result = pt.op(op, moved, *(pt.constant(np.array(value, "int64")) for value in more), **attributes)
    graph = pt.Graph([result], inputs=[x], opsets={"": 19})
    values = np.arange(8).reshape(1, 1, 8).astype(dtype)
    values = values * 17 if dtype == "uint8" else values * 9 - 40
    wanted = pt.compile(graph, "reference")(values)[0]
    np.testing.assert_array_equal(pt.compile(graph, "HETERO:onnxruntime,reference")(values)[0], wanted)


@pytest.mark.parametrize(
    ("size", "scale", "attributes", "reason"),
    [
        (5, 1.1, {"mode": "linear"}, "copies an axis whose scale is not one but leaves its size unchanged"),
        ("N", 1.1, {}, "copies an axis whose scale is not one but leaves its size unchanged"),
        (5, 1.5, {}, True),
        ("N", 2.0, {}, True),
        (1, 1.1, {}, True),
        (5, 1.5, {"coordinate_transformation_mode": "align_corners"}, "by the sizes computed from the scales"),
        (4, 1.5, {"coordinate_transformation_mode": "align_corners"}, True),
    ],
)
def test_resizes_by_scales_that_make_no_whole_sizes(size: object, scale: float, attributes: dict[str, str], reason: str | bool):
    x = pt.variable("x", "float32", (1, 1, size))
    scales = pt.constant(np.array([1, 1, scale], "float32"))
    graph = pt.apply_pass(pt.Graph([pt.op("Resize", x, None, scales, name="n", **attributes)], opsets={"": 19}), "InferShape")
    result = answer("onnxruntime", graph)
    assert str(reason) in str(result)


def test_an_upsample_that_states_its_scales_as_an_attribute_is_looked_at_too() -> None:
    x = pt.variable("x", "float32", (1, 1, 5))
    graph = pt.Graph([pt.op("Upsample", x, name="n", opset=7, scales=[1.0, 1.0, 1.1], mode="linear")], opsets={"": 7})
    assert "copies an axis whose scale is not one but leaves its size unchanged" in str(answer("onnxruntime", graph))


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize(
    ("labels", "ignored", "fits"), [(None, None, False), ([0, 2], None, True), ([0, -1], None, False), ([0, -1], -1, True)]
)
def test_labels_below_zero_would_count_from_the_end(op: str, labels: list[int] | None, ignored: int | None, fits: bool) -> None:
    read = pt.variable("l", "int64", (2,)) if labels is None else pt.constant(np.array(labels))
    ignoring = {} if ignored is None else {"ignore_index": ignored}
    graph = pt.Graph([pt.op(op, pt.variable("x", "float32", (2, 3)), read, name="n", **ignoring)], opsets={"": 13})
    said = answer("onnxruntime", graph)
    assert said is True if fits else said == f"onnxruntime counts the labels of {op} that are below zero from the end"


def test_two_quantizations_in_a_row_are_two() -> None:
    """onnxruntime's optimizer makes one of them, whose steps are others."""
    x = y = pt.variable("x", "float32", (5,))
    for scale, point in ((0.12375113, 5), (0.17136826, 1)):
        how = [pt.constant(np.float32(scale)), pt.constant(np.int8(point))]
        y = pt.op("DequantizeLinear", pt.op("QuantizeLinear", y, *how), *how)
    graph, values = pt.Graph([y], inputs=[x]), np.array([-2, 2, 3, -1, 1], "float32")
    wanted = pt.compile(graph, "reference")(values)[0]
    np.testing.assert_array_equal(pt.compile(graph, "onnxruntime")(values)[0], wanted)


@pytest.mark.parametrize("given", [6, 2**31, 2**40, 2**63 - 1, -(2**40), -(2**63)])
def test_more_numbers_than_there_are(given: int) -> None:
    """onnxruntime itself keeps 32 bits of the number: 2^40 would be none at all."""
    x, k = pt.variable("x", "float32", (5,)), pt.variable("k", "int64", (1,))
    model = pt.compile(pt.Graph([pt.op("TopK", x, k, name="top")[0]], [x, k]), "onnxruntime")
    numbers = np.arange(5, dtype=np.float32)
    assert model(numbers, np.array([2]))[0].tolist() == [4, 3]
    with pytest.raises(pt.RunError, match=r"'top'.*k argument \[(6|2147483647)\] should not be greater"):
        model(numbers, np.array([given]))


@pytest.mark.parametrize(("length", "axis"), [("n", 1), (6, 1), ("n", None), (14, None)])
def test_a_condition_that_is_longer_than_the_data(length: int | str, axis: int | None) -> None:
    """onnxruntime itself would leave out what is chosen beyond the data."""
    x, c = pt.variable("x", "float32", (3, 4)), pt.variable("c", "bool", (length,))
    along: dict[str, int] = {} if axis is None else {"axis": axis}
    model = pt.compile(pt.Graph([pt.op("Compress", x, c, name="kept", **along)], [x, c]), "onnxruntime")
    data, end = np.arange(12, dtype=np.float32).reshape(3, 4), 4 if axis else 12
    condition = np.zeros(end + 2, bool)
    condition[1] = condition[end - 1] = True
    np.testing.assert_array_equal(model(data, condition)[0], data.compress(condition[:end], axis))
    condition[:] = False
    assert not model(data, condition)[0].size
    condition[end] = True
    with pytest.raises(pt.RunError, match=rf"'kept'.*indices element out of data bounds, idx={end}"):
        model(data, condition)


def test_a_condition_within_a_body() -> None:
    c, x, flag = pt.variable("c", "bool", ("n",)), pt.variable("x", "float32", (3,)), pt.variable("flag", "bool", ())

    inner = [pt.variable("inner_x", "float32", (3,)), pt.variable("inner_c", "bool", ("n",))]
    bodies = {
        "then_branch": pt.Graph([pt.op("Compress", *inner, axis=0, name="kept")], inner),
        "else_branch": pt.Graph([pt.op("Identity", inner[0], name="same")], inner),
    }
    model = pt.compile(pt.Graph([pt.op("If", flag, captures=[x, c], name="if", **bodies)], [x, c, flag]), "onnxruntime")
    data = np.arange(3, dtype=np.float32)
    assert model(data, np.array([True, False, True, False]), np.array(True))[0].tolist() == [0, 2]
    with pytest.raises(pt.RunError, match="indices element out of data bounds, idx=3"):
        model(data, np.ones(4, bool), np.array(True))


def test_a_gather_at_a_range_is_no_slice() -> None:
    """A Slice would count the first position from the end, but not those behind it, and cut off what lies outside."""
    x, first, end = pt.variable("x", "float32", (5,)), pt.variable("first", "int64", ()), pt.variable("end", "int64", ())
    taken = pt.op("Gather", x, pt.op("Range", first, end, pt.constant(np.array(1))), name="taken")
    model, data = pt.compile(pt.Graph([taken], [x, first, end]), "onnxruntime"), np.arange(5, dtype=np.float32)
    assert model(data, np.array(-2), np.array(1))[0].tolist() == [3, 4, 0]
    with pytest.raises(pt.RunError, match=r"'taken'.*indices element out of data bounds, idx=5"):
        model(data, np.array(3), np.array(7))


LEFT_OUT = {
    "(float[6,2] x) => (float[2,2] a, float[2,2] c) { a, , c = Split <num_outputs = 3> (x) }": 18,
    "(float[6,2] x) => (float[2,2] c) { , , c = Split <num_outputs = 3> (x) }": 18,
    "(float[6,2] x) => (float[2,2] a, float[2,2] b) { a, b = Split <num_outputs = 3> (x) }": 18,
    "(float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3,4] y, float[3] w)"
    " { y, , w = BatchNormalization <training_mode = 1> (x, s, b, m, v) }": 15,
    "(float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3,4] y)"
    " { y = BatchNormalization <training_mode = 1> (x, s, b, m, v) }": 14,
    "(float[2] x, float[2] y) => (float[n,2] r, float[n,2] t) { turns = Constant <value_int = 3> () go = Cast <to = 9> (turns)"
    " , , r, t = Loop <body = b (int64 i, bool c, float[2] p, float[2] q)"
    " => (bool d, float[2] p2, float[2] q2, float[2] r2, float[2] t2)"
    " { d = Identity (c) p2 = Add (p, q) q2 = Mul (q, p) r2 = Neg (p2) t2 = Abs (q2) }> (turns, go, x, y) }": 15,
    "(float[1,1,16] q, float[1,1,8] k, float[1,1,8] v, float[1,1,4,8] pk, float[1,1,4,8] pv) => (float[1,1,16] y)"
    " { length = Constant <value = int32[1] {4}> () total = Constant <value = int32 {5}> ()"
    " y = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, k, v, pk, pv, length, total) }": 18,
}


@pytest.mark.parametrize("text", LEFT_OUT, ids=lambda text: text.partition("{")[2][:30])
def test_outputs_that_are_left_out_are_written_all_the_same(text: str) -> None:
    """The process ended, or what nobody had written was returned."""
    proto = onnx.ModelProto(ir_version=8, graph=onnx.parser.parse_graph(f"g {text}"))
    proto.opset_import.extend([onnx.helper.make_opsetid("", LEFT_OUT[text]), onnx.helper.make_opsetid("com.microsoft", 1)])
    graph = pt.load(proto)
    drawn = np.random.default_rng(3)
    arrays = [np.abs(drawn.standard_normal(node[0].type.shape)).astype(np.float32) for node in graph.inputs]
    model = pt.compile(graph, "onnxruntime")
    for result, wanted in zip(model(*arrays), pt.compile(graph, "reference")(*arrays), strict=True):
        assert_close(result, wanted)


@pytest.mark.parametrize("axis", [0, -1])
def test_a_scan_along_an_inner_axis_would_end_the_process(axis: int) -> None:
    state, element = pt.variable("s", "float32", (4,)), pt.variable("e", "float32", (4,))
    total = pt.op("Add", state, element)
    body = pt.Graph([total, pt.op("Relu", total)], [state, element], name="body")
    first, x = pt.variable("first", "float32", (4,)), pt.variable("x", "float32", ("R", 4) if axis == 0 else (4, "R"))
    node = pt.op(
        "Scan", first, x, body=body, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[axis], n_outputs=2, name="n"
    )
    said = answer("onnxruntime", pt.apply_pass(pt.Graph([node[0], node[1]]), "InferShape"))
    assert said is True if axis == 0 else "a Scan along an inner axis takes no step" in str(said)


@pytest.mark.parametrize("op", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("activation", ["Affine", "ScaledTanh", "ThresholdedRelu"])
def test_activations_whose_parameters_are_not_stated(op: str, activation: str) -> None:
    count = {"RNN": 1, "LSTM": 3, "GRU": 2}[op]
    gates, names = {"RNN": 1, "LSTM": 4, "GRU": 3}[op], ["Tanh"] * (count - 1) + [activation]
    shapes = {"x": (2, 1, 4), "w": (1, 3 * gates, 4), "r": (1, 3 * gates, 3)}
    x, w, r = (pt.variable(name, "float32", shape) for name, shape in shapes.items())
    for attrs in ({}, {"activation_alpha": [1.0] * count}, {"activation_alpha": [1.0] * count, "activation_beta": [0.5] * count}):
        layer = pt.op(op, x, w, r, hidden_size=3, activations=names, n_outputs=1, name="n", **attrs)
        said = answer("onnxruntime", pt.apply_pass(pt.Graph([layer]), "InferShape"))
        assert said is True if len(attrs) == 2 else f"of {activation} that is not stated" in str(said)


def test_scalars_in_nonzero_and_mixtures_of_whole_numbers_are_left_to_others() -> None:
    assert "a scalar as a vector in NonZero" in str(answer("onnxruntime", one_op("NonZero", ("int64", ()))))
    assert answer("onnxruntime", one_op("NonZero", ("int64", (3,)))) is True
    x, sizes = pt.variable("x", "uint8", (1, 1, 4, 4)), pt.constant(np.array([1, 1, 8, 8]))
    for mode, fits in (("nearest", True), ("linear", False)):
        said = answer("onnxruntime", pt.Graph([pt.op("Resize", x, None, None, sizes, mode=mode, name="n")]))
        assert said is True if fits else "where a resize interpolates integers" in str(said)


def test_large_outputs_are_written_to_the_callers_arrays_and_small_ones_are_new() -> None:
    x = pt.variable("x", "float32", (600, 600))
    graph = pt.Graph([pt.op("Neg", x), pt.op("ReduceSum", x), pt.op("Abs", x)], [x])
    unit, data = compiled("onnxruntime", graph), np.linspace(-1, 1, 360_000, dtype=np.float32).reshape(600, 600)
    large, flipped = np.empty_like(data), np.empty((600, 600), np.float32).T
    for out in ([large, None, flipped], [large, np.empty((1, 1), np.float32), None], [None, None, large]):
        negated, total, sizes = unit.run([data], out)
        np.testing.assert_array_equal(negated, -data)
        np.testing.assert_allclose(total, data.sum(keepdims=True), atol=0.1)
        np.testing.assert_array_equal(sizes, np.abs(data))
        assert [result is large for result in (negated, total, sizes)] == [array is large for array in out]

