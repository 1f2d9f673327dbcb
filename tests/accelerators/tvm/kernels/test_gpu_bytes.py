"""Quantized values on OpenCL drivers: joins, resizes, phases that are dealt out, products of two values, and numbers that choose
their own scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import tiles
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.graph.types import Array
from tests.accelerators.tvm.kernels.test_quantized_enlarging import CASES as TRANSPOSED
from tests.accelerators.tvm.kernels.test_quantized_enlarging import IN_GROUPS
from tests.accelerators.tvm.kernels.test_quantized_pairs import PAIRS, Pair, pairs
from tests.accelerators.tvm.quantizing import Layer, dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, normals, schedules

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")

CUTS = list(tiles(Gpu(64, 256, 32768)))
EXAMPLES = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def results_of(graph: pt.Graph, *inputs: Array) -> tuple[list[Array], list[str]]:
    """What the driver makes of them, and the names of the kernels."""
    model = compiled(pt.apply_pass(graph, "InferShape"), "opencl")
    return model.run(list(inputs), [None] * len(graph.outputs)), schedules(model)


def agrees(graph: pt.Graph, *inputs: Array, schedule: str) -> None:
    """One of its kernels is of this name, and it makes the integers that `cpu` makes."""
    results, names = results_of(graph, *inputs)
    assert schedule in names
    for result, wanted in zip(results, pt.compile(graph, "cpu", config={"CACHE_DIR": ""})(*inputs), strict=True):
        np.testing.assert_array_equal(result, wanted)


# -- products of two values --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.thinned(2)
def test_a_product_of_two_values_is_exact(kind: str) -> None:
    (result,), names = results_of(PAIRS[kind].graph(), *PAIRS[kind].inputs)
    assert names == ["gpu_quantized_pair"]
    np.testing.assert_array_equal(result, PAIRS[kind].expected())


@EXAMPLES
@given(pairs(), st.sampled_from(CUTS))
def test_products_of_any_cut_are_exact(pair: Pair, tile: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        (result,), names = results_of(pair.graph(), *pair.inputs)
    assert names == ["gpu_quantized_pair"]
    np.testing.assert_array_equal(result, pair.expected())


@pytest.mark.slow
def test_sums_of_products_of_two_values_are_exact() -> None:
    """MatMulInteger, with zero points on both sides."""
    a, b = integers(0, (2, 9, 300), "int8"), integers(1, (2, 300, 21), "uint8")
    points = pt.constant(np.int8(-5)), pt.constant(np.uint8(131))
    inputs = pt.variable("a", "int8", a.shape), pt.variable("b", "uint8", b.shape)
    (result,), names = results_of(pt.Graph([pt.op("MatMulInteger", *inputs, *points)], list(inputs)), a, b)
    assert names == ["gpu_quantized_pair"]
    np.testing.assert_array_equal(result, (a.astype(int) + 5) @ (b.astype(int) - 131))


def test_weights_whose_distances_are_no_bytes_are_multiplied_as_values() -> None:
    x, weight = integers(0, (5, 40), "uint8"), integers(1, (40, 24), "uint8")
    node = pt.op("MatMul", dequantized(pt.variable("x", "uint8", x.shape), 0.5, 3), dequantized(weight, 0.25, 90))
    (result,), names = results_of(pt.Graph([node]), x)
    assert names == ["gpu_quantized_pair"]
    np.testing.assert_array_equal(result, ((x.astype(int) - 3) @ (weight.astype(int) - 90)).astype("f") * np.float32(0.125))


# -- what moves them ---------------------------------------------------------------------------------------


def image(channels: int, seed: int, after: int = 3) -> pt.Node:
    """A convolution's result as integers."""
    layer = Layer(3, channels, (5, 7), after=after, point=9)
    return layer.node(pt.variable(f"x{seed}", "uint8", (1, 3, 5, 7)))


@pytest.mark.parametrize("channels", [(8, 4), (5, 12)])
@pytest.mark.parametrize("after", [3, 40])
@pytest.mark.thinned(2)
def test_a_join_of_channels_is_one_launch(channels: tuple[int, int], after: int) -> None:
    """Of integers scaled alike, and of some that are scaled anew."""
    images = [image(count, i, point) for i, (count, point) in enumerate(zip(channels, (3, after), strict=True))]
    sides = [dequantized(node, 0.11, point, dtype="uint8") for node, point in zip(images, (3, after), strict=True)]
    graph = pt.Graph([quantized(pt.op("Concat", *sides, axis=1), 0.11, 3)])
    agrees(graph, integers(0, (1, 3, 5, 7), "uint8"), integers(1, (1, 3, 5, 7), "uint8"), schedule="gpu_joined_channels")


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("scales", [(2, 2), (1, 3)])
@pytest.mark.parametrize(("mode", "schedule"), [("nearest", "gpu_resized_integers"), ("linear", "gpu_mixed_integers")])
@pytest.mark.thinned(2)
def test_resizes_are_those_of_cpu(channels: int, scales: tuple[int, int], mode: str, schedule: str) -> None:
    x = dequantized(image(channels, 0), 0.11, 3, dtype="uint8")
    resized = pt.op("Resize", x, None, pt.constant(np.array([1, 1, *scales], "f")), mode=mode)
    agrees(pt.Graph([quantized(resized, 0.11, 3)]), integers(0, (1, 3, 5, 7), "uint8"), schedule=schedule)


