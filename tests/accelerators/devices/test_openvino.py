"""The device `openvino`."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.engines.openvino import quirks
from partita.accelerators.engines.quirks import Case
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.devices.making import answer, compiled, run
from tests.accelerators.package.models import in_new_process
from tests.close import assert_close
from tests.graphs.networks import conv_relu
from tests.graphs.topologies import one_op

pytest.importorskip("openvino", reason="the extra [openvino] is not installed")

IMAGE = np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)
ROOT = Path(__file__).resolve().parents[3]


def test_it_agrees_with_the_reference() -> None:
    (mine,), (want,) = run("openvino", conv_relu(), IMAGE), run("reference", conv_relu(), IMAGE)
    assert_close(mine, want, rtol=1e-4)


def test_what_weights_of_4_bits_multiply_is_not_rounded_to_bytes() -> None:
    random = np.random.default_rng(0)
    blocks, scales = random.integers(0, 256, (64, 4, 16)).astype("uint8"), random.uniform(0.01, 0.02, 256).astype("float32")
    sizes = {"K": 128, "N": 64, "bits": 4, "block_size": 32}
    given = pt.variable("given", "float32", (2, 128)), pt.constant(blocks), pt.constant(scales)
    graph = pt.Graph([pt.op("MatMulNBits", *given, domain="com.microsoft", **sizes)], opsets={"": 21, "com.microsoft": 1})
    numbers = random.standard_normal((2, 128)).astype("float32")
    (mine,), (want,) = run("openvino", graph, numbers), run("reference", graph, numbers)
    assert np.abs(mine - want).max() < 1e-5 * np.abs(want).max()


LET_GO = """
import ctypes, faulthandler, gc

