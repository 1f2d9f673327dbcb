"""Sizes of an op's inputs that do not go together are one error, and never a read or a write outside of what was given.

ONNX's inference does not compare them, and kernels that take the sizes of one input for those of another read beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.symbols import symbol
from partita.passes.infer.contract import require_fit

Sizes = tuple[int, ...]
Input = tuple[str, Sizes]

F = "float32"
NONE: Input = ("", ())
CASES: dict[str, tuple[str, dict[str, Any], list[Input], str]] = {
    "longer indices": ("GatherElements", {}, [(F, (2, 4)), ("int64", (3, 6))], "the data and of the indices .*: 4 .* 6"),
    "longer places": (
        "ScatterElements", {"axis": 0}, [(F, (2, 4)), ("int64", (2, 6)), (F, (2, 6))], "the data and of the indices .*: 4 .* 6"
    ),
    "fewer updates": (
        "ScatterElements", {}, [(F, (2, 4)), ("int64", (2, 4)), (F, (1, 2))], "the indices and of the updates .*: 2 and 1"
    ),
    "fewer rows": ("ScatterND", {}, [(F, (5, 4)), ("int64", (3, 1)), (F, (1, 4))], "the updates and of what .*: 1 and 3"),
    "more batches": ("GatherND", {"batch_dims": 1}, [(F, (2, 4)), ("int64", (3, 2, 1))], "the batches of .*: 2 and 3"),
    "more images": ("GridSample", {}, [(F, (2, 1, 4, 4)), (F, (1, 3, 3, 2))], "the batches of the grid .*: 1 and 2"),
    "more dimensions": ("GridSample", {}, [(F, (2, 3, 4, 4)), (F, (2, 3, 3, 3))], "the numbers of a position .*: 3 and 2"),
    "more channels": ("Conv", {}, [(F, (2, 5, 8, 8)), (F, (4, 3, 3, 3))], "the channels of the data .*: 5 and 3"),
    "groups": ("Conv", {"group": 2}, [(F, (2, 5, 8, 8)), (F, (4, 3, 3, 3))], "the channels of the data .*: 5 and 6"),
    "turned": ("ConvTranspose", {}, [(F, (2, 5, 4, 4)), (F, (3, 2, 2, 2))], "the channels of the data .*: 5 and 3"),
    "slope": ("PRelu", {}, [(F, (2, 5)), (F, (3,))], "the slope and of the data .*: 3 and 5"),
    "bias": ("ConvTranspose", {}, [(F, (2, 3, 4, 4)), (F, (3, 4, 2, 2)), (F, (2,))], "the bias and of what .*: 2 and 4"),
    "states": (
        "GRU", {"hidden_size": 4}, [(F, (2, 3, 5)), (F, (1, 12, 5)), (F, (1, 12, 4)), NONE, NONE, (F, (1, 2, 4))],
        "input 5 .*: 2 and 3",
    ),
    "gates": ("GRU", {"hidden_size": 4}, [(F, (2, 3, 5)), (F, (1, 8, 5)), (F, (1, 12, 4))], "input 1 .*: 8 and 12"),
    "width": ("RNN", {"hidden_size": 8}, [(F, (2, 3, 5)), (F, (1, 4, 5)), (F, (1, 4, 4))], "input 1 .*: 4 and 8"),
    "biases": (
        "LSTM", {"hidden_size": 4}, [(F, (2, 3, 5)), (F, (1, 16, 5)), (F, (1, 16, 4)), (F, (1, 16))], "input 3 .*: 16 and 32"
    ),
    "labels": (
        "NegativeLogLikelihoodLoss", {"reduction": "none"}, [(F, (3, 4)), ("int64", (2,))], "the labels and of .*: 2 and 3"
    ),
    "a sum over fewer labels": (
        "SoftmaxCrossEntropyLoss", {"reduction": "sum"}, [(F, (3, 4)), ("int64", (2,))], "the labels and of .*: 2 and 3"
    ),
    "scales": ("DequantizeLinear", {"axis": 1}, [("int8", (3, 8)), (F, (4,))], "the scales and those .*: 4 and 8"),
    "depth": ("MatMul", {}, [(F, (3, 7)), (F, (8, 16))], "(the depths of both matrices .*: 7 and 8|Incompatible dimensions)"),
    "joined": ("Concat", {"axis": 1}, [(F, (3, 4)), (F, (2, 4))], "(what is joined .*: 3 and 2|Can't merge)"),
}


def graph_of(op: str, attributes: dict[str, Any], inputs: list[Input], symbols: bool) -> pt.Graph:
    given = [
        pt.variable(f"x{i}", kind, tuple(f"n{i}_{d}" if symbols and size > 1 else size for d, size in enumerate(sizes)))
        if kind
        else None
        for i, (kind, sizes) in enumerate(inputs)
    ]
    there = [node for node in given if node is not None]
    return pt.Graph([pt.op(op, *given, **attributes, name="y", opset=20)], there, opsets={"": 20})


def arrays_of(inputs: list[Input]) -> list[np.ndarray]:
    return [np.zeros(sizes, kind) for kind, sizes in inputs if kind]


@pytest.mark.parametrize("case", CASES)
def test_fixed_sizes_that_do_not_go_together(case: str) -> None:
    op, attributes, inputs, message = CASES[case]
    with pytest.raises(pt.PartitaError, match=f"node 'y' [(]{op}[)].*{message}"):
        pt.compile(graph_of(op, attributes, inputs, symbols=False), "reference")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", ["cpu", "HETERO:openvino,reference", "HETERO:onnxruntime,reference"])
@pytest.mark.filterwarnings("ignore:.*does not compile for")
def test_sizes_that_come_and_do_not_go_together(case: str, device: str) -> None:
    if device != "cpu":
        pytest.importorskip(device.removeprefix("HETERO:").partition(",")[0])
    op, attributes, inputs, _ = CASES[case]
    graph = graph_of(op, attributes, inputs, symbols=True)
    said = r"node 'y' \(\w+\): .* do not go together|the value 'y' is declared"
    with pt.compile(graph, device) as model, pytest.raises(pt.InputError, match=said):
        model(*arrays_of(inputs))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.filterwarnings("ignore:.*does not compile for")
def test_rows_that_are_shorter_than_a_matrix_is_deep(precision: str) -> None:
    x = pt.variable("x", "float32", ("n", "depth"))
    graph = pt.Graph([pt.op("MatMul", x, pt.constant(np.ones((8, 16), np.float32)), name="y")])
    with pt.compile(graph, "cpu", {"PRECISION": precision}) as model:
        with pytest.raises(pt.InputError, match="'y' [(]MatMul[)]: the depths of both matrices do not go together: 7 and 8"):
            model(np.ones((3, 7), np.float32))
        assert model(np.ones((3, 8), np.float32))[0].shape == (3, 16)


@pytest.mark.filterwarnings("ignore:.*does not compile for")
def test_a_constant_index_outside_of_what_comes() -> None:
    pytest.importorskip("openvino")
    x = pt.variable("x", "float32", ("n", 4))
    graph = pt.Graph([pt.op("Gather", x, pt.constant(np.array([0, 5])), name="y")])
    for device in ("HETERO:openvino,reference", "cpu"):
        with pt.compile(graph, device) as model:
            assert model(np.ones((6, 4), np.float32))[0].shape == (2, 4)
            with pytest.raises(pt.InputError, match=r"a dimension and the indices into it do not go together: 3 is less than 6"):
                model(np.ones((3, 4), np.float32))


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.filterwarnings("ignore:.*does not compile for")
def test_more_is_reflected_than_there_is(size: int | str) -> None:
    x = pt.variable("x", "float32", (size, 4))
    graph = pt.Graph([pt.op("Pad", x, pt.constant(np.array([5, 0, 5, 0])), mode="reflect", name="y")])
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    with pt.compile(graph, "HETERO:cpu,reference") as model:
        np.testing.assert_array_equal(model(given)[0], np.pad(given, ((5, 5), (0, 0)), mode="reflect"))


def test_a_scale_for_each_block() -> None:
    x, scale = pt.variable("x", "int8", (3, 8)), pt.variable("scale", "float32", (1, 4))
    with pytest.raises(pt.PartitaError, match="node 'y' [(]DequantizeLinear[)].*the scales and those .*: 1 and 3"):
        pt.compile(pt.Graph([pt.op("DequantizeLinear", x, scale, axis=1, block_size=2, name="y")]), "reference")


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_zero_point_of_another_type_than_its_integers(device: str) -> None:
    """The device `cpu` took it for one of theirs."""
    stored, point = pt.constant(np.ones((4, 3), np.int8)), pt.constant(np.full(3, 200, np.uint8))
    weight = pt.op("DequantizeLinear", stored, pt.constant(np.ones(3, np.float32)), point, name="weight")
    product = pt.op("MatMul", pt.variable("x", "float32", (2, 4)), weight)
    with pytest.raises(pt.PartitaError, match="'weight' [(]DequantizeLinear[)].*its integers are int8 and its zero points uint8"):
        pt.compile(pt.Graph([product]), device)


def test_a_row_beyond_a_quantized_table() -> None:
    pytest.importorskip("onnxruntime")
    table, indices = pt.constant(np.zeros((4, 16), np.uint8)), pt.variable("indices", "int64", ("n",))
    node = pt.op(
        "GatherBlockQuantized", table, indices, pt.constant(np.ones((4, 1), np.float32)),
        domain="com.microsoft", gather_axis=0, quantize_axis=1, block_size=16, bits=8, name="y",
    )
    graph = pt.Graph([node], opsets={"": 21, "com.microsoft": 1})
    assert "reads outside of GatherBlockQuantized's data" in pt.query(graph, "HETERO:onnxruntime,reference").why("y")


def test_what_goes_together() -> None:
    a, b = pt.variable("a", "float32", (2, "c")), pt.variable("b", "float32", ("c", 5))
    require_fit(pt.op("MatMul", a, b), [(2, symbol("c")), (symbol("c"), 5)], {"": 21})
    by_channel = pt.op("PRelu", pt.variable("x", "float32", (2, 3, 7)), pt.variable("s", "float32", (3,)))
    for sizes in ((2, 3, 7), (2, symbol("c"), 7)):
        require_fit(by_channel, [sizes, (3,)], {"": 6})
    with pytest.raises(pt.PartitaError, match="the slope and of the data do not go together: 3 and 7"):
        require_fit(by_channel, [(2, 4, 7), (3,)], {"": 21})


def scattered() -> pt.Graph:
    """Rows of zeros, with one row of updates for as many indices as are chosen."""
    chosen, rows, update = pt.variable("chosen", "bool", (5,)), np.zeros((5, 4), np.float32), np.ones((1, 4), np.float32)
    indices = pt.op("Transpose", pt.op("NonZero", chosen), name="indices")
    return pt.Graph([pt.op("ScatterND", pt.constant(rows), indices, pt.constant(update), name="y")], [chosen])


def in_a_branch() -> pt.Graph:
    chosen, condition = pt.variable("chosen", "bool", (5,)), pt.constant(np.array([True]))
    condition = pt.op("ReduceMax", pt.op("Or", chosen, condition), keepdims=0)
    branches = {"then_branch": scattered(), "else_branch": scattered()}
    return pt.Graph([pt.op("If", condition, captures=[chosen], **branches, name="branching")], [chosen])


@pytest.mark.parametrize("build", [scattered, in_a_branch])
def test_sizes_that_values_decide_and_do_not_go_together(build: Callable[[], pt.Graph]) -> None:
    """Numpy would broadcast the single row of updates to all chosen rows."""
    with pt.compile(build(), "reference") as model:
        assert model(np.array([0, 1, 0, 0, 0], bool))[0].sum() == 4
        with pytest.raises(pt.PartitaError, match="'y' [(]ScatterND[)].*of what they replace do not go together: 1 and 5"):
            model(np.ones(5, bool))