@pytest.mark.parametrize("case", [*TRANSPOSED.values(), *IN_GROUPS.values()], ids=[*TRANSPOSED, *IN_GROUPS])
@pytest.mark.thinned(2)
def test_transposed_convolutions_are_exact(case: Any) -> None:
    (result,), names = results_of(case.graph(), case.given)
    assert "gpu_interleaved_phases" in names
    np.testing.assert_array_equal(result, case.expected())


# -- numbers that choose their own scale -------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 255, 2048, 2049, 140_000])
@pytest.mark.parametrize("around", [0.0, 5.0, -5.0])
@pytest.mark.thinned(2)
def test_numbers_choose_their_own_scale_in_two_launches(size: int, around: float) -> None:
    node = pt.op("DynamicQuantizeLinear", pt.variable("x", "float32", (size,)), n_outputs=3)
    x = normals(size)(size) + np.float32(around)
    graph = pt.Graph([node[0], node[1], node[2]])
    results, names = results_of(graph, x)
    assert names == ["gpu_dynamic_bytes"]
    for result, wanted in zip(results, pt.compile(graph, "reference")(x), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_nan_is_passed_over_as_in_onnxruntime() -> None:
    node = pt.op("DynamicQuantizeLinear", pt.variable("x", "float32", (4,)), n_outputs=3)
    (result, scale), _ = results_of(pt.Graph([node[0], node[1]]), np.array([np.nan, 1, 2, 3], np.float32))
    assert scale == np.float32(3) / np.float32(255)
    assert result[1:].tolist() == [85, 170, 255]


def test_no_kernel_asks_whether_dequantized_numbers_are_nan() -> None:
    """torch makes zeros of rows of NaN; none of these is one."""
    image = integers(0, (2, 40), "uint8")
    weights = pt.op("Softmax", dequantized(pt.variable("x", "uint8", image.shape), 0.05, 100))
    again = dequantized(quantized(weights, 1 / 255, 0), 1 / 255, 0, dtype="uint8")
    kept = pt.op("Where", pt.op("IsNaN", again), pt.constant(np.float32(0)), again)
    results, names = zip(*(results_of(pt.Graph([quantized(node, 1 / 255, 0)]), image) for node in (kept, again)), strict=True)
    assert names[0] == names[1]
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][0].any()


def dynamic_product(given: pt.Node, scale: pt.Node, outs: int) -> pt.Node:
    """As onnxruntime's dynamic quantization writes it: the integers' sums times both scales, a bias and an activation."""
    weights = pt.constant(integers(outs, (40, outs), "int8"))
    sums = pt.op("MatMulInteger", given[0], weights, given[2], pt.constant(np.int8(0)))
    scaled = pt.op("Mul", pt.op("Cast", sums, to=1), scale)
    return pt.op("Relu", pt.op("Add", scaled, pt.constant(normals(outs)(outs))))


def test_scales_and_zero_points_that_follow_from_numbers_take_no_launch() -> None:
    """Scales of each column; the zero point times the columns' sums."""
    x, data = pt.variable("x", "float32", (3, 7, 40)), normals(0)(3, 7, 40) + np.float32(0.5)
    given = pt.op("DynamicQuantizeLinear", x, n_outputs=3)
    scales = pt.op("Mul", given[1], pt.constant(np.random.default_rng(1).uniform(0.01, 0.02, 33).astype("f")))
    graph = pt.Graph([dynamic_product(given, scales, 33)], [x])
    (result,), names = results_of(graph, data)
    assert names == ["gpu_dynamic_bytes", "gpu_quantized_product"]
    np.testing.assert_allclose(result, pt.compile(graph, "cpu", config={"CACHE_DIR": ""})(data)[0], 1e-6, 1e-5)


def test_a_scale_that_others_read_is_computed_once() -> None:
    x, data = pt.variable("x", "float32", (5, 40)), normals(0)(5, 40)
    given = pt.op("DynamicQuantizeLinear", x, n_outputs=3)
    scale = pt.op("Mul", given[1], pt.constant(np.float32(0.015)))
    graph = pt.Graph([dynamic_product(given, scale, 20), dynamic_product(given, scale, 33), scale], [x])
    results, names = results_of(graph, data)
    assert names.count("gpu_quantized_product") == 2 and len(names) == 4
    for result, wanted in zip(results, pt.compile(graph, "cpu", config={"CACHE_DIR": ""})(data), strict=True):
        np.testing.assert_allclose(result, wanted, 1e-6, 1e-5)
