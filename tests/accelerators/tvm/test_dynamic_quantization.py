"""Models whose activations are quantized while they run, as onnxruntime's dynamic quantization writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import Array
from partita.passes.decompose import decomposed
from tests.accelerators.tvm.narrow import typed
from tests.accelerators.tvm.packed import Packed
from tests.accelerators.tvm.quantizing import integers
from tests.accelerators.tvm.running import compiled, error, normals, number, schedules
from tests.drawn import some

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


@some
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


def test_a_convolution_of_two_values_whose_sums_32_bits_might_not_hold_is_refused() -> None:
    x, w = pt.variable("x", "uint8", (1, 33_100, 1, 1)), pt.variable("w", "uint8", (1, 33_100, 1, 1))
    placement = pt.query(pt.Graph([pt.op("ConvInteger", x, w, name="sums")]), "HETERO:cpu,reference")
    assert placement["sums"] == "reference"
    assert "kernels of whole convolutions take bytes by constant ones" in placement.why("sums")


@pytest.mark.parametrize(
    ("channels", "outs", "group", "dtype", "stored", "far", "is_known"),
    [
        (8, 5, 1, "uint8", "uint8", 7, False), (3, 5, 1, "int8", "int8", -9, True), (12, 6, 2, "uint8", "int8", 0, False),
        (6, 12, 6, "int8", "uint8", 7, False), (6, 6, 6, "uint8", "uint8", 200, True),
    ],
)
def test_whole_convolutions_by_far_weights_and_in_odd_groups_are_exact(
    channels: int, outs: int, group: int, dtype: str, stored: str, far: int, is_known: bool
) -> None:
    image, weight = integers(0, (1, channels, 7, 6), dtype), integers(1, (outs, channels // group, 3, 3), stored)
    x, point = pt.variable("x", dtype, image.shape), np.array(3, dtype)
    z = pt.constant(point) if is_known else pt.variable("z", dtype, ())
    sums = whole(x, weight, z, pt.constant(np.array(far, stored)), group=group, pads=[1, 0, 1, 1], strides=[2, 1])
    graph, inputs = typed(sums), [image] if is_known else [image, point]
    model = compiled(graph)
    assert any(launch.layer_type.startswith(("Product", "Depthwise")) for launch in model.launches)
    assert np.array_equal(model.run(inputs, [None])[0], interpret(graph, inputs)[0])


@pytest.mark.parametrize(("stored", "each", "is_known"), [("uint8", True, False), ("uint8", False, True), ("int8", True, True)])
def test_whole_matrices_far_from_their_zero_point_are_products_of_bytes(stored: str, each: bool, is_known: bool) -> None:
    given, weight = integers(0, (2, 5, 20), "uint8"), integers(1, (20, 9), stored)
    point, far = np.array(200, "uint8"), integers(2, (9,), stored) if each else np.array(100, stored)
    x = pt.variable("x", "uint8", given.shape)
    z = pt.constant(point) if is_known else pt.variable("z", "uint8", ())
    graph = typed(pt.op("MatMulInteger", x, pt.constant(weight), z, pt.constant(far)))
    model, inputs = compiled(graph), [given] if is_known else [given, point]
    assert not any(launch.layer_type.startswith("MatMulInteger") for launch in model.launches)
    assert np.array_equal(model.run(inputs, [None])[0], interpret(graph, inputs)[0])


@pytest.mark.parametrize(
    ("dtypes", "which"), [(("uint8", "uint8"), (0, 1)), (("int8", "uint8"), (0,)), (("uint8", "int8"), (1,))]
)
def test_two_values_whose_zero_points_are_computed(dtypes: tuple[str, str], which: tuple[int, ...]) -> None:
    shapes = (2, 3, 5, 20), (3, 20, 9)
    values = [pt.variable(f"x{i}", dtypes[i], shapes[i]) for i in range(2)]
    points = [pt.variable(f"z{i}", dtypes[i], (1,)[:i]) if i in which else pt.constant(np.array(9, dtypes[i])) for i in range(2)]
    graph = typed(pt.op("MatMulInteger", *values, *points))
    inputs = [integers(i, shapes[i], dtypes[i]) for i in range(2)] + [np.full((1,)[:i], 77, dtypes[i]) for i in which]
    model = compiled(graph)
    assert any(launch.layer_type.startswith("MatMul+Sub") for launch in model.launches)
    assert np.array_equal(model.run(inputs, [None])[0], interpret(graph, inputs)[0])


@pytest.mark.parametrize("shapes", [((20,), (20, 9)), ((20,), (3, 20, 9)), ((5, 20), (20,)), ((20,), (20,))])
def test_a_row_and_a_column_whose_zero_points_are_computed(shapes: tuple[tuple[int, ...], ...]) -> None:
    values = [pt.variable(f"x{i}", "uint8", shape) for i, shape in enumerate(shapes)]
    graph = typed(pt.op("MatMulInteger", *values, *(pt.variable(f"z{i}", "uint8", ()) for i in range(2))))
    inputs = [*(integers(i, shape, "uint8") for i, shape in enumerate(shapes)), np.uint8(200), np.uint8(255)]
    body = decomposed(next(node for node in graph.nodes if node.op == "MatMulInteger"), graph.opsets)
    assert body is not None
    wanted = interpret(graph, inputs)[0]  # type: ignore[arg-type]
    assert wanted.any() and np.array_equal(interpret(body, inputs)[0], wanted)  # type: ignore[arg-type]


def test_an_answer_for_near_weights_is_not_that_for_far_ones() -> None:
    image = integers(0, (1, 8, 5, 5), "uint8")
    for weight in (integers(1, (4, 8, 2, 2), "uint8") // 2, integers(1, (4, 8, 2, 2), "uint8")):
        graph = typed(whole(pt.variable("x", "uint8", image.shape), weight))
        assert np.array_equal(compiled(graph).run([image], [None])[0], exact(image, 0, weight, {}))


def test_scales_of_blocks_of_what_is_computed() -> None:
    """TVM's importer has no block_size: such ops were left to the next device."""
    random, packed = np.random.default_rng(4), Packed()
    x, scale = random.uniform(-9, 9, (6, 10)).astype("float32"), random.uniform(0.01, 0.1, (6, 3)).astype("float32")
    point = random.integers(0, 99, (6, 3)).astype("uint8")
    packed.add("QuantizeLinear", x, scale, point, axis=1, block_size=4)
    integers_of_two_bytes = random.integers(-999, 999, (6, 10)).astype("int16")
    packed.add("DequantizeLinear", integers_of_two_bytes, scale[:2].repeat(4, 1)[:, :10], axis=0, block_size=3)
    packed.check()


def test_whole_convolutions_by_weights_that_are_values() -> None:
    random, packed = np.random.default_rng(4), Packed()

    def drawn(kind: str, *shape: int) -> Any:
        return random.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)

    points = drawn("uint8"), drawn("int8", 4)
    image, weights = drawn("uint8", 2, 6, 7, 5), drawn("int8", 4, 3, 3, 2)
    packed.add("ConvInteger", image, weights, *points, group=2, pads=[1, 0, 2, 1], strides=[2, 1])
    packed.add("ConvInteger", drawn("int8", 1, 3, 9), pt.constant(drawn("uint8", 4, 3, 2)), pads=[1, 1])
    packed.check()
