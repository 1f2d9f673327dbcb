"""Quantized models on the device `cpu`."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.interpret import interpret
from partita.graph.types import Array
from partita.graph.writers.onnx.model import to_model
from tests.accelerators.tvm.quantizing import Layer, dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, normals
from tests.close import is_close

pytest.importorskip("tvm")


def layer_types(model: object) -> list[str]:
    return [launch.layer_type for launch in model.launches]  # type: ignore[attr-defined]


def typed(*outputs: pt.Node) -> pt.Graph:
    return pt.apply_pass(pt.Graph(list(outputs)), "InferShape")


def again(given: pt.Node, scale: float = 0.05, point: int = 100) -> pt.Node:
    """Quantized and dequantized."""
    return dequantized(quantized(given, scale, point), scale, point, dtype="uint8")


def convolved(
    given: pt.Node, channels: int, outs: int, taps: int, seed: int, stride: int = 1, scale: float = 0.05, spare: int = 0
) -> pt.Node:
    """A convolution of numbers that were dequantized with this scale, whose bias is as exact; weights spare so many bits."""
    layer = Layer(channels, outs, (1, 1), (taps, taps))
    weight = integers(seed, layer.weight.shape, "int8") >> spare
    inputs = dequantized(weight, layer.scales, axis=0), dequantized(layer.bias, np.float32(scale) * layer.scales, axis=0)
    return pt.op("Conv", given, *inputs, pads=[taps // 2] * 4, strides=[stride, stride])


def network() -> pt.Graph:
    """A residual network with a join, as onnxruntime's quantizer writes it with `reduce_range`: with AVX2 alone onnxruntime
    lets its sums of two products overflow where weights have all bits."""
    reduced = partial(convolved, spare=1)
    x = again(pt.variable("x", "float32", (1, 3, 24, 20)))
    x = again(pt.op("Relu", reduced(x, 3, 16, 5, 1, 2)))
    x = pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = again(x)
    y = again(pt.op("Relu", reduced(x, 16, 24, 3, 2)))
    y = again(reduced(y, 24, 16, 1, 3))
    x = again(pt.op("Relu", pt.op("Sum", y, x)), 0.07, 0)
    left, right = reduced(x, 16, 8, 1, 4, scale=0.07), reduced(x, 16, 20, 3, 5, scale=0.07)
    x = again(pt.op("Concat", again(left), again(right, 0.06), axis=1))
    return typed(quantized(reduced(x, 28, 30, 1, 6), 0.05, 100))


def in_onnxruntime(graph: pt.Graph, inputs: list[Array]) -> list[Array]:
    """What onnxruntime makes, optimized."""
    session = pytest.importorskip("onnxruntime").InferenceSession(
        to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [given.name for given in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))  # type: ignore[no-any-return]


def test_a_weight_of_any_size_stays_packed_for_its_kernel() -> None:
    weight = dequantized(integers(0, (1024, 512), "int8"), 0.01)
    graph = typed(pt.op("MatMul", pt.variable("x", "float32", (3, 1024)), weight))
    x = normals(0)(3, 1024)
    model = compiled(graph)
    (kernel,) = model.kernels()
    assert kernel.text.startswith("kernel packed_product")
    assert is_close(model.run([x], [None])[0], interpret(graph, [x])[0], atol=1e-3, rtol=1e-4)


def test_a_weight_that_nobody_multiplies_as_integers_is_dequantized_when_it_is_compiled(avx2: Machine) -> None:
    weight = dequantized(integers(0, (512, 512, 2, 2), "uint8"), 0.01, 7)
    x = again(pt.variable("x", "float32", (1, 512, 3, 3)))
    model = compiled(typed(pt.op("ConvTranspose", x, weight, strides=[2, 2])))
    assert layer_types(model) == ["QuantizeLinear+DequantizeLinear", "ToBlocked", "Conv", "Interleave", "FromBlocked"]


def test_a_network_is_a_few_kernels_of_integers(avx2: Machine) -> None:
    assert layer_types(compiled(network())) == [
        "QuantizeLinear",
        "Product+Relu+QuantizeLinear",
        "MaxPool",
        "Product+Relu+QuantizeLinear",
        "DequantizeLinear+Product+QuantizeLinear+DequantizeLinear+Sum+Relu+QuantizeLinear",
        "Product+QuantizeLinear",
        "Product+QuantizeLinear+DequantizeLinear+QuantizeLinear",
        "Concat",
        "Product+QuantizeLinear",
        "Transpose",
    ]


@pytest.mark.parametrize("name", ["", "avx2", "plain"])
def test_a_network_is_onnxruntime_bit_for_bit(name: str) -> None:
    graph, x = network(), normals(3)(1, 3, 24, 20)
    (output,) = compiled(graph, INTEGERS=name).run([x], [None])
    (wanted,) = in_onnxruntime(graph, [x])
    assert np.array_equal(output, wanted)
    assert len(np.unique(wanted)) > 100


def test_a_value_in_another_form_is_read_where_it_is_needed(avx512: Machine) -> None:
    """A reshape of what a convolution makes reads it plain; a convolution reads what a transpose makes side by side."""
    x = dequantized(pt.variable("x", "uint8", (2, 12, 6, 6)), 0.05, 100)
    first = again(convolved(x, 12, 16, 3, 1))
    moved = pt.op("Transpose", first, perm=[0, 1, 3, 2])
    graph = typed(quantized(convolved(again(moved), 16, 8, 1, 2), 0.05, 100), pt.op("Softmax", first, axis=1))
    given = integers(4, (2, 12, 6, 6), "uint8")
    result, wanted = compiled(graph).run([given], [None, None]), interpret(graph, [given])
    assert (result[0] != wanted[0]).mean() < 2e-3
    assert is_close(result[1], wanted[1], atol=2e-2)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("MaxPool", {"kernel_shape": [2, 3], "ceil_mode": 1, "strides": [2, 2]}),
        ("MaxPool", {"kernel_shape": [2, 2], "dilations": [2, 2]}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("AveragePool", {"kernel_shape": [2, 3], "strides": [1, 2]}),
        ("GlobalAveragePool", {}),
    ],
)
@pytest.mark.parametrize("channels", [8, 70])
def test_pools_read_integers(op: str, attributes: dict[str, object], channels: int) -> None:
    x = dequantized(pt.variable("x", "uint8", (2, 8, 9, 7)), 0.05, 100)
    graph = typed(quantized(pt.op(op, again(convolved(x, 8, channels, 1, 1)), **attributes), 0.0517, 100))
    given = integers(4, (2, 8, 9, 7), "uint8")
    model = compiled(graph)
    assert not any(f"DequantizeLinear+{op}" in kind or kind == "DequantizeLinear" for kind in layer_types(model))
    (result,), (wanted,) = model.run([given], [None]), interpret(graph, [given])
    off = np.abs(result.astype(int) - wanted)
    assert off.max() <= (0 if op == "MaxPool" else 1)
    assert (off > 0).mean() < 5e-3


@pytest.mark.parametrize(
    "attributes", [{"pads": [1, 1, 1, 1], "strides": [2, 2]}, {"kernel_shape": [2, 2]}, {"kernel_shape": [9, 7]}]
)
@pytest.mark.parametrize("point", [0, 100])
def test_a_mean_in_the_middle_of_two_integers_falls_as_in_the_reference(attributes: dict[str, object], point: int) -> None:
    """A window of 4 or 6 integers has such means, and what float32 rounds decides, integers being quantized as before."""
    x = dequantized(pt.variable("x", "uint8", (2, 8, 9, 7)), 0.05, 100)
    image = quantized(convolved(x, 8, 40, 1, 1), 0.043, point)
    given = pt.variable("given", "uint8", (2, 40, 9, 7))

    def pooled(integers: pt.Node) -> pt.Node:
        numbers = dequantized(integers, 0.043, point, dtype="uint8")
        return quantized(pt.op("AveragePool", numbers, **{"kernel_shape": [3, 3], **attributes}), 0.043, point)

    model = compiled(typed(pooled(image), image))
    result, seen = model.run([integers(4, (2, 8, 9, 7), "uint8")], [None, None])
    assert any("Mean" in kernel.text or "mean" in kernel.text for kernel in model.kernels())
    (wanted,) = interpret(typed(pooled(given)), [seen])
    assert np.array_equal(result, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_means_of_the_graph_s_own_integers_fall_as_in_the_reference(dtype: str) -> None:
    """Float32's pool took them, whose additions are in another order: a quarter of the means was off by a step."""
    numbers = dequantized(pt.variable("x", dtype, (1, 8, 6, 6)), 0.02, 100)
    graph = typed(quantized(pt.op("AveragePool", numbers, kernel_shape=[2, 2]), 0.02, 100, dtype))
    given = integers(4, (1, 8, 6, 6), dtype)
    assert np.array_equal(compiled(graph).run([given], [None])[0], interpret(graph, [given])[0])


