"""Models as several quantizers write them: small ones, in integers, close to what the reference makes of them."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Array
from tests.accelerators.tvm.quantizing import dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, normals
from tests.close import assert_close

pytest.importorskip("tvm")


def again(given: pt.Node, scale: float, point: int, dtype: str = "uint8") -> pt.Node:
    """Quantized and dequantized."""
    return dequantized(quantized(given, scale, point, dtype), scale, point, dtype=dtype)


def narrow(seed: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Weights without -128, with a scale for each output."""
    weight = np.maximum(integers(seed, shape, "int8"), -127)
    depth = float(np.prod(shape[1:]))
    return weight, np.random.default_rng(seed).uniform(0.02, 0.04, shape[0]).astype("f") / np.float32(np.sqrt(depth))


def by_onnxruntime(reduced: bool, symmetric: bool) -> pt.Node:
    """Every value quantized, biases of 32 bits; weights of 7 bits (reduce_range), activations around zero."""
    dtype, point = ("int8", 0) if symmetric else ("uint8", 110)
    x = again(pt.variable("x", "float32", (1, 3, 12, 12)), 0.03, point, dtype)
    for seed, (ins, outs) in enumerate([(3, 8), (8, 16)]):
        weight, scales = narrow(seed, (outs, ins, 3, 3))
        weight = weight // 2 if reduced else weight
        bias = np.random.default_rng(seed).integers(-500, 500, outs).astype(np.int32)
        parts = dequantized(weight, scales, axis=0), dequantized(bias, np.float32(0.03) * scales, axis=0)
        x = again(pt.op("Relu", pt.op("Conv", x, *parts, pads=[1, 1, 1, 1])), 0.03, point, dtype)
    x = again(pt.op("GlobalAveragePool", x), 0.01, point, dtype)
    x = again(pt.op("Flatten", x), 0.01, point, dtype)
    return again(pt.op("Gemm", x, dequantized(*narrow(7, (5, 16)), axis=0), transB=1), 0.02, point, dtype)


def half_bytes() -> pt.Node:
    """Weights of 4 bits, with and without a sign, by which bytes are multiplied."""
    x = again(pt.variable("x", "float32", (1, 3, 12, 12)), 0.03, 110)
    scales = np.random.default_rng(1).uniform(0.02, 0.04, 8).astype("f")
    signed = np.random.default_rng(2).integers(-8, 8, (8, 3, 3, 3)).astype(ml_dtypes.int4)
    x = again(pt.op("Relu", pt.op("Conv", x, dequantized(signed, scales, axis=0), pads=[1, 1, 1, 1])), 0.03, 110)
    x = again(pt.op("Flatten", pt.op("GlobalAveragePool", x)), 0.03, 110)
    matrix = np.random.default_rng(3).integers(0, 16, (8, 5)).astype(ml_dtypes.uint4)
    operands = [pt.constant(array) for array in (matrix, np.float32(0.1), np.array(7, ml_dtypes.uint4))]
    return again(pt.op("MatMul", x, pt.op("DequantizeLinear", *operands)), 0.03, 110)


def in_onnxruntimes_domain(graph: pt.Graph) -> pt.Graph:
    """The graph with onnxruntime's own QuantizeLinear and DequantizeLinear."""
    def visit(node: pt.Node, rewriter: Rewriter) -> None:
        rebuilt, is_rounding = rewriter.rebuilt(node), node.op in ("QuantizeLinear", "DequantizeLinear")
        rewriter.keep(node, rebuilt.evolve(domain="com.microsoft") if is_rounding else rebuilt)

    return rewrite(graph, visit).evolve(opsets={**graph.opsets, "com.microsoft": 1})


def by_nncf(symmetric: bool) -> pt.Node:
    """Only what a weighted op reads is quantized, right before it; weights are numbers that the model quantizes itself, between
    -127 and 127; biases are numbers; a pool and a sum stay numbers."""
    dtype, point = ("int8", 0) if symmetric else ("uint8", 120)
    x = pt.variable("x", "float32", (1, 4, 10, 10))

    def layer(given: pt.Node, ins: int, outs: int, seed: int) -> pt.Node:
        weight, scales = narrow(seed, (outs, ins, 3, 3))
        numbers = pt.constant(weight * scales[:, None, None, None])
        points = pt.constant(np.zeros(outs, "int8"))
        stored = pt.op("QuantizeLinear", numbers, pt.constant(scales), points, axis=0)
        kernel = pt.op("DequantizeLinear", stored, pt.constant(scales), points, axis=0)
        return pt.op("Conv", again(given, 0.03, point, dtype), kernel, pt.constant(normals(seed)(outs)), pads=[1, 1, 1, 1])

    first = pt.op("Relu", layer(x, 4, 8, 1))
    second = pt.op("Add", layer(first, 8, 8, 2), first)
    return layer(pt.op("MaxPool", pt.op("Relu", second), kernel_shape=[2, 2], strides=[2, 2]), 8, 6, 3)


