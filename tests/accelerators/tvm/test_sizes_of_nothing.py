"""Calls where a dimension is 0: answered as ONNX says, and nothing is compiled for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from tests.accelerators.tvm.any_size import numbers, specialized
from tests.accelerators.tvm.test_quantized_any_size import convolutions

Step = Callable[[pt.Node], pt.Node]


def along(*axes: int) -> pt.Node:
    return pt.constant(np.array(axes, np.int64))


STEPS: dict[str, Step] = {
    "product": lambda x: pt.op("MatMul", x, pt.constant(np.eye(8, dtype=np.float32))),
    "bias": lambda x: pt.op("Add", x, pt.constant(np.arange(8, dtype=np.float32))),
    "relu": lambda x: pt.op("Relu", x),
    "norm": lambda x: pt.op("LayerNormalization", x, pt.constant(np.ones(8, np.float32)), axis=-1),
    "softmax": lambda x: pt.op("Softmax", x, axis=-1),
    "turned": lambda x: pt.op("Transpose", pt.op("Sigmoid", pt.op("Transpose", x, perm=[0, 2, 1])), perm=[0, 2, 1]),
    "centred": lambda x: pt.op("Sub", x, pt.op("ReduceMean", x, along(2), keepdims=1)),
    "doubled": lambda x: pt.op("Concat", x, x, axis=1),
}
"""Ops that keep [N, S, 8]."""

ENDS: dict[str, Step] = {
    "as it is": lambda x: x,
    "sum": lambda x: pt.op("ReduceSum", x, along(1), keepdims=0),
    "product of all": lambda x: pt.op("ReduceProd", x, along(0, 1), keepdims=0),
    "mean": lambda x: pt.op("ReduceMean", x, along(2), keepdims=0),
    "flat": lambda x: pt.op("Reshape", x, pt.constant(np.array([-1, 8]))),
    "largest": lambda x: pt.op("ReduceMax", x, along(2), keepdims=1),
}


def check(graph: pt.Graph, feed: dict[str, Any], model: Any = None) -> Any:
    """Right for a size of 0, against the reference, without compiling for it."""
    model = pt.compile(graph, "cpu") if model is None else model
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    with np.errstate(all="ignore"):
        results, wanted = model(feed), pt.compile(graph, "reference")(feed)
    for a, b in zip(results, wanted, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert specialized(model).sizes == (), "a size was compiled by itself"
    return model


@settings(max_examples=15, deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), end=st.sampled_from(sorted(ENDS)),
    sizes=st.sampled_from([(0, 3), (2, 0), (0, 0)]),
)
def test_small_graphs(steps: list[str], end: str, sizes: tuple[int, int]) -> None:
    x = pt.variable("x", "float32", ("N", "S", 8))
    value = x
    for step in steps:
        value = STEPS[step](value)
    check(pt.Graph([ENDS[end](value)], [x]), {"x": numbers(*sizes, 8)})


def test_reductions_over_nothing() -> None:
    x = pt.variable("x", "float32", ("N", 8))
    ops = ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin")
    graph = pt.Graph([pt.op(op, pt.op("Abs", x), along(0), keepdims=0) for op in ops], [x])
    results = check(graph, {"x": numbers(0, 8)})(numbers(0, 8))
    for result, number in zip(results, (0.0, 1.0, -np.inf, np.inf), strict=True):
        assert (result == np.full(8, number, np.float32)).all()


def test_what_depends_on_another_size_still_counts() -> None:
    """One input has no rows, and the other some."""
    x, y = pt.variable("x", "float32", ("N", 8)), pt.variable("y", "float32", ("M", 8))
    graph = pt.Graph([pt.op("Concat", pt.op("Relu", x), pt.op("Exp", y), axis=0), pt.op("Neg", y)], [x, y])
    model = check(graph, {"x": numbers(0, 8), "y": numbers(5, 8)})
    out = np.empty((5, 8), np.float32)
    given = numbers(5, 8)
    np.testing.assert_array_equal(model({"x": numbers(0, 8), "y": given}, out={model.graph.outputs[1].name: out})[1], -given)
    assert (out == -given).all()


def test_much_beside_nothing_is_compiled() -> None:
    x, y = pt.variable("x", "float32", ("N", 8)), pt.variable("y", "float32", ("M", 512))
    model = pt.compile(pt.Graph([pt.op("Relu", x), pt.op("Neg", y)], [x, y]), "cpu")
    model(numbers(0, 8), numbers(200, 512))
    assert len(specialized(model).sizes) == 1


def test_no_images() -> None:
    check(convolutions("H", "W"), {"image": numbers(0, 3, 8, 8)})


def test_sizes_that_contradict_each_other_are_refused_as_before() -> None:
    x, y = pt.variable("x", "float32", ("N", 8)), pt.variable("y", "float32", ("N", 8))
    model = pt.compile(pt.Graph([pt.op("Add", x, pt.op("Relu", y))], [x, y]), "cpu")
    with pytest.raises(pt.PartitaError):
        model(numbers(0, 8), numbers(3, 8))


def test_a_size_that_nothing_leaves_open_is_an_error() -> None:
    """Nothing is as many numbers as nothing: a Reshape has no size to work out, as onnxruntime, numpy and torch say."""
    x = pt.variable("x", "float32", ("N", "S", 8))
    for target, fits, beyond in ((along(0, -1), (3, 0, 8), (0, 3, 8)), (along(-1, 0, 8), (0, 3, 8), (3, 0, 8))):
        graph = pt.Graph([pt.op("Reshape", pt.op("Neg", x), target)], [x])
        model = check(graph, {"x": numbers(*fits)})
        for device in (model, pt.compile(graph, "reference")):
            with pytest.raises(pt.InputError, match="the one that is left open and 1 do not go together: 0 is"):
                device(numbers(*beyond))


@pytest.mark.parametrize("device", ["cpu", "HETERO:cpu,reference"])
@pytest.mark.parametrize("op", ["Gather", "GatherND", "ScatterND", "ScatterElements"])
def test_no_index_is_inside_of_nothing(op: str, device: str) -> None:
    """Although the results have no numbers."""
    x, at = pt.variable("x", "float32", ("N", "M")), pt.variable("at", "int64", ("K", "L"))
    at_rows = pt.op("Flatten", at, axis=0) if op == "Gather" else at
    more = [pt.variable("new", "float32", ("K", "M"))] if op.startswith("Scatter") else []
    model = pt.compile(pt.Graph([pt.op(op, x, at_rows, *more)], [x, at, *more]), device)

    def call(rows: int, columns: int, *indices: int) -> Any:
        given = np.array(indices, np.int64).reshape(len(indices), -1) if indices else np.zeros((0, 1), np.int64)
        if op == "ScatterElements":
            given = np.repeat(given[:, :1], columns, axis=1)
        return model(numbers(rows, columns), given, *[numbers(len(indices), columns) for _ in more])[0]

    assert call(5, 0, 4, -5).size == 0 and call(0, 4).size == 0
    for rows, columns, index in ((5, 0, 9), (0, 4, 0), (0, 0, 0)):
        if op != "ScatterElements" or columns:  # Its indices are as many as the data.
            with pytest.raises(pt.PartitaError):
                call(rows, columns, index)


def test_no_images_are_resized_to_sizes() -> None:
    image = pt.variable("image", "float32", ("N", 4, "H", "W"))
    small = pt.op("MaxPool", image, kernel_shape=[2, 2], strides=[2, 2])
    enlarged = pt.op("Resize", small, None, None, pt.op("Shape", image), mode="linear")
    check(pt.Graph([pt.op("Add", image, enlarged)], [image]), {"image": numbers(0, 4, 8, 6)})
