"""Quantized layers of images of any number, height and width: the numbers of the kernels for each size, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.layouts.quantized.scales import whole_sums
from partita.accelerators.tvm.sizes.sizing import sized
from tests.accelerators.tvm.any_size import numbers
from tests.accelerators.tvm.test_quantized_any_size import check_alike, convolutions, quantized, weight

Layer = Callable[[pt.Node], pt.Node]


def conv(x: pt.Node, ins: int = 12, outs: int = 12, side: int = 3, **attributes: Any) -> pt.Node:
    """A convolution whose results are quantized."""
    filters = weight(outs, ins // attributes.get("group", 1), side, side)
    return quantized(pt.op("Conv", x, filters, **attributes), 0.2, 100)


def swish(x: pt.Node) -> pt.Node:
    """A function of a byte, which a table holds."""
    return quantized(pt.op("Mul", x, pt.op("Sigmoid", x)))


def resized(x: pt.Node, times: tuple[int, int] = (2, 2), **attributes: Any) -> pt.Node:
    """Each pixel becomes several."""
    return quantized(pt.op("Resize", x, None, pt.constant(np.array([1, 1, *times], np.float32)), **attributes), 0.07)


def mean(x: pt.Node) -> pt.Node:
    return quantized(pt.op("GlobalAveragePool", x))


LAYERS: dict[str, Layer] = {
    "residual": lambda x: quantized(pt.op("Relu", pt.op("Add", x, conv(conv(x, side=1), pads=[1] * 4)))),
    "many results": lambda x: conv(conv(x, outs=70, pads=[1] * 4), ins=70, outs=33, pads=[1] * 4),
    "groups": lambda x: conv(x, group=3, strides=[2, 1]),
    "sampled": lambda x: conv(x, side=1, strides=[2, 2]),
    "apart": lambda x: conv(x, pads=[2] * 4, dilations=[2, 2]),
    "same": lambda x: conv(x, strides=[2, 2], auto_pad="SAME_UPPER"),
    "depthwise": lambda x: conv(x, group=12, pads=[1] * 4, strides=[2, 2]),
    "depthwise of several": lambda x: conv(x, outs=24, side=5, group=12, pads=[2] * 4),
    "largest": lambda x: quantized(pt.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)),
    "mean of a window": lambda x: quantized(pt.op("AveragePool", x, kernel_shape=[2, 3], auto_pad="SAME_UPPER")),
    "squeezed": lambda x: quantized(pt.op("Mul", x, pt.op("Sigmoid", conv(mean(x), side=1)))),
    "classified": lambda x: quantized(pt.op("Gemm", pt.op("Flatten", mean(x)), weight(10, 12), transB=1)),
    "joined": lambda x: conv(pt.op("Concat", conv(x, outs=32), conv(x, outs=16), axis=1), ins=48),
    "looked up": lambda x: conv(swish(conv(x))),
    "enlarged": lambda x: resized(conv(x), mode="linear"),
    "enlarged by three": lambda x: quantized(pt.op("Add", resized(x, (3, 1), mode="linear"), resized(x, (3, 1)))),
    "enlarged from the corner": lambda x: resized(x, mode="linear", coordinate_transformation_mode="asymmetric"),
    "repeated": lambda x: conv(resized(conv(x), mode="nearest")),
    "phases": lambda x: quantized(pt.op("ConvTranspose", x, weight(12, 8, 2, 2, axis=1), strides=[2, 2])),
}


def layers(names: list[str]) -> pt.Graph:
    """These layers, each behind a convolution of an image of three channels."""
    image = pt.variable("image", "float32", ("N", 3, "H", "W"))
    x = conv(quantized(image), ins=3, strides=[2, 2], pads=[1] * 4)
    return pt.Graph([LAYERS[name](x) for name in names], [image])


SIZES = ((1, 12, 12), (2, 12, 16), (1, 132, 100))
"""From as few pixels as windows see, over fewer than a tile has, to several bands of rows."""


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *[pytest.param(name, (SIZES[i % 2], SIZES[2]), id=name) for i, name in enumerate(LAYERS)],
        *[pytest.param(name, (SIZES[(i + 1) % 2],), id=f"{name}, else", marks=pytest.mark.slow) for i, name in enumerate(LAYERS)],
    ],
)
@pytest.mark.thinned(6)
def test_layers_of_images_of_any_size(name: str, sizes: tuple[tuple[int, int, int], ...]) -> None:
    graph = layers([name])
    model = check_alike(graph, [{"image": numbers(n, 3, h, w)} for n, h, w in sizes])
    reference, image = pt.compile(graph, "reference"), numbers(1, 3, 20, 28)
    (a,), (b,) = model(image), reference(image)
    assert np.abs(a - b).max() < 0.41, "further than two steps: a byte of the layer before may be off by one"
    assert (a != b).mean() < 0.01


@pytest.mark.parametrize(
    ("instruction", "threads"),
    [("avx2", 3), *[pytest.param(*other, marks=pytest.mark.slow) for other in (("", 2), ("avx2", 1), ("plain", 2))]],
)
def test_every_instruction_and_several_threads(instruction: str, threads: int) -> None:
    graph = layers(["residual", "many results", "depthwise"])
    config = {"INTEGERS": instruction, "NUM_THREADS": threads}
    model, apart = pt.compile(graph, "cpu", config=config), pt.compile(graph, "cpu", config={**config, "ANY_SIZE": False})
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for n, h, w in ((1, 12, 20), (2, 76, 68)):
        image = numbers(n, 3, h, w)
        for a, b in zip(model(image), apart(image), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", [0, *[pytest.param(other, marks=pytest.mark.slow) for other in (1, 2)]])
def test_a_net_at_random_sizes(seed: int) -> None:
    """Beside the kernels for each size: numbers that lie in the middle of two integers are rounded otherwise by the reference."""
    drawn = np.random.default_rng(seed)
    sizes = [(int(drawn.integers(1, 4)), *drawn.integers(3, 97, 2).tolist()) for _ in range(4)]
    check_alike(convolutions("H", "W"), [{"image": numbers(n, 3, height, width)} for n, height, width in sizes], 2)


def test_resizes_of_images_of_any_size_read_bytes() -> None:
    schedules = [kernel.schedule for kernel in pt.compile(layers(["enlarged", "repeated"]), "cpu").kernels()]
    assert schedules.count("mixed integers") == schedules.count("resized integers") == 1


def rooms(graph: pt.Graph, is_for_gpu: bool = False) -> tuple[Any, ...]:
    return whole_sums(sized(pt.apply_pass(graph, "InferShape")).graph, is_for_gpu)


def test_means_of_images_whose_sums_have_no_room() -> None:
    """They are compiled by themselves, where they are added up as numbers."""
    image = pt.variable("image", "float32", ("N", 4, "H", "W"))
    (room,) = rooms(pt.Graph([mean(quantized(image))], [image]))
    assert room.at({"s1": 2048, "s2": 4096}) >= 0 > room.at({"s1": 4096, "s2": 4096})
    assert rooms(pt.Graph([pt.op("GlobalAveragePool", image)], [image])) == ()


def test_products_of_two_values_whose_sums_have_no_room() -> None:
    """A GPU multiplies bytes of any number of keys, as many as the sum of 32 bits holds."""
    x = pt.variable("x", "float32", ("S", 8))
    graph = pt.Graph([pt.op("MatMul", quantized(pt.op("Transpose", x)), quantized(x))], [x])
    (room,) = rooms(graph, is_for_gpu=True)
    assert room.at({"s0": 33_025}) >= 0 > room.at({"s0": 33_026})
    assert rooms(graph) == ()
