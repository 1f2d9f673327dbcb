"""Ops that sum over nothing, on each device: the reference's answer, never memory that nobody wrote, never the process's end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.empty_reductions import may_be_empty, sums_nothing
from partita.graph.interpret import interpret
from partita.graph.writers.onnx.model import to_model
from tests.close import assert_close

DEVICES = ["cpu", "onnxruntime", "openvino"]


def bytes_of(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint8)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


SCALE, POINT = np.float32(0.1), np.uint8(3)

CASES: dict[str, tuple[str, list[np.ndarray | np.generic], int, dict[str, object]]] = {
    "Gemm": ("Gemm", [floats(5, 0), floats(0, 3), floats(3)], 3, {}),
    "Conv of no channels": ("Conv", [floats(1, 0, 5, 5), floats(2, 0, 3, 3), floats(2)], 3, {}),
    "Conv of no images": ("Conv", [floats(0, 2, 5, 5), floats(2, 2, 3, 3), floats(2)], 3, {}),
    "ConvTranspose": ("ConvTranspose", [floats(1, 0, 5, 5), floats(0, 2, 3, 3), floats(2)], 3, {}),
    "MaxPool": ("MaxPool", [floats(1, 2, 0, 5)], 1, {"kernel_shape": [3, 3], "pads": [2, 1, 2, 1]}),
    "Einsum": ("Einsum", [floats(3, 0), floats(0, 4), floats(4)], 3, {"equation": "ij,jk,k->ik"}),
    "MatMulInteger": ("MatMulInteger", [bytes_of(3, 0), bytes_of(0, 4), POINT], 2, {}),
    "QLinearMatMul": ("QLinearMatMul", [bytes_of(3, 0), SCALE, POINT, bytes_of(0, 4), SCALE, POINT, SCALE, np.uint8(77)], 1, {}),
    "GRU of no steps": ("GRU", [floats(0, 2, 3), floats(1, 12, 3), floats(1, 12, 4)], 1, {"hidden_size": 4}),
    "GRU of no sequences": ("GRU", [floats(3, 0, 3), floats(1, 12, 3), floats(1, 12, 4)], 1, {"hidden_size": 4}),
    "LSTM": ("LSTM", [floats(0, 2, 3), floats(1, 16, 3), floats(1, 16, 4)], 1, {"hidden_size": 4}),
}
"""The op, its inputs, how many of them are variables, its attributes."""


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", DEVICES)
def test_what_has_no_elements_is_the_references(device: str, case: str, is_open: bool) -> None:
    pytest.importorskip("tvm" if device == "cpu" else device)
    op, inputs, variables, attributes = CASES[case]
    given = {f"x{i}": np.asarray(value) for i, value in enumerate(inputs[:variables])}
    nodes = [pt.variable(n, str(a.dtype), [f"{n}_{d}" for d in range(a.ndim)] if is_open else a.shape) for n, a in given.items()]
    outputs = 2 if op in ("GRU", "LSTM") else 1
    node = pt.op(op, *nodes, *map(pt.constant, inputs[variables:]), n_outputs=outputs, **attributes)
    graph = pt.Graph([node[i] for i in range(outputs)], nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results = pt.compile(graph, f"HETERO:{device},reference")(given)
    for result, wanted in zip(results, interpret(graph, list(given.values())), strict=True):
        np.testing.assert_array_equal(result, wanted, strict=True)


@pytest.mark.parametrize(("device", "is_open"), [*[(device, False) for device in DEVICES], ("cpu", True)])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceProd", "ReduceL2", "ReduceLogSumExp"])
def test_what_is_reduced_may_have_come_to_nothing(device: str, op: str, is_open: bool) -> None:
    """A part of the input, which has no elements itself though the input has."""
    pytest.importorskip("tvm" if device == "cpu" else device)
    x = pt.variable("x", "float32", ("N", "S", 4) if is_open else (2, 1, 4))
    rest = pt.op("Slice", x, *(pt.constant(np.array([number])) for number in (1, 2**62, 1)))
    graph = pt.Graph([pt.op(op, rest, pt.constant(np.array([1])), keepdims=0)], [x])
    given = floats(2, 1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = pt.compile(graph, f"HETERO:{device},reference")(given)
        wanted = interpret(graph, [given])
    np.testing.assert_array_equal(results[0], wanted[0], strict=True)


@pytest.mark.parametrize("sizes", [(1, 1, 0, 4), (1, 1, "H", "W")], ids=["fixed", "open"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic", "crop"])
def test_no_pixels_are_made_of_nothing(mode: str, sizes: tuple[int | str, ...]) -> None:
    """They were memory that nobody has written."""
    pytest.importorskip("tvm")
    x, cropped = pt.variable("x", "float32", sizes), {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    region = pt.constant(np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)) if mode == "crop" else None
    given = x, region, None, pt.constant(np.array([1, 1, 30, 30]))
    graph = pt.Graph([pt.op("Resize", *given, **(cropped if mode == "crop" else {"mode": mode}))], [x])
    with pytest.raises(pt.PartitaError, match="Resize"):
        pt.compile(graph, "HETERO:cpu,reference")(floats(1, 1, 0, 4))


def from_the_fourth(x: pt.Node) -> pt.Node:
    """What follows the first three columns."""
    return pt.op("Slice", x, *(pt.constant(np.array([number])) for number in (3, 2**62, 2)), name="rest")


def numbers(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


OF_NOTHING: dict[str, list[Callable[[pt.Node], pt.Node]]] = {
    "onnxruntime": [lambda x: pt.op("ReduceMean", x, numbers(2)), lambda x: pt.op("ReduceMean", x)],
    "openvino": [
        lambda x: pt.op("ReduceMean", x, numbers(2)),
        lambda x: pt.op("ReduceMax", x, numbers(2), keepdims=0),
        lambda x: pt.op("ReduceMin", x),
        lambda x: pt.op("GlobalAveragePool", x),
        lambda x: pt.op("MaxPool", x, kernel_shape=[2], pads=[1, 1]),
        lambda x: pt.op("Conv", x, pt.constant(floats(1, 2, 3)), pt.constant(floats(1)), pads=[3, 3]),
    ],
}
"""What is wrong on an engine if its input has no columns."""


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("device", OF_NOTHING)
def test_what_turns_out_to_be_nothing_within_an_engine(device: str) -> None:
    """The sizes of the input decide; the engine has it all, and numpy computes the calls in which there is nothing."""
    pytest.importorskip(device)
    x = pt.variable("x", "float32", (1, 2, "N"))
    rest = from_the_fourth(x)
    graph = pt.Graph([pt.op("Relu", make(rest))[0] for make in OF_NOTHING[device]], [x])
    model = pt.compile(graph, device)
    for columns in (3, 7, 3):
        given = floats(1, 2, columns)
        for result, wanted in zip(model(given), interpret(graph, [given]), strict=True):
            assert_close(result, wanted, atol=1e-6, strict=True)


def test_an_imported_engine_tells_what_turns_out_to_be_nothing(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    x = pt.variable("x", "float32", (1, 2, "N"))
    graph = pt.Graph([pt.op("ReduceMean", from_the_fourth(x))], [x])
    for with_bodies in (True, False):
        pt.compile(graph, "openvino").export(tmp_path / "model.partita", bodies=with_bodies)
        model = pt.import_model(tmp_path / "model.partita")
        np.testing.assert_allclose(model(floats(1, 2, 5))[0], floats(1, 2, 5)[:, :, 3:].mean(keepdims=True), rtol=1e-6)
        if with_bodies:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                assert np.isnan(model(floats(1, 2, 3))[0]).all()
        else:
            with pytest.raises(pt.PartitaError, match="has no elements, which the device computes wrongly"):
                model(floats(1, 2, 3))


NORM = pt.constant(np.ones(2, np.float32))

FATAL: list[tuple[Callable[[pt.Node], pt.Node], Callable[[pt.Node], pt.Node], bool]] = [
    (from_the_fourth, lambda x: pt.op("Einsum", x, x, equation="bij,bkj->ik", name="last"), True),
    (from_the_fourth, lambda x: pt.op("InstanceNormalization", x, NORM, NORM, name="last"), True),
    (lambda x: pt.op("Pad", x, numbers(0, 0, 1, 0, 0, 1), mode="edge"),
     lambda x: pt.op("InstanceNormalization", pt.op("Conv", x, pt.constant(floats(2, 2, 3))), NORM, NORM, name="last"), False),
    (lambda x: pt.op("MaxPool", x, kernel_shape=[3], pads=[1, 1], strides=[2]),
     lambda x: pt.op("InstanceNormalization", pt.op("Relu", x), NORM, NORM, name="last"), False),
    (lambda x: pt.op("AveragePool", x, kernel_shape=[3]),
     lambda x: pt.op("InstanceNormalization", pt.op("Relu", x), NORM, NORM, name="last"), True),
]
"""What makes the operand, the op that ends onnxruntime's process if that has no elements, and whether that may be."""


