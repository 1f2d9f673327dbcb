"""What the TVM devices say of ops: quickly on large graphs, and with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.moves.copies import find_pieces
from partita.accelerators.tvm.kernels.shared import strides
from partita.accelerators.tvm.query import support
from partita.graph.node import Node, NodeEntry
from tests.close import assert_close


def a_chain(length: int) -> pt.Graph:
    x = value = pt.variable("x", "float32", (4, 16))
    for i in range(length):
        value = pt.op(("Relu", "Sigmoid", "Gelu", "Softmax")[i % 4], value, name=f"n{i}")
    return pt.Graph([value], [x], "chain", {"": 21})


def test_each_kind_of_op_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    support.forget()
    asked: list[str] = []
    answer = support._answer

    def counted(node: Node, *rest: object) -> bool | str:
        asked.append(str(node.op))
        return answer(node, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(support, "_answer", counted)
    placement = pt.query(a_chain(2000), "HETERO:cpu,reference")
    assert set(dict(placement).values()) == {"cpu"}
    assert len(asked) <= 4


def test_other_sizes_and_values_are_other_questions() -> None:
    x = pt.variable("x", "float32", (4, 16))
    near, far = (pt.constant([position], f"i{position}") for position in (3, 4))
    taken = pt.Graph([pt.op("Gather", x, near, name="near"), pt.op("Gather", x, far, name="far")], [x])
    placement = pt.query(taken, "HETERO:cpu,reference")
    assert placement["near"] == "cpu" and placement["far"] == "reference"
    assert "index 4 is outside of a dimension of 4" in placement.why("far")


@pytest.mark.parametrize("op", ["Add", "Mul", "Max", "Pow", "Sum", "MatMul", "Less"])
def test_truth_values_are_no_numbers(op: str) -> None:
    a, b = pt.variable("a", "bool", (3, 3)), pt.variable("b", "bool", (3, 3))
    said = pt.query(pt.Graph([pt.op(op, a, b, name="both")], [a, b]), "HETERO:cpu,reference").why("both")
    assert f"not on cpu: ONNX's {op} of opset 21 takes no bool, and input 0 is bool[3, 3]" in said


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_truth_values_that_are_combined(op: str) -> None:
    a, b = pt.variable("a", "bool", (3, 3)), pt.variable("b", "bool", (3, 3))
    chosen = pt.op("Where", pt.op(op, a, b, name="both"), pt.constant(np.float32(1)), pt.constant(np.float32(2)), name="chosen")
    placement = pt.query(pt.Graph([chosen], [a, b]), "HETERO:cpu,reference")
    assert set(dict(placement).values()) == {"cpu"}


@pytest.mark.parametrize("op", ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Cosh", "Sinh"])
def test_functions_of_float16_are_computed_in_float32(op: str) -> None:
    """TVM imports them as they are, and has no machine code for them."""
    x = pt.variable("x", "float16", (3,))
    graph = pt.Graph([pt.op(op, x, name="y", opset=22)], opsets={"": 22})
    assert pt.query(graph, "HETERO:cpu,reference")["y"] == "cpu"
    (result,), given = pt.compile(graph, "cpu")(np.full(3, 1, "float16")), np.full(3, 1, "float16")
    np.testing.assert_allclose(result, pt.compile(graph, "reference")(given)[0], rtol=2e-3)


@pytest.mark.parametrize("op", ["Cosh", "Sinh"])
def test_functions_that_tvm_has_no_vectors_of(op: str) -> None:
    """Where vectors divide the loop TVM's code generation refused them."""
    x = pt.variable("x", "float32", (4, 64))
    whole = pt.op(op, x, name="whole")
    graph = pt.Graph([whole, pt.op("ReduceSum", whole, pt.constant(np.array([1])), keepdims=0)])
    given = np.linspace(-3, 3, 256, dtype="float32").reshape(4, 64)
    with pt.compile(graph, "cpu") as model, pt.compile(graph, "reference") as reference:
        for ours, wanted in zip(model(given), reference(given), strict=True):
            assert_close(ours, wanted, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 40])
def test_a_weight_that_is_no_number(channels: int) -> None:
    """Few numbers are remembered with the answer, many are not."""
    x = pt.variable("x", "float32", (1, channels, 5, 5))
    weights = np.ones((2, channels, 1, 2, 2), np.float32)
    weights[1, -1, 0, 0, 0] = np.nan
    for value, device in zip(weights, ("cpu", "reference"), strict=True):
        y = pt.op("ConvTranspose", x, pt.constant(value, "w"), strides=[2, 2], group=channels, name="y")
        placement = pt.query(pt.Graph([y]), "HETERO:cpu,reference")
        assert placement["y"] == device
    assert "one of them is NaN or infinite" in placement.why("y")


@pytest.mark.parametrize(("constant", "name", "value"), [("x0", "clip", "y"), ("c", "x0", "y"), ("c", "clip", "x0")])
def test_a_models_names_may_be_those_that_stand_for_inputs(constant: str, name: str, value: str) -> None:
    bounds = pt.constant(np.float32(-1), name=constant), pt.constant(np.float32(1.5))
    given = pt.variable("a", "float32", (3, 7))
    graph = pt.Graph([pt.op("Clip", given, *bounds, name=name, output_names=[value])])
    support.forget()
    assert dict(pt.query(graph, "cpu")) == {name: "cpu"}