def by_torch() -> pt.Node:
    """Fake quantization as torch exports it: bytes held to 7 bits by a Clip, weights for each channel, biases of numbers."""
    def fake(given: pt.Node, scale: float, point: int) -> pt.Node:
        held = pt.op("Clip", quantized(given, scale, point), pt.constant(np.uint8(0)), pt.constant(np.uint8(127)))
        return dequantized(held, scale, point, dtype="uint8")

    x = fake(pt.variable("x", "float32", (2, 16)), 0.04, 60)
    for seed, (ins, outs) in enumerate([(16, 24), (24, 10)]):
        weight = dequantized(*narrow(seed, (outs, ins)), axis=0)
        product = pt.op("Gemm", x, weight, pt.constant(normals(seed)(outs)), transB=1)
        x = fake(pt.op("Relu", product), 0.03, 0)
    return x


def in_operators() -> pt.Node:
    """QLinearConv and QLinearMatMul, with zero points of bytes in the weights too."""
    one = lambda value, kind: pt.constant(np.asarray(value, kind))  # noqa: E731
    x = quantized(pt.variable("x", "float32", (1, 3, 8, 8)), 0.03, 128)
    weight, scales = narrow(1, (8, 3, 3, 3))
    x = pt.op(
        "QLinearConv", x, one(0.03, "f"), one(128, "uint8"), pt.constant(weight), pt.constant(scales),
        pt.constant(np.zeros(8, "int8")), one(0.02, "f"), one(7, "uint8"), pads=[1, 1, 1, 1],
    )
    x = pt.op("Reshape", x, pt.constant(np.array([8, 64], np.int64)))
    matrix = integers(2, (64, 12), "uint8")
    x = pt.op(
        "QLinearMatMul", x, one(0.02, "f"), one(7, "uint8"), pt.constant(matrix), one(0.002, "f"), one(128, "uint8"),
        one(0.05, "f"), one(100, "uint8"),
    )
    return dequantized(x, 0.05, 100, dtype="uint8")


STYLES: dict[str, Callable[[], pt.Node]] = {
    "onnxruntime": lambda: by_onnxruntime(False, False),
    "onnxruntime, reduced": lambda: by_onnxruntime(True, False),
    "onnxruntime, symmetric": lambda: by_onnxruntime(False, True),
    "onnxruntime, half bytes": half_bytes,
    "NNCF": lambda: by_nncf(False),
    "NNCF, symmetric": lambda: by_nncf(True),
    "torch": by_torch,
    "operators": in_operators,
}
PRODUCTS = {"onnxruntime": 3, "onnxruntime, reduced": 3, "onnxruntime, symmetric": 3, "NNCF": 3, "NNCF, symmetric": 3}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.thinned(2)
def test_a_model_of_each_quantizer_is_computed_in_integers(style: str) -> None:
    graph = pt.apply_pass(pt.Graph([STYLES[style]()]), "InferShape")
    model = compiled(graph)
    types = [launch.layer_type for launch in model.launches]
    assert sum("Product" in kind for kind in types) == PRODUCTS.get(style, 2)
    assert not any("Conv" in kind or "Gemm" in kind for kind in types)
    x = normals(11)(*[int(size) for size in graph.inputs[0].output_types[0].shape])  # type: ignore[union-attr]
    (result,), (wanted,) = model.run([x], [None]), interpret(graph, [x])
    step = 0.05 if style in ("onnxruntime", "operators") else 0.03
    assert np.abs(result - wanted).max() <= 2 * step * max(1.0, float(np.abs(wanted).max()) / 4)
    assert np.abs(wanted).max() > 0.1