@pytest.mark.parametrize(("before", "last", "may_be"), FATAL)
def test_what_might_end_onnxruntimes_process_is_refused(
    before: Callable[[pt.Node], pt.Node], last: Callable[[pt.Node], pt.Node], may_be: bool
) -> None:
    pytest.importorskip("onnxruntime")
    x = pt.variable("x", "float32", (1, 2, "N"))
    placement = pt.query(pt.Graph([last(before(x))], [x]), "HETERO:onnxruntime,reference")
    assert placement["last"] == ("reference" if may_be else "onnxruntime")
    if may_be:
        assert "reads a value without elements, and " in placement.why("last")


def test_a_symbol_that_lies_between_devices_is_right_or_one_error() -> None:
    """The value between is declared as long as the input, and is shorter."""
    pytest.importorskip("onnxruntime")
    x = pt.variable("x", "float32", ("N", 4))
    cut = pt.op("Slice", x, numbers(1), numbers(99), name="cut")
    whole = pt.op("ReduceSum", pt.op("Relu", cut), keepdims=0)
    model = to_model(pt.Graph([pt.op("Tanh", pt.op("Mul", pt.op("Sigmoid", x), whole))], [x]))
    model.graph.value_info.add().CopyFrom(model.graph.input[0])
    model.graph.value_info[-1].name = "cut"
    graph = pt.load(model)
    given = floats(6, 4)
    compiled = pt.compile(graph, "HETERO:onnxruntime,reference", pin={"cut": "reference"})
    try:
        assert_close(compiled(given)[0], interpret(graph, [given])[0], atol=1e-6)
    except pt.RunError as error:
        assert "on 'onnxruntime'" in str(error)