class Stack(ctypes.Structure):
    _fields_ = [("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]

def start():
    stack = Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    return stack.start

faulthandler.enable()
before = start()
from partita.accelerators.engines.openvino import OpenVinoAccelerator
first, second = OpenVinoAccelerator(), OpenVinoAccelerator()
between = start()
del first
del second
gc.collect()
print(json.dumps([before, between, start()]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="stacks for signals are read as Linux describes them")
def test_signals_are_not_handled_in_memory_that_the_engine_gave_back() -> None:
    before, between, after = json.loads(in_new_process(LET_GO).stdout)
    assert between == after == before is not None


def test_a_single_device_may_be_named_with_its_number() -> None:
    for device, config in (("openvino", {"DEVICE_ID": "CPU.0"}), ("openvino.CPU.0", {})):
        model = pt.compile(conv_relu(), device, config)
        assert_close(model(IMAGE)[0], run("reference", conv_relu(), IMAGE)[0], rtol=1e-4)


def test_one_unknown_op_leaves_the_others() -> None:
    x = pt.variable("x", "float32", (3, 3))
    a = pt.op("Relu", x, name="a")
    b = pt.op("Det", a, name="b")
    g = pt.Graph([pt.op("Abs", b, name="c")])
    answers = accelerator("openvino").query(g)
    assert answers["a"] is True
    assert answers["c"] is True
    assert "No conversion rule found for operations: Det" in str(answers["b"])


def test_wide_integers_are_refused_where_they_may_be_large() -> None:
    x = pt.variable("x", "int64", (3,))
    assert answer("openvino", pt.Graph([pt.op("Add", x, x, name="n")])) == (
        "openvino computes int64 in 32 bits, and 'x' may hold larger numbers"
    )
    image = pt.variable("image", "float32", (2, 3, 4))
    size = pt.op("Shape", image, name="size")
    doubled = pt.op("Mul", size, pt.constant(np.array([2])), name="doubled")
    g = pt.Graph([pt.op("Expand", pt.op("Abs", image, name="abs"), size, name="wide"), doubled])
    answers = accelerator("openvino").query(g)
    assert answers["size"] is True, "sizes are small"
    assert answers["doubled"] is True
    tokens = pt.Graph([pt.op("Gather", pt.variable("w", "float32", (9, 2)), x, name="n")])
    assert answer("openvino", tokens) is True, "indices are small"


def test_what_it_computes_wrongly_is_refused() -> None:
    assert answer("openvino", one_op("Add", ("uint8", (2,)), ("uint8", (2,)))) == (
        "openvino's Add of uint8 rounds or saturates where ONNX counts on from the other end"
    )
    assert answer("openvino", one_op("Relu", ("float64", (2,)))) == "openvino computes float64 in 32 bits"
    assert "gets no values of the type string" in str(answer("openvino", one_op("Identity", ("string", (2,)))))
    said = answer("openvino", one_op("ReduceMax", ("float32", (0, 2))))
    assert said == "ReduceMax reads 'x0', which has no elements (float32[0, 2])"
    heads = [pt.variable(name, "float32", (1, 2, 4, 8)) for name in "qkv"]
    attention = pt.Graph([pt.op("Attention", *heads, name="n", opset=23)], opsets={"": 23})
    assert "knows ONNX up to opset 21; Attention at opset 23 is newer" in str(answer("openvino", attention))


REFUSED = [
    ("LRN", {"size": 3, "bias": 2.0}, 21, "is wrong with a bias other than 1"),
    ("LRN", {"size": 4}, 21, "centres an even window of LRN differently"),
    ("Softmax", {"axis": 1}, 11, "below opset 13 Softmax normalises over all dimensions from 1 on, and openvino over 1 alone"),
    ("ReduceL1", {"noop_with_empty_axes": 1}, 21, "ReduceL1 along no dimension returns its input"),
    ("Upsample", {"scales": [1.0, 1.0, 1.4, 1.0]}, 7, "chooses other nearest pixels for fractional scales"),
    ("Upsample", {"scales": [1.0, 1.0, 2.0, 1.1], "mode": "linear"}, 7, "ignores a scale other than one"),
    ("Upsample", {"scales": [1.0, 1.0, 1.1, 1.0], "mode": "linear"}, 7, "ignores a scale other than one"),
    ("LpPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 18, "windows that end beyond the data"),
    ("MaxPool", {"kernel_shape": [1, 2], "pads": [0, 0, 1, 0]}, 21, "a finite number for a window of padding alone"),
]


@pytest.mark.parametrize(("op", "attrs", "opset", "why"), REFUSED)
def test_attributes_that_it_computes_otherwise(op: str, attrs: dict[str, Any], opset: int, why: str) -> None:
    x = pt.variable("x", "float32", (2, 4, 6, 6))
    assert why in str(answer("openvino", pt.Graph([pt.op(op, x, name="n", opset=opset, **attrs)], opsets={"": opset})))


@pytest.mark.parametrize("attrs", [{"auto_pad": "SAME_UPPER"}, {"output_shape": [10, 9]}], ids=str)
@pytest.mark.parametrize("batch", [2, "N"])
def test_transposed_convolutions_of_given_sizes(batch: int | str, attrs: dict[str, Any]) -> None:
    x, weight = pt.variable("x", "float32", (batch, 3, 5, 5)), pt.constant(np.ones((3, 4, 3, 3), np.float32))
    graph = pt.Graph([pt.op("ConvTranspose", x, weight, name="n", strides=[2, 2], **attrs)])
    said = answer("openvino", graph)
    assert said is True if batch == 2 and "auto_pad" in attrs else "openvino" in str(said)
    placed, data = pt.compile(graph, "HETERO:openvino,reference"), IMAGE[:, :, :5, :5].repeat(2, 0)
    assert_close(placed(data)[0], run("reference", graph, data)[0], atol=1e-4, rtol=1e-4)


def test_ties_and_samples_and_gates() -> None:
    x = pt.variable("x", "float32", (3, 7))
    top = pt.op("TopK", x, pt.constant(np.array([3])), name="n", n_outputs=2)
    assert "returns any index among equal elements" in str(answer("openvino", pt.Graph(top.outputs)))
    boxes = [("float32", (2, 3, 8, 8)), ("float32", (2, 4)), ("int64", (2,))]
    assert "without sampling_ratio" in str(answer("openvino", one_op("RoiAlign", *boxes, output_height=2, output_width=2)))
    assert answer("openvino", one_op("RoiAlign", *boxes, output_height=2, output_width=2, sampling_ratio=0)) is True
    gates = [("float32", (4, 2, 3)), ("float32", (1, 20, 3)), ("float32", (1, 20, 5))]
    assert "ignores input_forget" in str(answer("openvino", one_op("LSTM", *gates, hidden_size=5, input_forget=1)))


def test_large_outputs_come_without_a_copy_and_belong_to_the_caller() -> None:
    model = compiled("openvino", one_op("Relu", ("float32", (256, 256))))
    first = model.run([np.full((256, 256), 1, np.float32)])[0]
    second = model.run([np.full((256, 256), 2, np.float32)])[0]
    assert first.max() == 1
    assert second.min() == 2


@pytest.mark.parametrize("kind", [np.int64, np.longlong])
@pytest.mark.parametrize("size", [(2, 3), (128, 128)])
def test_both_of_numpys_wide_integers(kind: type, size: tuple[int, int]) -> None:
    x, shape = pt.variable("x", "float32", (1, 1)), pt.variable("shape", "int64", (2,))
    wide = pt.op("Expand", x, shape, name="wide")
    model = compiled("openvino", pt.Graph([wide, pt.op("Shape", wide, name="sizes")]))
    output, sizes = model.run([np.ones((1, 1), np.float32), np.array(size, kind)])
    assert output.shape == size
    np.testing.assert_array_equal(sizes, size)


def test_inputs_changed_in_place_are_read_again() -> None:
    model, x = compiled("openvino", one_op("Relu", ("float32", (2,)))), np.array([1, 2], np.float32)
    model.run([x])
    x[:] = 5
    assert model.run([x])[0].tolist() == [5, 5]


def test_unused_inputs_and_outputs_that_are_inputs() -> None:
    x, y = pt.variable("x", "float32", (2,)), pt.variable("y", "float32", (3,))
    g = pt.Graph([pt.op("Relu", y, name="r"), y], inputs=[x, y], output_names=["a", "b"])
    outputs = run("openvino", g, np.zeros(2, np.float32), np.array([-1, 0, 1], np.float32))
    assert [value.tolist() for value in outputs] == [[0, 0, 1], [-1, 0, 1]]


def test_many_threads() -> None:
    model = compiled("openvino", one_op("Relu", ("float32", (64,))))

    def call(i: int) -> bool:
        return bool((model.run([np.full(64, i, np.float32)])[0] == i).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(200)))


def test_profile_rows() -> None:
    model = compiled("openvino", conv_relu(), PERF_COUNT=True)
    model.run([IMAGE])
    rows = {row.node: row for row in model.profile_rows()}
    assert rows["conv"].status == "EXECUTED" or rows["relu"].status == "EXECUTED"
    assert {row.status for row in rows.values()} <= {"EXECUTED", "NOT_RUN", "OPTIMIZED_OUT"}


def test_configuration_values_are_checked() -> None:
    with pytest.raises(pt.AcceleratorError, match=r"DEVICE_ID cannot be 'CPPU'\s+Did you mean 'CPU'\?"):
        compiled("openvino", conv_relu(), DEVICE_ID="CPPU")
    with pytest.raises(pt.AcceleratorError, match="PRECISION cannot be 'f8'"):
        compiled("openvino", conv_relu(), PRECISION="f8")
    assert run("openvino", conv_relu(), IMAGE, NUM_THREADS=1, PERFORMANCE_HINT="THROUGHPUT")
    if "BF16" in accelerator("openvino").get_metric("OPTIMIZATION_CAPABILITIES"):
        assert run("openvino", conv_relu(), IMAGE, PRECISION="bf16")
    else:
        with pytest.raises(pt.AcceleratorError, match="the device cannot compute in bf16"):
            compiled("openvino", conv_relu(), PRECISION="bf16")


def test_export_and_import() -> None:
    device, g = accelerator("openvino"), conv_relu()
    again = device.import_(compiled("openvino", g).export(), g, device.full_config({}))
    np.testing.assert_array_equal(again.run([IMAGE])[0], run("openvino", g, IMAGE)[0])
    with pytest.raises(pt.AcceleratorError, match=r"openvino does not read the exported subgraph.*\s+Compile the model again"):
        device.import_(b"?", g, device.full_config({}))


def test_what_the_engine_read_from_its_own_cache_can_be_exported(tmp_path: Path) -> None:
    device, g = accelerator("openvino"), conv_relu()
    config = device.full_config({"CACHE_DIR": str(tmp_path)})
    cold, warm = (device.compile(g, config).export() for _ in range(2))
    for data in (cold, warm):
        again = device.import_(data, g, device.full_config({}))
        np.testing.assert_array_equal(again.run([IMAGE])[0], run("openvino", g, IMAGE)[0])
        assert bytes(again.export()) == data


def test_it_reports_nothing_to_anybody() -> None:
    code = """
import sys
from partita.accelerators.interface.registry import accelerator
accelerator("openvino")
print([name for name in sys.modules if name.startswith("openvino_telemetry")])
"""
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout == "[]\n"


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "reason"),
    [
        ("LeakyRelu", [(0, 3)], {}, "openvino loses the sizes of empty tensors"),
        ("Range", [(), np.float32(1), np.float32(1)], {}, "openvino returns elements for a Range that is empty"),
        ("ReduceL1", [(8, "N", 8, 7), np.array([0, 2, 3])], {"keepdims": 0}, "openvino may lose the kept dimensions of Reduce"),
        (
            "QuantizeLinear", [("N", "M"), np.ones(9, "float32"), np.zeros(9, "uint8")], {"axis": 0},
            "openvino may use wrong zero points in QuantizeLinear along a dynamic axis",
        ),
    ],
)
def test_what_it_computes_otherwise_where_sizes_are_not_fixed(op: str, inputs: list, attributes: dict, reason: str) -> None:
    """Random models found these."""
    read = [pt.variable(f"x{i}", "float32", x) if isinstance(x, tuple) else pt.constant(x) for i, x in enumerate(inputs)]
    graph = pt.apply_pass(pt.Graph([pt.op(op, *read, name="n", **attributes)]), "InferShape")
    assert reason in str(answer("openvino", graph))


def test_fixed_sizes_stay_where_they_are() -> None:
    x = pt.variable("x", "float32", (8, 2, 8, 7))
    reduced = pt.op("ReduceL1", x, pt.constant(np.array([0, 2, 3])), name="n", keepdims=0)
    assert answer("openvino", pt.apply_pass(pt.Graph([reduced]), "InferShape")) is True


INDEXED: dict[str, tuple[Any, int]] = {
    "Gather": (np.array([0, 1, 3]), 3),
    "GatherElements": (np.array([[0, -4, 1, 1]]), 3), "GatherND": (np.array([[0, 1], [1, 9]]), 4),
    "ScatterElements": (np.array([[0, 2**40, 1, 1]]), 3), "ScatterND": (np.array([[0, 0], [-9, 1]]), 3),
}


def indexed(op: str, indices: Any, computed: bool = False) -> pt.Graph:
    inputs = [pt.variable("x", "float32", (3, 4)), pt.variable("i", "int64", indices.shape)]
    if op.startswith("Scatter"):
        inputs.append(pt.variable("u", "float32", indices.shape[: 1 if op == "ScatterND" else 2]))
    read = [inputs[0], pt.op("Identity", pt.op("Abs", inputs[1])) if computed else inputs[1], *inputs[2:]]
    return pt.Graph([pt.op(op, *read, name="n")], inputs=inputs)


@pytest.mark.parametrize("op", INDEXED)
def test_an_index_outside_is_an_error(op: str) -> None:
    indices, size = INDEXED[op]
    graph, data = indexed(op, indices), np.ones((3, 4), np.float32)
    model = pt.compile(graph, "openvino")
    updates = [np.ones(graph.inputs[2][0].type.shape, np.float32)] if len(graph.inputs) > 2 else []
    with pytest.raises(pt.PartitaError, match=f"index -?[0-9]+ is outside of a dimension of {size}"):
        model(data, indices, *updates)
    model(data, indices * 0, *updates)


@pytest.mark.parametrize("op", ["OneHot", "ReverseSequence", "CumSum", "ScatterND"])
def test_an_index_of_more_than_32_bits_is_an_error(op: str) -> None:
    """openvino takes the lower 32 bits."""
    x, far = pt.variable("x", "float32", ("n", 4)), np.array(1 + 2**40)
    shape = {"OneHot": (3,), "ReverseSequence": (4,), "CumSum": (), "ScatterND": (1, "k")}[op]
    inputs = [x, pt.variable("i", "int64", shape)]
    given = {"x": np.ones((3, 4), np.float32), "i": np.full((1, 2) if op == "ScatterND" else shape, far)}
    if op == "OneHot":
        node = pt.op(op, inputs[1], pt.constant(np.array(4)), pt.constant(np.array([0, 1], np.float32)))
        del inputs[0], given["x"]
    else:
        node = pt.op(op, *inputs, *([pt.constant(np.ones(1, np.float32))] if op == "ScatterND" else []))
    with pytest.raises(pt.RunError, match=r"1099511627777 is (not a size, axis or index|outside)|index 1099511627777 is outside"):
        pt.compile(pt.Graph([node], inputs), "openvino")(given)


def test_bounds_of_a_slice_reach_beyond_32_bits() -> None:
    """To the end, as exporters write it: openvino took the lower 32 bits, which say that one is left out."""
    x, rows, end = pt.variable("x", "float32", (2, 4)), pt.variable("n", "int64", (1,)), pt.constant(np.array([2**63 - 1]))
    ends = pt.op("Concat", rows, end, axis=0)
    graph = pt.Graph([pt.op("Slice", x, pt.constant(np.array([0, 1])), ends, name="cut")], inputs=[x, rows])
    model, data = pt.compile(graph, "HETERO:openvino,reference"), np.arange(8, dtype=np.float32).reshape(2, 4)
    assert model.report.placement["cut"] == "openvino"
    for count in (1, 2, 2**40):
        np.testing.assert_array_equal(model(data, np.array([count]))[0], data[:count, 1:])


@pytest.mark.parametrize("op", sorted(set(INDEXED) - {"Gather"}))
def test_computed_indices_are_left_to_others(op: str) -> None:
    said = answer("openvino", indexed(op, INDEXED[op][0], computed=True))
    assert said == f"openvino reads or writes outside where {op}'s indices are wrong, and these are computed"


def test_a_constant_index_outside_is_left_to_others() -> None:
    graph = pt.Graph([pt.op("Gather", pt.variable("x", "float32", (3, 4)), pt.constant(np.array([5])), name="n")])
    assert answer("openvino", graph) == "index 5 is outside of a dimension of 3"


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_the_length_of_a_sequence(op: str) -> None:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    weights = [pt.constant(np.ones((1, 2 * gates, size), np.float32)) for size in (3, 2)]
    x, lengths = pt.variable("x", "float32", (4, 2, 3)), pt.variable("lengths", "int32", (2,))
    data = np.ones((4, 2, 3), np.float32)
    model = pt.compile(pt.Graph([pt.op(op, x, *weights, None, lengths, hidden_size=2, name="n")]), "openvino")
    assert model(data, np.array([4, 0], np.int32))[0].shape == (4, 1, 2, 2)
    for wrong in (5, -1):
        with pytest.raises(pt.PartitaError, match=f"the length {wrong} of a sequence is not between 0 and 4"):
            model(data, np.array([4, wrong], np.int32))
    constant = pt.constant(np.array([4, 5], np.int32))
    fixed = pt.Graph([pt.op(op, x, *weights, None, constant, hidden_size=2, name="n")])
    assert answer("openvino", fixed) == "the length 5 of a sequence is not between 0 and 4"
    computed = pt.Graph([pt.op(op, x, *weights, None, pt.op("Neg", lengths), hidden_size=2, name="n")])
    reason = f"openvino takes a length of {op} that is too long for the longest one, and these are computed"
    assert answer("openvino", computed) == reason


def a_loop(turns: int | None, go: bool | None, scans: bool) -> pt.Graph:
    turn, goes, state = pt.variable("t", "int64", ()), pt.variable("go", "bool", ()), pt.variable("s", "float32", (1, 2))
    after = pt.op("Neg", state)
    scanned = [pt.op("Tanh", after)] if scans else []
    body = pt.Graph([pt.op("Identity", goes), after, *scanned], [turn, goes, state], name="body")
    given = [None if value is None else pt.constant(np.array(value)) for value in (turns, go)]
    x = pt.variable("x", "float32", (1, 2))
    node = pt.op("Loop", *given, x, n_outputs=1 + scans, body=body, name="n")
    return pt.apply_pass(pt.Graph(list(node.outputs)), "InferShape")


def test_a_quantized_convolution_of_a_constant_image_is_refused() -> None:
    image, kernel = np.arange(120, dtype=np.uint8).reshape(1, 2, 12, 5), pt.constant(np.ones((2, 2, 3, 1), np.int8))
    scales = [pt.constant(np.float32(n)) for n in (0.1, 0.05, 0.5)]
    points = [pt.constant(n) for n in (np.uint8(3), np.int8(0))]
    bias = pt.variable("b", "int32", (2,))
    for data, refused in ((pt.constant(image), True), (pt.variable("x", "uint8", image.shape), False)):
        given = [data, scales[0], points[0], kernel, scales[1], points[1], scales[2], points[0], bias]
        node = pt.op("QLinearConv", *given, name="n")
        said = answer("openvino", pt.apply_pass(pt.Graph([node]), "InferShape"))
        assert said == "openvino's QLinearConv of a constant image is wrong" if refused else said is True


def test_constants_of_which_nothing_is_left_do_not_end_the_process() -> None:
    x = pt.variable("x", "float32", (3, 4))
    kept = pt.op("Compress", x, pt.constant(np.zeros(3, bool)), axis=0, name="n")
    assert "ends the process" in str(answer("openvino", pt.Graph([kept])))
    places = pt.op("NonZero", pt.constant(np.zeros(3, np.float32)), name="n")
    assert "ends the process" in str(answer("openvino", pt.Graph([places])))
    assert "ends the process" in str(answer("openvino", a_loop(0, None, scans=True)))
    assert "ends the process" in str(answer("openvino", a_loop(3, False, scans=True)))
    assert answer("openvino", a_loop(0, None, scans=False)) is True
    assert answer("openvino", a_loop(2, True, scans=True)) is True


@pytest.mark.parametrize(
    ("length", "axis", "fits"), [(3, 1, True), (4, 1, True), (5, 1, False), ("K", 1, False), (12, None, True)]
)
def test_a_condition_that_may_be_longer_than_the_data(length: int | str, axis: int | None, fits: bool) -> None:
    x, condition = pt.variable("x", "float32", (3, 4)), pt.variable("c", "bool", (length,))
    attributes = {} if axis is None else {"axis": axis}
    said = answer("openvino", pt.Graph([pt.op("Compress", x, condition, name="n", **attributes)]))
    assert said is True if fits else "its condition is longer than the data" in str(said)


@pytest.mark.parametrize("op", ["ReduceL1", "ReduceLogSum", "ReduceLogSumExp"])
@pytest.mark.parametrize(("opset", "axes", "fits"), [(11, [0], True), (13, [0], False), (17, [0], False), (17, None, True)])
def test_axes_that_are_attributes(op: str, opset: int, axes: list[int] | None, fits: bool) -> None:
    attributes = {} if axes is None else {"axes": axes}
    y = pt.op(op, pt.variable("x", "float32", (3, 4)), name="n", opset=opset, **attributes)
    said = answer("openvino", pt.apply_pass(pt.Graph([y], opsets={"": opset}), "InferShape"))
    assert said is True if fits else said == f"openvino ignores the axes of {op} at opset {opset}"


def test_what_else_it_computes_otherwise() -> None:
    x, flat, point = (pt.variable(name, "float32", shape) for name, shape in (("x", (4, 3)), ("f", (5,)), ("p", ())))
    amounts, none = pt.constant(np.array([0, 1])), pt.constant(np.zeros(0, np.int64))
    bytes_ = pt.constant(np.array([200, 100], np.uint8))
    indices = pt.variable("i", "int64", (2, 3))
    scales = [pt.constant(np.float32(1)), pt.constant(np.uint8(0))]
    by_channel = [pt.constant(np.ones(2, np.float32)), pt.constant(np.zeros(2, np.int8))]
    weights = pt.variable("weights", "int8", (2, 2, 3))
    image = pt.variable("image", "uint8", (1, 2, 5))
    cases = {
        "by input channel": pt.op("QLinearConv", image, *scales, weights, *by_channel, *scales, name="n"),
        "adds a small number to the norm": pt.op("LpNormalization", x, name="n"),
        "sorts floats wrongly": pt.op("Unique", flat, name="n"),
        "in its own order for sorted=0": pt.op("Unique", x, sorted=0, name="n"),
        "returns False for NaN": pt.op("Cast", x, to=9, name="n"),
        "CastLike returns False for NaN": pt.op("CastLike", x, pt.constant(np.array(True)), name="n"),
        "pads with zeros": pt.op("Pad", flat, amounts, point, name="n"),
        "without dimensions": pt.op("Expand", point, none, name="n"),
        "along the other dimensions": pt.op("GatherElements", x, indices, axis=1, name="n"),
        "other positions and counts": pt.op("Unique", x, axis=0, n_outputs=2, name="n"),
        "of equal numbers is NaN": pt.op("MeanVarianceNormalization", pt.variable("h", "float16", (4, 3)), axes=[0], name="n"),
        "rounds or saturates": pt.op("Mul", bytes_, bytes_, name="n"),
        "openvino's Einsum of int32": pt.op("Einsum", pt.variable("w", "int32", (2, 2)), equation="ij->i", name="n"),
        "returns a vector for a BitShift": pt.op(
            "BitShift", pt.constant(np.uint32(7)), pt.constant(np.uint32(2)), direction="LEFT", name="n"
        ),
        "drops an Abs": pt.op("Abs", pt.op("Atan", pt.constant(np.linspace(-1, 1, 5, dtype=np.float32))), name="n"),
        "axes of an empty Slice": pt.op("Slice", flat, amounts, amounts, pt.variable("a", "int64", (2,)), name="n"),
        "bias and the threshold": pt.op("Shrink", pt.variable("w", "int32", (2, 2)), name="n"),
    }
    for reason, node in cases.items():
        graph = pt.apply_pass(pt.Graph(list(node.outputs)), "InferShape")
        assert reason in str(answer("openvino", graph))
    padded = pt.op("Pad", flat, amounts, pt.constant(np.float32(2)), name="n")
    whole = [pt.op("Unique", bytes_, name="n"), pt.op("Cast", bytes_, to=9, name="n"), pt.op("Cast", x, to=10, name="n")]
    for node in (padded, pt.op("GatherElements", x, indices, axis=0, name="n"), *whole):
        assert answer("openvino", pt.apply_pass(pt.Graph([node]), "InferShape")) is True


def test_an_abs_in_a_body_may_follow_from_constants_outside() -> None:
    formal = pt.variable("f", "float32", (4,))

    def branch(name: str, last: pt.Node) -> pt.Graph:
        return pt.Graph([pt.op("Add", last, formal, name=f"{name}_sum")], [formal], name=name)

    first, second = branch("a", pt.op("Abs", pt.op("Tanh", formal, name="tanh"), name="abs")), branch("b", pt.op("Tanh", formal))
    numbers = pt.constant(np.array([0.4, -2, -0.3, 1.2], np.float32))
    chosen = pt.op("If", pt.variable("go", "bool", ()), captures=[numbers], then_branch=first, else_branch=second, name="n")
    said = answer("openvino", pt.Graph([chosen]))
    assert "its body holds 'abs': openvino drops an Abs whose input follows from constants" in str(said)
    assert answer("openvino", pt.Graph([pt.op("Abs", pt.op("Tanh", pt.variable("x", "float32", (4,))), name="n")])) is True


def test_a_zero_has_its_own_place_in_a_pool_of_unsigned_integers() -> None:
    """Padding is the least number of a type, which a zero is here too."""
    data = pt.constant(np.array([[[5, 0, 2, 4]]], np.uint8))
    pool = pt.op("MaxPool", data, kernel_shape=[2], dilations=[2], pads=[1, 0], output_names=["y", "i"], name="n")
    said = answer("openvino", pt.Graph([pool[0], pool[1]]))
    assert said == "openvino's MaxPool of unsigned integers returns an index in the padding for a zero"


@pytest.mark.parametrize("p", [1, 2])
def test_a_normalization_of_small_numbers_is_left_to_others(p: int) -> None:
    said = answer("openvino", one_op("LpNormalization", ("float32", (3, 1)), p=p, axis=-1))
    assert said == "openvino adds a small number to the norm in LpNormalization"


UNEVEN = np.array([np.nan, 1, np.nan, np.inf, -np.inf, 2, 0, 3] * 3, np.float32)
OTHER = np.array([1, np.nan, np.nan, np.nan, np.nan, 2, 1, -3] * 3, np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"])
def test_nothing_is_larger_than_nan(op: str, dtype: str) -> None:
    names = [pt.variable(name, dtype, ("N",)) for name in "xy"]
    first = pt.op(op, *names, name="n")
    last = pt.op(op, pt.op("Neg", names[0]), pt.constant(np.ones((), dtype)), name="m")
    g = pt.Graph([first, last], inputs=names)
    arrays = UNEVEN.astype(dtype), OTHER.astype(dtype)
    assert accelerator("openvino").query(g)["n"] is True
    for mine, want in zip(run("openvino", g, *arrays), run("reference", g, *arrays), strict=True):
        np.testing.assert_array_equal(mine, want)


def test_nothing_is_larger_than_nan_in_a_body() -> None:
    x, formal = pt.variable("x", "float32", (24,)), pt.variable("f", "float32", (24,))
    number, go = pt.variable("i", "int64", ()), pt.variable("c", "bool", ())
    larger = pt.op("Cast", pt.op("Greater", formal, pt.constant(np.float32(0))), to=1)
    after = pt.op("Sub", larger, pt.constant(np.float32(0.5)))
    body = pt.Graph([pt.op("Identity", go), after], [number, go, formal], name="body")
    g = pt.Graph([pt.op("Loop", pt.constant(np.array(2)), None, x, body=body, name="n")])
    assert answer("openvino", g) is True
    (mine,), (want,) = run("openvino", g, UNEVEN), run("reference", g, UNEVEN)
    np.testing.assert_array_equal(mine, want)


def test_a_turned_comparison_is_profiled_by_its_name() -> None:
    g = pt.Graph([pt.op("Greater", pt.variable("x", "float32", (24,)), pt.constant(np.float32(1)), name="larger")])
    body = compiled("openvino", g, PERF_COUNT=True)
    np.testing.assert_array_equal(body.run([UNEVEN])[0], UNEVEN > 1)
    assert "larger" in {row.node for row in body.profile_rows()}


def test_a_loop_that_may_have_no_turn() -> None:
    loop = a_loop(None, None, scans=True)
    assert answer("openvino", loop) is True
    assert "loses dynamic sizes" in str(answer("openvino", pt.apply_pass(loop, "InferShape", shapes={"x": (1, "N")})))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("quantized", [True, False])
def test_constant_data_with_a_zero_point(op: str, quantized: bool) -> None:
    points = [pt.constant(np.float32(0.1)), pt.constant(np.uint8(3))]

    def dequantized(source: pt.Node) -> pt.Node:
        return pt.op("DequantizeLinear", pt.op("QuantizeLinear", source, *points) if quantized else source, *points)

    array, weights = np.ones((1, 2, 4, 4)), pt.variable("w", "float32", (2, 2, 3, 3))
    kind = "float32" if quantized else "uint8"
    for source, fits in ((pt.constant(array.astype(kind)), False), (pt.variable("x", kind, (1, 2, 4, 4)), True)):
        graph = pt.apply_pass(pt.Graph([pt.op(op, dequantized(source), weights, name="n")]), "InferShape")
        said = answer("openvino", graph)
        assert said is True if fits else said == f"openvino loses the zero point of constant data that {op} reads dequantized"


@pytest.mark.parametrize(
    ("shape", "attributes", "is_wrong"),
    [
        ((1, 1, 5), {}, False),
        ((1, 1, 4), {"pads": [0, 1]}, True),
        ((1, 1, 4), {"pads": [1, 1]}, False),
        ((1, 1, 4), {"pads": [0, 1], "kernel_shape": [1]}, True),
        ((1, 1, 5), {"kernel_shape": [1]}, False),
        ((1, 1, 3), {"pads": [1, 1], "kernel_shape": [1]}, True),
        ((1, 1, 6), {"pads": [0, 1], "strides": [3], "dilations": [2]}, True),
        ((1, 1, 6), {"pads": [0, 1], "strides": [3], "dilations": [3]}, False),
        ((1, 1, 5, 4), {"pads": [0, 0, 0, 1], "kernel_shape": [1, 1], "strides": [2, 2]}, True),
        ((1, 1, 5, 5), {"pads": [0, 0, 0, 1], "kernel_shape": [1, 2], "strides": [2, 2]}, False),
        ((1, 1, "N"), {}, True),
        ((1, 1, 5), {"auto_pad": "VALID"}, True),
        ((1, 1, 4), {"pads": [0, 1], "kernel_shape": [1], "ceil_mode": 0}, False),
    ],
)
def test_pools_whose_last_window_begins_in_the_padding(shape: tuple, attributes: dict, is_wrong: bool) -> None:
    stated = {"ceil_mode": 1, "kernel_shape": [2], "strides": [2], **attributes}
    node = pt.op("MaxPool", pt.variable("x", "float32", shape), **stated)
    assert bool(quirks._ends_in_padding(Case(node, pt.Graph([node])))) is is_wrong


@pytest.mark.parametrize("op", ["TopK", "Unique"])
def test_the_elements_that_an_op_picks_are_as_wide_as_before(op: str) -> None:
    """Only its positions are small; another device may have picked, and the sum is openvino's to refuse."""
    given = [pt.variable("x", "int64", (4,)), *([pt.constant(np.array([2]))] if op == "TopK" else [])]
    picked = pt.op(op, *given, n_outputs=2, name="picked")[0].node
    sums = [pt.op("Add", entry, entry, name=name) for entry, name in zip(picked.outputs, ("elements", "positions"), strict=True)]
    answers = accelerator("openvino").query(pt.apply_pass(pt.Graph(sums), "InferShape"))
    assert "openvino computes int64 in 32 bits" in str(answers["elements"]) and answers["positions"] is True
