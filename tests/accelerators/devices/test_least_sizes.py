"""The least sizes of values: never more than a run makes, and enough for what ordinary models do with sizes that are symbols."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_sequence_value_info, make_tensor_value_info

import partita as pt
from partita.accelerators.engines.lower_bounds import kernel_of, least_sizes
from partita.accelerators.engines.model import engine_model, model_from_bytes
from partita.graph.interpret import interpret
from tests.close import assert_close

Maker = Callable[[pt.Node], pt.Node]


def numbers(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def floats(*shape: int) -> pt.Node:
    return pt.constant(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def cut(start: int, end: int, axis: int = 2, step: int = 1) -> Maker:
    return lambda x: pt.op("Slice", x, numbers(start), numbers(end), numbers(axis), numbers(step))



CASES: dict[str, tuple[Maker, tuple[int, ...]]] = {
    "ConvTranspose": (
        lambda x: pt.op("ConvTranspose", x, floats(4, 3, 3), strides=[2], pads=[1, 1], output_padding=[1]), (1, 3, 2)),
    "ConvTranspose cropped": (lambda x: pt.op("ConvTranspose", x, floats(4, 3, 3), pads=[2, 2]), (1, 3, 0)),
    "Split beside": (lambda x: pt.op("Split", x, numbers(1, 3), axis=1, n_outputs=2), (1, 1, 1)),
    "Split along": (lambda x: pt.op("Split", x, axis=-1, num_outputs=1, n_outputs=1), (1, 4, 1)),
    "TopK": (lambda x: pt.op("TopK", x, numbers(2), axis=1, n_outputs=2), (1, 2, 1)),
    "Slice beside": (cut(1, 3, 1), (1, 2, 1)),
    "Slice the first": (cut(0, 3), (1, 4, 1)),
    "Slice all but the first": (cut(1, 2**62), (1, 4, 0)),
    "Slice the last": (cut(-2, 2**62), (1, 4, 1)),
    "Slice all but the last": (cut(0, -1), (1, 4, 0)),
    "Slice between the ends": (cut(-3, 2), (1, 4, 0)),
    "Slice backwards": (cut(3, 0, step=-1), (1, 4, 0)),
    "Slice backwards of what may be empty": (lambda x: cut(-1, -(2**62), step=-1)(cut(1, 2**62)(x)), (1, 4, 0)),
    "Slice of a computed end": (
        lambda x: pt.op("Slice", x, numbers(0), pt.op("Shape", x, start=0, end=1), numbers(2)), (1, 4, 1)),
    "Expand": (lambda x: pt.op("Expand", x, numbers(3, 1, 1, 1)), (3, 1, 4, 1)),
    "Tile": (lambda x: pt.op("Tile", x, numbers(1, 2, 3)), (1, 8, 3)),
    "Tile by nothing": (lambda x: pt.op("Tile", x, numbers(1, 1, 0)), (1, 4, 0)),
    "CastLike": (lambda x: pt.op("CastLike", x, pt.constant(np.zeros(5, np.float16))), (1, 4, 1)),
    "Resize of chosen axes": (
        lambda x: pt.op("Resize", x, None, pt.constant(np.array([3, 1, 1], np.float32)), axes=[2, 1, 0]), (1, 4, 3)),
    "Conv of computed weights": (
        lambda x: pt.op("Conv", x, pt.op("Compress", floats(2, 4, 1), pt.op("Equal", pt.op("Shape", x, start=2), numbers(1, 2)),
        axis=0), kernel_shape=[1]), (1, 0, 1)),
    "Atan": (lambda x: pt.op("Atan", x), (1, 4, 1)),
    "Softmax of a Concat": (lambda x: pt.op("Softmax", pt.op("Concat", x, x, axis=2)), (1, 4, 2)),
}
"""What is made of x[M, 4, N], and its least sizes."""


@pytest.mark.parametrize("case", CASES)
def test_no_run_makes_less_than_the_least_sizes(case: str) -> None:
    make, wanted = CASES[case]
    x = pt.variable("x", "float32", ("M", 4, "N"))
    graph = pt.apply_pass(pt.Graph([make(x)[0]], [x]), "InferShape")
    least = least_sizes(graph)[graph.outputs[0]]
    assert least == wanted
    for images, columns in ((1, 1), (2, 2), (1, 3), (3, 4), (1, 5), (1, 9)):
        shape = interpret(graph, [np.ones((images, 4, columns), np.float32)])[0].shape
        assert all(size >= low for size, low in zip(shape, least, strict=True)), (shape, least)


STATED: dict[str, tuple[pt.Node, tuple[int, ...], tuple[int, ...]]] = {
    "AffineGrid": (pt.op("AffineGrid", floats(1, 2, 3), pt.variable("s", "int64", (4,))), (1, 1, 2, 2), (1, 3, 3, 2)),
    "Col2Im": (pt.op("Col2Im", floats(1, 4, 4), pt.variable("s", "int64", (2,)), numbers(2, 2)), (2, 5), (1, 1, 3, 3)),
    "MaxUnpool": (
        pt.op(
            "MaxUnpool", floats(1, 1, 1, 1), pt.constant(np.zeros((1, 1, 1, 1), np.int64)), pt.variable("s", "int64", (4,)),
            kernel_shape=[2, 2]),
        (1, 1, 2, 2), (1, 1, 5, 5)),
}
"""What is made of sizes that are an input, these sizes, and the sizes that a file states."""


@pytest.mark.parametrize("case", STATED)
def test_sizes_that_a_file_states_are_not_believed_where_an_input_decides_them(case: str) -> None:
    node, sizes, stated = STATED[case]
    made = node.evolve(output_types=(pt.TensorType("float32", stated),))
    graph = pt.Graph([made], [entry.node for entry in made.reads if entry.node.is_variable])
    shape = interpret(graph, [np.array(sizes)])[0].shape
    assert all(low <= size for low, size in zip(least_sizes(graph)[graph.outputs[0]], shape, strict=True))


def test_ops_broadcast_to_the_first_below_opset_7() -> None:
    """There an axis says which dimensions of the first the second stands for."""
    inputs = [make_tensor_value_info("x", 1, ["M", 4, "N"]), make_tensor_value_info("b", 1, [4])]
    node = make_node("Add", ["x", "b"], ["y"], axis=1, broadcast=1)
    old = make_graph([node], "old", inputs, [make_tensor_value_info("y", 1, None)])
    graph = pt.apply_pass(pt.load(make_model(old, opset_imports=[make_opsetid("", 6)])), "InferShape")
    assert least_sizes(graph)[graph.outputs[0]] == (1, 4, 1)


def test_a_model_that_tells_no_sizes_beside_its_outputs_is_refused() -> None:
    """Such as that of a package that somebody changed."""
    graph = pt.apply_pass(pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2,)))]), "InferShape")
    model = engine_model(graph, {})
    model.proto.graph.node.add(op_type="SequenceConstruct", input=["x0"], output=["z0"])
    model.proto.graph.output.append(make_tensor_sequence_value_info("z0", 1, None))
    with pytest.raises(ValueError, match="its extra outputs are not sizes"):
        model_from_bytes(model.complete(), graph)


ONES = pt.constant(np.ones(4, np.float32))


def resized(x: pt.Node) -> pt.Node:
    """Twice as large, by computed sizes."""
    return pt.op("Resize", x, None, None, pt.op("Mul", pt.op("Shape", x), numbers(1, 1, 2, 2)), mode="nearest")


def enlarged(x: pt.Node) -> pt.Node:
    """Twice as large, by scales; there is an empty region of interest, as torch writes it."""
    empty = pt.constant(np.array([], np.float32))
    return pt.op("Resize", x, empty, pt.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")


def attended(x: pt.Node) -> pt.Node:
    parts = pt.op("Split", x, numbers(2, 2), axis=1, n_outputs=2)
    return pt.op("Einsum", parts[0], parts[1], equation="nchw,ncab->nhwab", name="last")


def test_a_resize_by_scales_may_come_to_nothing() -> None:
    x = pt.variable("x", "float32", ("N", 4, "H", "W"))
    halved = pt.op("Resize", x, None, pt.constant(np.array([1, 1, 0.5, 1], np.float32)), mode="nearest")
    graph = pt.Graph([pt.op("InstanceNormalization", halved, ONES, ONES, name="last")], [x])
    assert pt.query(graph, "HETERO:onnxruntime,reference")["last"] == "reference"


@pytest.mark.parametrize("make", [
    lambda x: pt.op("InstanceNormalization", pt.op("ConvTranspose", x, floats(4, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]),
                    ONES, ONES, name="last"),
    lambda x: pt.op("InstanceNormalization", resized(x), ONES, ONES, name="last"),
    lambda x: pt.op("InstanceNormalization", enlarged(x), ONES, ONES, name="last"),
    lambda x: pt.op("Einsum", pt.op("Slice", x, numbers(0), numbers(2), numbers(1)), x, equation="nchw,ndhw->ncd", name="last"),
    attended,
], ids=["ConvTranspose", "Resize by sizes", "Resize by scales", "Slice", "Split"])
def test_ordinary_models_of_any_size_stay_on_onnxruntime(make: Maker) -> None:
    """What onnxruntime would die of cannot be in them, though their sizes are symbols."""
    pytest.importorskip("onnxruntime")
    x = pt.variable("x", "float32", ("N", 4, "H", "W"))
    graph = pt.Graph([make(x)], [x])
    assert pt.query(graph, "HETERO:onnxruntime,reference")["last"] == "onnxruntime"
    for sizes in ((1, 4, 1, 1), (2, 4, 3, 2)):
        given = np.random.default_rng(2).standard_normal(sizes).astype(np.float32)
        for result, wanted in zip(pt.compile(graph, "onnxruntime")(given), interpret(graph, [given]), strict=True):
            assert_close(result, wanted, atol=1e-4, strict=True)


@pytest.mark.parametrize(("start", "device"), [("given", "reference"), ("constant", "onnxruntime")])
def test_a_size_that_a_file_states_for_what_values_decide_is_not_believed(start: str, device: str) -> None:
    """With a start of 3 nothing is left of three columns, whatever the file says; constants keep what they say."""
    pytest.importorskip("onnxruntime")
    first = pt.variable("first", "int64", (1,)) if start == "given" else numbers(1)
    x = pt.variable("x", "float32", (1, 4, 3))
    part = pt.op("Slice", x, first, numbers(9), numbers(2)).evolve(output_types=(pt.TensorType("float32", (1, 4, 2)),))
    last = pt.op("InstanceNormalization", pt.op("Relu", part), ONES, ONES, name="last")
    graph = pt.Graph([last], [x, first] if start == "given" else [x])
    assert pt.query(graph, "HETERO:onnxruntime,reference")["last"] == device


def stated(x: pt.Node) -> pt.Node:
    """Two columns, as a file says."""
    return x.evolve(output_types=(pt.TensorType("float32", (1, 4, 2)),))


def random_start() -> pt.Node:
    return pt.op("Cast", pt.op("RandomUniform", shape=[1], low=0.0, high=3.9), to=7)


@pytest.mark.parametrize(("columns", "make", "device"), [
    ("N", lambda x: stated(cut(3, 9)(x)), "reference"),
    ("N", lambda x: stated(pt.op("MaxPool", x, kernel_shape=[4])), "reference"),
    (5, lambda x: stated(pt.op("Slice", x, random_start(), numbers(9), numbers(2))), "reference"),
    (2, lambda x: stated(pt.op("Gelu", x, domain="com.microsoft")), "onnxruntime"),
], ids=["cut", "windows", "by chance", "another domain"])
def test_what_a_file_states_is_believed_where_it_follows(columns: int | str, make: Maker, device: str) -> None:
    pytest.importorskip("onnxruntime")
    x = pt.variable("x", "float32", (1, 4, columns))
    graph = pt.Graph([pt.op("InstanceNormalization", make(x), ONES, ONES, name="last")], [x])
    assert pt.query(graph, "HETERO:onnxruntime,reference")["last"] == device


def test_the_sizes_of_a_window_are_stated_or_those_of_the_weights() -> None:
    x, images = pt.variable("x", "float32", (1, 2, 9)), pt.variable("i", "float32", (1, 2, 9, 9))
    weights, image_weights = pt.variable("w", "float32", (4, 2, 3)), pt.variable("v", "float32", (4, 2, 5, 3))
    for node, sizes in (
        (pt.op("Conv", x, weights), (3,)),
        (pt.op("Conv", images, image_weights), (5, 3)),
        (pt.op("Conv", x, weights, kernel_shape=[2]), [2]),
        (pt.op("MaxPool", x, kernel_shape=[4]), [4]),
        (pt.op("Conv", x, pt.variable("w", "float32", (4, 2, "K"))), None),
        (pt.op("Conv", x, pt.variable("w", "float32")), None),
        (pt.op("Conv", x, None), None),
    ):
        assert kernel_of(node) == sizes