@pytest.mark.parametrize("dims", [(2, 1, 4), ("N", "S", 4)], ids=["fixed", "open"])
def test_the_largest_of_nothing_has_no_position(dims: tuple[int | str, ...]) -> None:
    pytest.importorskip("tvm")
    x = pt.variable("x", "float32", dims)
    rest = pt.op("Slice", x, *(pt.constant(np.array([number])) for number in (1, 2**62, 1)))
    with warnings.catch_warnings(), pytest.raises(pt.PartitaError, match="ArgMax"):
        warnings.simplefilter("ignore", UserWarning)
        pt.compile(pt.Graph([pt.op("ArgMax", rest, axis=1)], [x]), "HETERO:cpu,reference")(floats(2, 1, 4))


def test_naming_no_dimensions_is_not_reducing_nothing() -> None:
    x = pt.variable("x", "float32", (2, 4))
    graph = pt.apply_pass(pt.Graph([pt.op("ReduceSum", x, pt.constant(np.array([], np.int64)))]), "InferShape")
    assert sums_nothing(graph.outputs[0].node) is None


def gated(x: pt.Node) -> pt.Node:
    return pt.op("GRU", x, pt.constant(floats(1, 12, 3)), pt.constant(floats(1, 12, 4)), n_outputs=2, hidden_size=4)


def kept(x: pt.Node) -> pt.Node:
    """The steps that a condition keeps."""
    return pt.op("Compress", x, pt.variable("keep", "bool", ("n",)), axis=0)


@pytest.mark.parametrize(("before", "refused"), [(kept, True), (lambda x: x, False), (lambda x: pt.op("Relu", x), False)])
def test_a_recurrent_op_whose_sizes_depend_on_values_is_refused(before: Callable[[pt.Node], pt.Node], refused: bool) -> None:
    graph = pt.apply_pass(pt.Graph([gated(before(pt.variable("x", "float32", ("n", 2, 3))))[0]]), "InferShape")
    node = next(node for node in graph.nodes if node.op == "GRU")
    reason = may_be_empty(node, graph)
    assert (reason is not None) == refused
    assert reason is None or reason.startswith("GRU may be given no elements, since the sizes of 'compress")


@pytest.mark.parametrize("is_known", [True, False])
def test_constant_indices_into_what_has_unknown_sizes(is_known: bool) -> None:
    """OpenVINO would read outside where they are wrong, and only the sizes of inputs can be looked at before it runs."""
    pytest.importorskip("openvino")
    x = pt.variable("x", "float32", (9, "N"))
    data = x if is_known else pt.op("Slice", x, numbers(2), pt.variable("end", "int64", (1,)))
    placement = pt.query(pt.Graph([pt.op("GatherND", data, numbers(1, 5), name="last")]), "HETERO:openvino,reference")
    assert placement["last"] == ("openvino" if is_known else "reference")
    if not is_known:
        assert "where GatherND's indices are wrong, and the sizes of its data are computed" in placement.why("last")
