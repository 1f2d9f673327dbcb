"""Quantized models on the device `opencl` compiled once for any size: the integers that `cpu` makes of each size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.sizes import sizing
from tests.accelerators.tvm.any_size import numbers, random
from tests.accelerators.tvm.test_quantized_any_size import check_alike, quantized, scale, weight
from tests.accelerators.tvm.test_quantized_any_size import layers as products
from tests.accelerators.tvm.test_quantized_images import layers

LAYERS = "sampled,same,groups,depthwise,largest,mean of a window,classified", "residual,joined,enlarged,repeated,phases"
"""Layers of images, those of a graph behind each other."""


@pytest.fixture(autouse=True)
def any_rows(opencl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are computed by the kernels for any number of them too."""
    monkeypatch.setattr(sizing, "FEW_ROWS", 0)


def agrees(graph: pt.Graph, feeds: list[dict[str, Any]]) -> list[str]:
    """The names of the kernels, which make the integers that `cpu` makes."""
    return [kernel.schedule for kernel in check_alike(graph, feeds, device="opencl").kernels()]


@pytest.mark.parametrize("names", LAYERS)
@pytest.mark.parametrize("sizes", [((1, 12, 12), (3, 28, 20)), pytest.param(((2, 12, 16),), marks=pytest.mark.slow)])
@pytest.mark.thinned(2)
def test_layers_of_images_of_any_size(names: str, sizes: tuple[tuple[int, int, int], ...]) -> None:
    feeds = [{"image": numbers(n, 3, h, w)} for n, h, w in sizes]
    agrees(layers(names.split(",")), feeds)


def test_products_of_bytes_of_any_number_of_rows() -> None:
    names = agrees(products(), [{"x": numbers(n, s, 40)} for n, s in ((1, 1), (2, 9), (1, 65), (3, 50))])
    assert names.count("gpu_quantized_product") == 2


def test_quantized_attention_of_any_length() -> None:
    """Products of two values, one over as many numbers as there are keys."""
    x = pt.variable("x", "float32", ("N", "S", 32))
    query, key, value = (quantized(pt.op("MatMul", quantized(x), weight(32, 32, axis=1)), 0.1, point) for point in (128, 3, 90))
    scores = quantized(pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1])), 0.2, 100)
    weights = quantized(pt.op("Mul", scores, scores), 0.01, 0)
    graph = pt.Graph([quantized(pt.op("MatMul", weights, value), 0.3, 7)], [x])
    names = agrees(graph, [{"x": numbers(n, s, 32)} for n, s in ((1, 1), (2, 5), (1, 40), (3, 33))])
    assert names.count("gpu_quantized_pair") == 2


def test_numbers_that_choose_their_own_scale() -> None:
    """As onnxruntime's dynamic quantization writes it."""
    x = pt.variable("x", "float32", ("N", "S", 24))
    given = pt.op("DynamicQuantizeLinear", x, n_outputs=3)
    weights = pt.constant(random.integers(-127, 128, (24, 33)).astype(np.int8))
    sums = pt.op("MatMulInteger", given[0], weights, given[2], pt.constant(np.int8(0)))
    graph = pt.Graph([pt.op("Mul", pt.op("Cast", sums, to=1), pt.op("Mul", given[1], scale(0.01)))], [x])
    names = agrees(graph, [{"x": numbers(n, s, 24)} for n, s in ((1, 1), (2, 5), (1, 300), (3, 2000))])
    assert "gpu_dynamic_bytes" in names and "gpu_quantized_product" in names
