"""Quantized models compiled once for any size: the same numbers as the reference, and as the kernels for that very size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.any_size import check, numbers, random, specialized

SIZES = (1, 3, 7, 16, 33, 65, 700)
"""Numbers of rows about those of tiles, and of a band and more."""


def scale(number: float) -> pt.Node:
    return pt.constant(np.float32(number))


def quantized(x: pt.Node, by: float = 0.05, point: int = 3) -> pt.Node:
    """The numbers as bytes and back."""
    zero = pt.constant(np.uint8(point))
    return pt.op("DequantizeLinear", pt.op("QuantizeLinear", x, scale(by), zero), scale(by), zero)


def weight(*shape: int, axis: int = 0) -> pt.Node:
    """Signed bytes with a scale for each result."""
    integers = pt.constant(random.integers(-127, 128, shape).astype(np.int8))
    scales = pt.constant(random.uniform(0.005, 0.02, shape[axis]).astype(np.float32))
    return pt.op("DequantizeLinear", integers, scales, pt.constant(np.zeros(shape[axis], np.int8)), axis=axis)


def check_alike(graph: pt.Graph, feeds: list[dict[str, Any]], threads: int = 1, device: str = "cpu") -> Any:
    """One compilation for the device, whose numbers are those of the kernels of `cpu` for each size, to the last bit."""
    own = {"NUM_THREADS": threads}
    model = pt.compile(graph, device, config=own if device == "cpu" else {"CACHE_DIR": ""})
    apart = pt.compile(graph, "cpu", config={**own, "ANY_SIZE": False})
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for feed in feeds:
        for a, b in zip(model(feed), apart(feed), strict=True):
            np.testing.assert_array_equal(a, b)
    assert specialized(model).sizes == ()
    assert len(specialized(apart).sizes) == len(feeds), "a size was not compiled by itself"
    return model


def layers() -> pt.Graph:
    """Two products of bytes of any number of rows, the second narrower than a vector, and of a depth that fills no step."""
    x = pt.variable("x", "float32", ("N", "S", 40))
    first = pt.op("Add", pt.op("MatMul", quantized(x), weight(40, 70, axis=1)), pt.constant(numbers(70)))
    second = pt.op("MatMul", quantized(pt.op("Relu", first)), weight(70, 6, axis=1))
    return pt.Graph([quantized(second)], [x])


def convolutions(height: int | str = 20, width: int | str = 18) -> pt.Graph:
    """A residual block, a depthwise convolution and a classifier, quantized between all of them."""
    image = pt.variable("image", "float32", ("N", 3, height, width))
    x = quantized(pt.op("Relu", pt.op("Conv", quantized(image), weight(16, 3, 3, 3), pads=[1] * 4, strides=[2, 2])))
    inner = quantized(pt.op("Relu", pt.op("Conv", x, weight(16, 16, 3, 3), pads=[1] * 4)))
    x = quantized(pt.op("Relu", pt.op("Add", quantized(pt.op("Conv", inner, weight(16, 16, 1, 1))), x)))
    x = quantized(pt.op("Conv", x, weight(16, 1, 3, 3), group=16, pads=[1] * 4))
    x = quantized(pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    flat = pt.op("Flatten", quantized(pt.op("GlobalAveragePool", x)))
    return pt.Graph([quantized(pt.op("Gemm", flat, weight(10, 16), transB=1))], [image])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.thinned(2)
def test_products_of_bytes_of_any_number_of_rows(threads: int) -> None:
    model = check_alike(layers(), [{"x": numbers(n, s, 40)} for n, s in [(2, 9), *((1, size) for size in SIZES)]], threads)
    assert [kernel.schedule for kernel in model.kernels()].count("quantized product") == 2


@pytest.mark.parametrize("shape", [(2, 9, 40), (1, 33, 40)])
def test_a_processor_with_tiles_of_its_own_takes_products_of_any_number_of_rows(shape: tuple[int, ...]) -> None:
    graph = layers()
    model = pt.compile(graph, "cpu", config={"INTEGERS": "amx-int8", "NUM_THREADS": 1})
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    x = numbers(*shape)
    np.testing.assert_array_equal(model(x)[0], pt.compile(graph, "cpu", config={"INTEGERS": "plain", "ANY_SIZE": False})(x)[0])


def test_quantized_convolutions_of_any_number_of_images() -> None:
    model = check_alike(convolutions(), [{"image": numbers(n, 3, 20, 18)} for n in (1, 2, 5)], 2)
    schedules = [kernel.schedule for kernel in model.kernels()]
    assert schedules.count("quantized product") == 4 and "quantized depthwise" in schedules


def test_numbers_quantized_by_themselves_at_any_size() -> None:
    """As onnxruntime's dynamic quantization writes it."""
    x = pt.variable("x", "float32", ("N", "S", 24))
    given = pt.op("DynamicQuantizeLinear", x, n_outputs=3)
    weights = pt.constant(random.integers(-127, 128, (24, 33)).astype(np.int8))
    sums = pt.op("MatMulInteger", given[0], weights, given[2], pt.constant(np.int8(0)))
    scaled = pt.op("Mul", pt.op("Cast", sums, to=1), pt.op("Mul", given[1], scale(0.01)))
    check(pt.Graph([scaled], [x]), [{"x": numbers(n, s, 24)} for n, s in [(1, 1), (2, 5), (1, 17), (3, 40)]], 1e-4)


