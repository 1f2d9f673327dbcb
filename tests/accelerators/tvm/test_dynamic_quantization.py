"""Models whose activations are quantized while they run, as onnxruntime's dynamic quantization writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from graph.interpret import interpret
from graph.types import Array
from tests.accelerators.tvm.narrow import typed
from tests.accelerators.tvm.quantizing import integers
from tests.accelerators.tvm.running import compiled, error, normals, number, schedules

pytest.importorskip("tvm")


def rounded(x: pt.Node) -> pt.Node:
    return pt.op("DynamicQuantizeLinear", x, n_outputs=3)


@pytest.mark.parametrize("size", [1, 5, 64, 200, 1000])
@pytest.mark.parametrize("around", [0.0, 5.0, -5.0])
def test_numbers_choose_their_own_scale(size: int, around: float) -> None:
    node = rounded(pt.variable("x", "float32", (size,)))
    graph, x = typed(node[0], node[1], node[2]), normals(size)(size) + np.float32(around)  # type: ignore[arg-type]
    model = compiled(graph)
    assert schedules(model) == ["dynamic bytes"]
    for result, wanted in zip(model.run([x], [None] * 3), interpret(graph, [x]), strict=True):
        assert np.array_equal(result, wanted)


@pytest.mark.parametrize("values", [[0, 0, 0], [1e-40, 0, 2e-40], [3e38, -3e38, 1], [np.inf, 1, 2]])
def test_scales_at_the_ends_of_the_numbers(values: list[float]) -> None:
    node, x = rounded(pt.variable("x", "float32", (3,))), np.array(values, np.float32)
    graph = typed(node[0], node[1], node[2])  # type: ignore[arg-type]
    for result, wanted in zip(compiled(graph).run([x], [None] * 3), interpret(graph, [x]), strict=True):
        assert np.array_equal(result, wanted)


def test_nan_is_passed_over_as_in_onnxruntime() -> None:
    node = rounded(pt.variable("x", "float32", (4,)))
    graph, x = typed(node[0], node[1]), np.array([np.nan, 1, 2, 3], np.float32)  # type: ignore[arg-type]
    result, scale = compiled(graph).run([x], [None] * 2)
    assert scale == np.float32(3) / np.float32(255)
    assert result[1:].tolist() == [85, 170, 255]


def test_a_product_is_scaled_where_its_sums_are_made() -> None:
    x, random = pt.variable("x", "float32", (3, 64)), np.random.default_rng(0)
    node = rounded(x)
    zeros, weight = pt.constant(np.zeros(40, np.int8)), pt.constant(integers(1, (64, 40), "int8"))
    sums = pt.op("MatMulInteger", node[0], weight, node[2], zeros)
    scales = pt.op("Mul", node[1], pt.constant(random.uniform(0.001, 0.002, 40).astype("float32")))
    graph = typed(pt.op("Add", pt.op("Mul", pt.op("Cast", sums, to=1), scales), pt.constant(normals(2)(40))))
    model, given_x = compiled(graph), normals(3)(3, 64)
    assert model.launches[-1].layer_type == "Product+Sub+Cast+Mul+Add"
    assert error(model.run([given_x], [None])[0], interpret(graph, [given_x])[0]) <= 1e-6


def whole(x: pt.Node, weight: Array, *points: Any, **attributes: Any) -> pt.Node:
    return pt.op("ConvInteger", x, pt.constant(weight), *points, **attributes)


def exact(x: Array, point: int, weight: Array, attributes: dict[str, Any]) -> Array:
    """The sums, by a convolution in double precision, which holds them."""
    moved, kernel = x.astype(np.float64) - point, weight.astype(np.float64)
    node = pt.op("Conv", pt.variable("x", "float64", moved.shape), pt.constant(kernel), **attributes)
    return np.asarray(interpret(typed(node), [moved])[0]).astype(np.int32)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.integers(1, 12), st.integers(1, 20), st.integers(5, 9), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2),
    st.integers(0, 2), st.sampled_from(("uint8", "int8")), st.sampled_from(("none", "known", "given")), st.integers(1, 2),
    st.booleans(),
)
def test_whole_convolutions_are_exact(
    channels: int, outs: int, size: int, taps: int, stride: int, dilation: int, pad: int, dtype: str, how: str, batch: int,
    alone: bool,
) -> None:
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [pad, 0, pad, pad]}
    outs, group = (channels, channels) if alone and channels > 1 else (outs, 1)
    attributes["group"] = group  # type: ignore[assignment]
    weight = integers(1, (outs, channels // group, taps, taps), "int8")
    image, point = integers(2, (batch, channels, size, size), dtype), 3
    x = pt.variable("x", dtype, image.shape)
    points: list[Any] = [] if how == "none" else [pt.constant(np.array(point, dtype))]
    inputs = [image]
    if how == "given":
        points, inputs = [pt.variable("z", dtype, ())], [image, np.array(point, dtype)]
    model = compiled(typed(whole(x, weight, *points, **attributes)))
    (result,) = model.run(inputs, [None])
    assert np.array_equal(result, exact(image, 0 if how == "none" else point, weight, attributes))


def test_a_convolution_of_numbers_that_choose_their_scale() -> None:
    x = pt.variable("x", "float32", (1, 8, 10, 10))
    node = rounded(x)
    sums = whole(node[0], integers(1, (16, 8, 3, 3), "int8"), node[2], pads=[1, 1, 1, 1])  # type: ignore[arg-type]
    graph = typed(pt.op("Mul", pt.op("Cast", sums, to=1), pt.op("Mul", node[1], number(0.01))))
    model, image = compiled(graph), normals(4)(1, 8, 10, 10)
    assert "Product+Sub+Cast+Mul" in [launch.layer_type for launch in model.launches]
    assert error(model.run([image], [None])[0], interpret(graph, [image])[0]) <= 1e-6


def test_a_convolution_of_two_values_is_refused_with_the_reason() -> None:
    x, w = pt.variable("x", "uint8", (1, 2, 4, 4)), pt.variable("w", "uint8", (3, 2, 2, 2))
    placement = pt.query(pt.Graph([pt.op("ConvInteger", x, w, name="sums")]), "HETERO:cpu,reference")
    assert placement["sums"] == "reference"
    assert "kernels of whole convolutions take bytes by constant ones" in placement.why("sums")