def test_numbers_round_half_to_even_and_saturate() -> None:
    halves = np.arange(-300, 300, 0.5).astype("f")
    x = np.concatenate([halves, np.array([1e9, -1e9, np.inf, -np.inf], "f")])
    for dtype, point in (("uint8", 3), ("int8", -7), ("uint16", 40_001), ("int16", 5)):
        graph = typed(quantized(pt.variable("x", "float32", x.shape), 1.0, point, dtype))
        info = np.iinfo(dtype)
        wanted = np.clip(np.rint(x) + point, info.min, info.max).astype(dtype)
        assert np.array_equal(compiled(graph).run([x], [None])[0], wanted)


def test_a_number_is_divided_by_its_scale_not_multiplied_by_the_reciprocal() -> None:
    x = np.round(normals(0)(40_000) * 5, 2).astype("f")
    graph = typed(quantized(pt.variable("x", "float32", x.shape), 0.1, 128))
    wanted = np.clip(np.rint(x / np.float32(0.1)) + 128, 0, 255)
    by_reciprocal = np.clip(np.rint(x * (np.float32(1) / np.float32(0.1))) + 128, 0, 255)
    assert (wanted != by_reciprocal).any()
    assert np.array_equal(compiled(graph).run([x], [None])[0], wanted)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scales_along_an_axis_are_broadcast(axis: int) -> None:
    shape = (3, 4, 5)
    scales = np.linspace(0.01, 0.2, shape[axis]).astype("f")
    points = pt.constant(np.arange(shape[axis]).astype("uint8"))
    x, given = pt.variable("x", "float32", shape), normals(1)(*shape)
    result = pt.op("QuantizeLinear", x, pt.constant(scales), points, axis=axis)
    graph = typed(result, pt.op("DequantizeLinear", result, pt.constant(scales), points, axis=axis))
    outcome, wanted = compiled(graph).run([given], [None, None]), interpret(graph, [given])
    assert np.array_equal(outcome[0], wanted[0])
    assert np.allclose(outcome[1], wanted[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_an_op_that_is_written_for_integers_is_that_of_numbers_between(dtype: str) -> None:
    layer = Layer(8, 16, (6, 6), (3, 3), pads=(1, 1, 1, 1), dtype=dtype, point=5, stored=dtype)
    x, one = pt.variable("x", dtype, (1, 8, 6, 6)), lambda value, kind: pt.constant(np.asarray(value, kind))
    points = one(layer.point, dtype), pt.constant(layer.weight), pt.constant(layer.scales), pt.constant(np.zeros(16, "int8"))
    result = pt.op(
        "QLinearConv", x, one(layer.scale, "float32"), *points, one(layer.result, "float32"), one(layer.after, dtype),
        pt.constant(layer.bias), pads=[1, 1, 1, 1],
    )
    model, given = compiled(typed(result)), layer.given()
    assert "Product+QuantizeLinear" in layer_types(model)
    assert np.array_equal(model.run([given], [None])[0], layer.expected(given))


def test_a_whole_product_by_a_matrix_of_one_number() -> None:
    """A kernel has such a constant in its text, and no kernel of two quantized values reads it."""
    x = np.array([[7, -2]], np.int8)
    graph = typed(pt.op("MatMulInteger", pt.constant(np.array([[-3]], np.int8)), pt.variable("x", "int8", x.shape)))
    assert pt.compile(graph, "cpu")(x)[0].tolist() == [[-21, 6]]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_sums_of_products_of_integers_are_exact(dtype: str, known: bool) -> None:
    x, weight = integers(0, (2, 3, 5000), dtype), integers(1, (5000, 20), "int8")
    point = np.asarray(7, dtype)
    given = pt.constant(point) if known else pt.variable("p", dtype, ())
    graph = typed(pt.op("MatMulInteger", pt.variable("x", dtype, x.shape), pt.constant(weight), given))
    model = compiled(graph)
    assert any("Product" in kind for kind in layer_types(model))
    by_name = {"x": x, "p": point}
    (output,) = model.run([by_name[node.name] for node in graph.inputs], [None])
    assert np.array_equal(output, (x.astype(int) - 7) @ weight.astype(int))


def test_a_response_is_normalised_where_channels_stand_side_by_side(avx512: Machine) -> None:
    x = dequantized(pt.variable("x", "uint8", (2, 12, 5, 6)), 0.05, 100)
    responses = pt.op("LRN", again(convolved(x, 12, 32, 1, 1)), size=5, alpha=0.3, beta=0.75, bias=1.0)
    graph = typed(quantized(responses, 0.0517, 100))
    model, given = compiled(graph), integers(4, (2, 12, 5, 6), "uint8")
    assert layer_types(model) == ["Transpose", "Product+QuantizeLinear", "DequantizeLinear", "LRN", "QuantizeLinear", "Transpose"]
    assert (model.run([given], [None])[0] != interpret(graph, [given])[0]).mean() < 5e-3


def test_an_image_that_is_added_to_what_is_made_of_it_is_read_twice() -> None:
    x = pt.variable("x", "uint8", (1, 16, 6, 6))
    numbers = dequantized(x, 0.05, 100)
    graph = typed(quantized(pt.op("Add", convolved(numbers, 16, 16, 3, 1), numbers), 0.0517, 100))
    given = integers(4, (1, 16, 6, 6), "uint8")
    assert (compiled(graph).run([given], [None])[0] != interpret(graph, [given])[0]).mean() < 5e-3


def test_small_arrays_of_integers_after_a_product() -> None:
    x, weight, more = integers(0, (3, 40), "uint8"), integers(1, (40, 8), "int8"), np.arange(8, dtype=np.int32)
    result = pt.op("Add", pt.op("MatMulInteger", pt.variable("x", "uint8", x.shape), pt.constant(weight)), pt.constant(more))
    assert np.array_equal(compiled(typed(result)).run([x], [None])[0], x.astype(int) @ weight.astype(int) + more)


@pytest.mark.parametrize("op", ["Celu", "Round", "Cos", "Tan", "Mean"])
def test_an_op_that_has_no_formula_stands_beside_rounding(op: str) -> None:
    x = dequantized(pt.variable("x", "uint8", (4, 50)), 0.02, 128)
    graph = typed(quantized(pt.op(op, pt.op("Mul", x, pt.constant(np.float32(1.01)))), 0.0217, 7))
    given = integers(4, (4, 50), "uint8")
    assert np.abs(compiled(graph).run([given], [None])[0].astype(int) - interpret(graph, [given])[0]).max() <= 1


@pytest.mark.parametrize("scale", [-0.05, 0.05])
def test_a_scale_below_zero_turns_order_round(scale: float) -> None:
    x = dequantized(pt.variable("x", "uint8", (1, 8, 6, 6)), 0.05, 100)
    result = quantized(pt.op("Relu", convolved(x, 8, 16, 1, 1)), scale, 100)
    pooled = pt.op("MaxPool", dequantized(result, scale, 100, dtype="uint8"), kernel_shape=[2, 2])
    graph = typed(quantized(pooled, 0.0517, 100))
    given = integers(4, (1, 8, 6, 6), "uint8")
    assert (compiled(graph).run([given], [None])[0] != interpret(graph, [given])[0]).mean() < 5e-3


def test_what_is_added_is_rounded_first() -> None:
    """Scales whose multiples often meet the middle of two steps, where a product that is added unrounded would fall elsewhere."""
    left, right = integers(1, (50_000,), "uint8"), integers(2, (50_000,), "uint8")
    addends = (("a", 0.05, 100), ("b", 0.07, 13))
    read = [dequantized(pt.variable(name, "uint8", left.shape), scale, point) for name, scale, point in addends]
    summed = pt.op("Sum", *read)
    graph = typed(quantized(summed, 0.02, 100))
    by_name = {"a": left, "b": right}
    given = [by_name[node.name] for node in graph.inputs]
    assert np.array_equal(compiled(graph).run(given, [None])[0], interpret(graph, given)[0])


def product_of(x: pt.Node, weight: Array, scales: tuple[float, float], point: int, *bias: pt.Node) -> pt.Node:
    """A Gemm of quantized matrices."""
    return pt.op("Gemm", dequantized(x, scales[0], point, dtype="uint8"), dequantized(weight, scales[1]), *bias)


@pytest.mark.parametrize(
    ("depth", "byte", "point", "bias"), [(70_000, 255, 0, 0), (64, 255, 0, 2**31 - 1), (64, 0, 255, -(2**31)), (64, 3, 0, -9)]
)
def test_sums_that_32_bits_do_not_hold_are_made_of_numbers(depth: int, byte: int, point: int, bias: int) -> None:
    given = dequantized(np.full(4, bias, np.int32), np.float32(0.5) * np.float32(0.25))
    graph = typed(product_of(pt.variable("x", "uint8", (2, depth)), np.full((depth, 4), 127, np.int8), (0.5, 0.25), point, given))
    x = np.full((2, depth), byte, np.uint8)
    total = (depth * (byte - point) * 127 + bias) / 8
    assert np.allclose(compiled(graph).run([x], [None])[0], total, rtol=1e-3)


@pytest.mark.parametrize("scales", [(1e25, 1e15), (1e-25, 1e-15), (float("inf"), 1.0), (1.0, float("inf"))])
def test_scales_whose_product_is_no_number_of_single_precision_multiply_one_by_one(scales: tuple[float, float]) -> None:
    weight = np.eye(5, dtype=np.int8)
    graph = typed(product_of(pt.variable("x", "uint8", (2, 5)), weight, scales, 3))
    x = integers(0, (2, 5), "uint8")
    x[:, 0] = 3
    assert np.array_equal(compiled(graph).run([x], [None])[0], interpret(graph, [x])[0], equal_nan=True)


@pytest.mark.parametrize("shape", [(4, 4), (4, 1), (1, 4), (4,), (1, 1), (1,), ()])
@pytest.mark.parametrize("kind", ["whole", "otherwise quantized", "number"])
def test_a_bias_of_any_shape_is_broadcast(shape: tuple[int, ...], kind: str) -> None:
    whole = np.random.default_rng(5).integers(-3000, 3000, shape, np.int32)
    scale = np.float32(0.05) * np.float32(0.02) * np.float32(1 if kind == "whole" else 2)
    bias = pt.constant((whole * scale).astype("f")) if kind == "number" else dequantized(whole, scale)
    stored = product_of(pt.variable("x", "uint8", (4, 6)), integers(1, (6, 4), "int8"), (0.05, 0.02), 3, bias)
    graph = typed(quantized(stored, 0.3, 99))
    x = integers(0, (4, 6), "uint8")
    assert np.abs(compiled(graph).run([x], [None])[0].astype(int) - interpret(graph, [x])[0]).max() <= 1


def test_a_norm_of_quantized_channels_is_computed_where_they_stand_side_by_side() -> None:
    x = dequantized(pt.variable("x", "uint8", (1, 8, 6, 7)), 0.05, 100)
    random = normals(5)
    parts = [pt.constant(random(12)), pt.constant(random(12)), pt.constant(random(12)), pt.constant(np.abs(random(12)) + 0.5)]
    joined = pt.op("Concat", again(convolved(x, 8, 8, 1, 1)), again(convolved(x, 8, 4, 1, 2)), axis=1)
    norm = pt.op("BatchNormalization", again(joined), *parts)
    graph = typed(quantized(convolved(again(pt.op("Relu", norm), 0.04, 0), 12, 16, 1, 3, scale=0.04), 0.05, 100))
    model, given = compiled(graph), integers(4, (1, 8, 6, 7), "uint8")
    assert [kind for kind in layer_types(model) if kind == "Transpose"] == ["Transpose"] * 2
    off = np.abs(model.run([given], [None])[0].astype(int) - interpret(graph, [given])[0])
    assert off.max() <= 1 and (off > 0).mean() < 1e-2


def test_layers_that_differ_in_scales_and_zero_points_alone_share_their_kernels() -> None:
    def layer(x: pt.Node, scale: float, point: int) -> pt.Node:
        weight = dequantized(integers(point, (32, 32), "int8"), 0.002 * scale)
        state = again(pt.op("MatMul", x, weight), scale, point)
        scores = again(pt.op("MatMul", state, pt.op("Transpose", state, perm=[0, 2, 1])), scale, point)
        attended = again(pt.op("MatMul", again(pt.op("Softmax", scores), 0.004 * scale, 0), state), 0.3 * scale, point)
        norm = pt.op("LayerNormalization", pt.op("Add", attended, x), pt.constant(np.ones(32, np.float32)))
        return again(norm, 0.02 * scale, point)

    x = dequantized(pt.variable("x", "uint8", (2, 16, 32)), 0.02, 90)
    graph = typed(layer(layer(layer(x, 1.2, 100), 1.1, 110), 0.9, 120))
    model, given = compiled(graph), integers(4, (2, 16, 32), "uint8")
    symbols = [launch.symbol for launch in model.launches]
    assert len(symbols) == 16 and len(set(symbols)) == 7  # Five of a layer, the first, and the norm whose numbers are returned.
    assert np.abs(model.run([given], [None])[0] - interpret(graph, [given])[0]).max() < 0.05