def test_a_trial_is_not_for_ever() -> None:
    """TVM's importer would write a billion numbers out, and take minutes over thousands of parts."""
    first, end, step = (pt.constant(np.array(n), name=f"c{i}") for i, n in enumerate((0, 10**9, 1)))
    numbers = pt.op("Range", first, end, step, name="range")
    parts = pt.op("Split", pt.variable("x", "float32", (1024,)), num_outputs=1024, n_outputs=1024, name="split")
    placement = pt.query(pt.Graph([numbers[0], *parts.outputs]), "HETERO:cpu,reference")
    assert "TVM's importer writes a Range of constants out, and this one is long" in placement.why("range")
    assert "Split has 1,025 inputs and outputs: kernels are made for 1,024 at most" in placement.why("split")


def test_the_parts_of_a_split_are_found_in_one_step_each(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    shape_of = strides.shape_of

    def counted(entry: NodeEntry) -> tuple[int, ...]:
        asked.append(entry)
        return shape_of(entry)

    monkeypatch.setattr(strides, "shape_of", counted)
    x = pt.variable("x", "float32", (2, 900))
    split = pt.op("Split", x, axis=1, num_outputs=300, n_outputs=300, name="split")
    pieces = find_pieces(make_body(pt.apply_pass(pt.Graph(list(split.outputs), [x]), "InferShape")))
    assert pieces is not None and [piece.first for piece in pieces] == [3 * i for i in range(300)]
    assert len(asked) < 5 * 300


def test_sizes_that_a_file_states_by_symbols() -> None:
    text = """opset 12
graph net(x: float32[1, 3, 5, 2], sizes: int64[4]) -> (y) {
  none = const float32[0] []
  y = Resize(x, none, none, sizes) {mode="cubic"} : float32[a, b, c, d]
}"""
    said = pt.query(pt.parse(text), "HETERO:cpu,reference").why("y")
    assert "the sizes of 'y' depend on values: those of 'sizes'" in said


@pytest.mark.parametrize("op", ["Celu", "Swish"])
@pytest.mark.parametrize("rows", [3, "n"])
def test_an_op_with_a_formula_needs_no_importer(op: str, rows: int | str) -> None:
    """TVM's importer has neither op."""
    graph = pt.parse(f"opset 24\ngraph net(x: float32[{rows}, 4]) -> (y) {{\n  y = {op}(x)\n}}")
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    model = pt.compile(graph, "cpu")
    assert {unit.device.label for unit in model.units} == {"cpu"}
    assert_close(model(x), pt.compile(graph, "reference")(x))


def test_what_folding_leaves_to_a_device_is_not_known_beforehand() -> None:
    boxes, scores = np.ones((1, 4, 4), np.float32), np.ones((1, 1, 4), np.float32)
    graph = pt.Graph([pt.op("NonMaxSuppression", pt.constant(boxes), pt.constant(scores), name="boxes")], inputs=[])
    assert "the sizes of 'boxes' depend on values" in pt.query(graph, "HETERO:cpu,reference").why("boxes")


@pytest.mark.parametrize("factor", ["alpha", "beta"])
def test_whole_numbers_times_a_part_of_one_are_left_to_reference(factor: str) -> None:
    x, z = pt.variable("x", "int32", (2, 3)), pt.constant(np.array([1, 5], np.int32))
    weight = np.arange(6, dtype=np.int32).reshape(3, 2)
    node = pt.op("Gemm", x, pt.constant(weight), z, name="product", **{factor: 0.5})
    model = pt.compile(pt.Graph([node]), "HETERO:cpu,reference")
    assert "makes the factors of Gemm whole" in str(pt.query(pt.Graph([node]), "HETERO:cpu,reference").why("product"))
    numbers = np.array([[1, 2, 4], [3, 0, 1]], np.int32)
    parts = {"alpha": 1.0, "beta": 1.0, factor: 0.5}
    wanted = np.trunc(parts["alpha"] * (numbers @ weight) + parts["beta"] * np.array([1, 5]))
    assert np.array_equal(model(numbers)[0], wanted)


@pytest.mark.parametrize("op", ["NonZero", "Unique", "Compress"])
def test_what_values_count_is_refused_of_any_size_too(op: str) -> None:
    """Of one size it was, and of any size it took its whole subgraph to the stand-in."""
    x, chosen = pt.variable("x", "float32", ("N", 4)), pt.variable("chosen", "bool", ("N",))
    hidden = pt.op("Relu", pt.op("MatMul", x, pt.constant(np.eye(4, dtype=np.float32))), name="hidden")
    counted = pt.op(op, *([hidden, chosen] if op == "Compress" else [hidden]), name="counted")
    model = pt.compile(pt.Graph([counted[0], hidden], [x, chosen]), "HETERO:cpu,reference")
    assert "the sizes of 'counted' depend on values" in str(pt.query(model.graph, "HETERO:cpu,reference").why("counted"))
    assert model.report.notes == ("cpu_0: compiled once for any size",)
    for rows in (1, 3):
        assert np.array_equal(model(np.ones((rows, 4), np.float32), np.ones(rows, bool))["hidden"], np.ones((rows, 4)))


@pytest.mark.parametrize("device", ["cpu", "opencl", "cuda"])
@pytest.mark.parametrize("op, attributes", [("RandomNormal", {"shape": [2, 3]}), ("SequenceEmpty", {})])
def test_an_op_without_inputs_is_asked_about(op: str, attributes: dict[str, Any], device: str) -> None:
    placement = pt.query(pt.Graph([pt.op(op, name="y", **attributes)]), f"HETERO:{device},reference")
    assert dict(placement) == {"y": "reference"}