def test_quantized_attention_of_any_length() -> None:
    """Products of two values of any length are made of the numbers that bytes stand for."""
    x = pt.variable("x", "float32", ("N", "S", 32))
    query, key = (quantized(pt.op("MatMul", quantized(x), weight(32, 32, axis=1)), 0.1, 128) for _ in range(2))
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1]))
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), quantized(x))
    check(pt.Graph([mixed], [x]), [{"x": numbers(n, s, 32)} for n, s in [(1, 1), (2, 5), (1, 40)]], 1e-4)


@pytest.mark.parametrize(("dtype", "block"), [("int4", 32), ("uint8", 0)])
@pytest.mark.thinned(2)
def test_products_by_packed_matrices_of_any_number_of_rows(dtype: str, block: int) -> None:
    """As onnxruntime's MatMulNBits, and DequantizeLinear with blocks of scales: few rows, and many."""
    x, low = pt.variable("x", "float32", ("N", "S", 64)), 0 if dtype == "uint8" else -8
    integers = random.integers(low, low + 16, (64, 70)).astype(numpy_dtype(dtype))
    scales = pt.constant(random.uniform(0.005, 0.02, (2, 70) if block else (70,)).astype(np.float32))
    blocks = {"axis": 0, "block_size": block} if block else {"axis": 1}
    matrix = pt.op("DequantizeLinear", pt.constant(integers), scales, **blocks)
    graph = pt.Graph([pt.op("Add", pt.op("MatMul", x, matrix), pt.constant(numbers(70)))], [x])
    sizes = [(1, 1), (1, 2), (1, 3), (2, 2), (1, 5), (1, 8), (3, 3), (1, 17), (2, 40)]
    model = check(graph, [{"x": numbers(n, s, 64)} for n, s in sizes], 1e-4)
    assert "packed product" in [kernel.schedule for kernel in model.kernels()]
    several, given = pt.compile(graph, "cpu", config={"NUM_THREADS": 3}), numbers(2, 40, 64)
    np.testing.assert_array_equal(several(given)[0], model(given)[0])


def test_rows_of_a_quantized_table_at_positions_that_follow_from_sizes() -> None:
    """Numpy does not know the op that stands for stored weights, and each length was compiled."""
    x = pt.variable("x", "float32", ("N", "S", 8))
    length = pt.op("Gather", pt.op("Shape", x), pt.constant(np.array(1)))
    positions = pt.op("Range", pt.constant(np.array(0)), length, pt.constant(np.array(1)))
    integers = pt.constant(random.integers(0, 256, (32, 8)).astype(np.uint8))
    table = pt.op("DequantizeLinear", integers, scale(0.1), pt.constant(np.uint8(9)))
    graph = pt.Graph([pt.op("Add", quantized(x), quantized(pt.op("Gather", table, positions)))], [x])
    check(graph, [{"x": numbers(n, s, 8)} for n, s in ((1, 1), (2, 7), (1, 32))], 1e-4)


def test_numbers_of_whole_vectors_at_any_size_have_a_kernel_and_its_text() -> None:
    """A number of rows is known only in a call, which is not a reason to leave rows of whole vectors to TVM's own kernels."""
    x = pt.variable("x", "uint8", ("N", 64))
    graph = pt.Graph([pt.op("DequantizeLinear", x, pt.constant(np.float32(0.1)), pt.constant(np.uint8(3)))], [x])
    model = pt.compile(graph, "cpu")
    (kernel,) = model.kernels()
    assert kernel.schedule == "chain" and kernel.text.startswith("kernel chain")
    for rows in (1, 3, 50):
        data = np.arange(rows * 64, dtype=np.uint8).reshape(rows, 64)
        np.testing.assert_array_equal(model(data)[0], (data.astype(np.float32) - 3) * np.float32(0.1))