@pytest.mark.parametrize(
    ("channels", "group", "dtype", "point", "bias"),
    [(3, 1, "uint8", 3, "whole"), (8, 1, "int8", 250, "numbers"), (8, 8, "uint8", 250, ""), (8, 2, "int8", 3, "whole")],
)
def test_a_convolution_by_weights_far_from_their_zero_point(channels: int, group: int, dtype: str, point: int, bias: str) -> None:
    image, weight = integers(0, (1, channels, 9, 8), dtype), integers(1, (8, channels // group, 3, 3), "uint8")
    x = dequantized(pt.variable("x", dtype, image.shape), 0.02, 9, dtype=dtype)
    inputs = [x, dequantized(weight, 0.003, point)]
    if bias:
        whole = np.arange(8).astype(np.int32) * 300
        inputs.append(dequantized(whole, np.float32(0.02) * np.float32(0.003)) if bias == "whole" else pt.constant(normals(2)(8)))
    product = pt.op("Relu", pt.op("Conv", *inputs, group=group, pads=[1, 1, 0, 1], strides=[1, 2]))
    graph = pt.apply_pass(pt.Graph([quantized(product, 0.05, 3), product]), "InferShape")
    model = compiled(graph)
    assert not any("Conv" in launch.layer_type for launch in model.launches)
    (stored, numbers), (wanted, exact) = model.run([image], [None, None]), interpret(graph, [image])
    assert np.abs(stored.astype(int) - wanted).max() <= 1 and (stored != wanted).mean() < 0.02
    assert np.abs(numbers - exact).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize(("make", "opset"), [(half_bytes, 21), (by_torch, 17)])
def test_rounding_of_onnxruntimes_domain_is_that_of_onnx(make: Callable[[], pt.Node], opset: int) -> None:
    graph = pt.apply_pass(pt.Graph([make()], opsets={"": opset}), "InferShape")
    own = pt.apply_pass(in_onnxruntimes_domain(graph), "InferShape")
    plain, model = compiled(graph), compiled(own)
    assert [launch.layer_type for launch in model.launches] == [launch.layer_type for launch in plain.launches]
    x = normals(11)(*[int(size) for size in graph.inputs[0].output_types[0].shape])  # type: ignore[union-attr]
    assert np.array_equal(model.run([x], [None])[0], plain.run([x], [None])[0])


@pytest.mark.parametrize("dtype", ["uint16", "int16"])
def test_activations_of_16_bits_are_computed_in_floats(dtype: str) -> None:
    given = integers(0, (1, 6, 7, 5), dtype)
    x = dequantized(pt.variable("x", dtype, given.shape), 1e-4, 100)
    product = pt.op("Conv", x, dequantized(*narrow(1, (8, 6, 3, 3)), axis=0), pads=[1, 1, 1, 1])
    graph = pt.apply_pass(pt.Graph([quantized(product, 1e-4, 5, dtype)]), "InferShape")
    (result,), (wanted,) = compiled(graph).run([given], [None]), interpret(graph, [given])
    off = np.abs(result.astype(int) - wanted)
    assert off.max() <= 2 and (off > 0).mean() < 0.1


def test_activations_with_a_scale_for_each_channel_are_computed_in_floats() -> None:
    given = integers(0, (1, 6, 7, 5), "uint8")
    scales = np.linspace(0.01, 0.05, 6).astype("f")
    points = pt.constant(np.arange(6).astype("uint8"))
    x = pt.op("DequantizeLinear", pt.variable("x", "uint8", given.shape), pt.constant(scales), points, axis=1)
    product = pt.op("Conv", x, dequantized(*narrow(1, (8, 6, 3, 3)), axis=0))
    graph = pt.apply_pass(pt.Graph([quantized(product, 0.1, 90)]), "InferShape")
    (result,), (wanted,) = compiled(graph).run([given], [None]), interpret(graph, [given])
    assert np.abs(result.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("axis", [0, 1])
def test_one_scale_with_a_zero_point_for_each_column(axis: int) -> None:
    """ONNX has as many of both; onnxruntime runs it all the same."""
    given, points = integers(0, (5, 24), "uint8"), integers(1, (24,), "int8")
    x = dequantized(pt.variable("x", "uint8", given.shape), 0.02, 120)
    stored = pt.constant(integers(2, (24, 24), "int8"))
    weight = pt.op("DequantizeLinear", stored, pt.constant(np.float32(0.01)), pt.constant(points), axis=axis)
    graph = pt.apply_pass(pt.Graph([pt.op("MatMul", x, weight)]), "InferShape")
    (result,), (wanted,) = compiled(graph).run([given], [None]), interpret(graph, [given])
    assert_close(result, wanted, atol=1e-3)
    assert np.abs(wanted).max() > 10


def test_the_report_tells_which_products_are_of_integers_and_why_others_are_not() -> None:
    x = pt.variable("x", "float32", (4, 16))
    matrices = [pt.constant(narrow(seed, (16, 16))[0]) for seed in range(3)]
    weights = [pt.op("DequantizeLinear", matrix, pt.constant(np.float32(0.01))) for matrix in matrices]
    y = again(pt.op("MatMul", again(x, 0.03, 110), weights[0], name="bytes"), 0.001, 30000, "uint16")
    y = pt.op("MatMul", y, weights[1], name="wide")
    y = pt.op("MatMul", again(y, 0.05, 110), pt.constant(normals(4)(16, 16)), name="floats")
    model = pt.compile(pt.Graph([pt.op("MatMul", y, weights[2], name="stored")]), "cpu", {"INTEGERS": "plain"})
    notes = model.report.notes
    assert "cpu_0: 1 product in integers, by plain" in notes
    assert "cpu_0: in float32, since its weights are not quantized: floats" in notes
    assert any(note.endswith("by weights that stay as they are stored") for note in notes)
