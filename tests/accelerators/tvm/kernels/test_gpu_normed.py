"""Convolutions on GPUs that compute the norm and the activation before them as they read: on OpenCL drivers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.running import compiled, normals, schedules

pytest.importorskip("tvm")


def layer(channels: int, sizes: tuple[int, ...], outs: int = 9, taps: int = 1, group: int = 1, batch: int = 1) -> pt.Graph:
    """A norm, an activation, a convolution of what is padded by zeros after them, and an activation behind."""
    random, ones = normals(1), (1,) * len(sizes)
    x = pt.variable("x", "float32", (batch, channels, *sizes))
    scaled = pt.op("Mul", x, pt.constant(random(channels, *ones)))
    normed = pt.op("Relu", pt.op("Add", pt.constant(random(1, channels, *ones)), scaled))
    weight = pt.constant(random(outs, channels // group, *[taps] * len(sizes)))
    convolved = pt.op("Conv", normed, weight, pt.constant(random(outs)), group=group, pads=[taps // 2] * (2 * len(sizes)))
    return pt.Graph([pt.op("LeakyRelu", convolved)])


SHAPES = [(5, (3, 7), 2), (33, (4, 4), 1), (7, (1, 1), 1), (6, (9,), 3), (3, (2, 3, 5), 1)]


@pytest.mark.parametrize(("channels", "sizes", "batch"), SHAPES)
def test_a_norm_before_a_convolution_takes_no_launch(opencl: None, channels: int, sizes: tuple[int, ...], batch: int) -> None:
    graph, image = layer(channels, sizes, batch=batch), normals(2)(batch, channels, *sizes)
    image.flat[0], image.flat[-1] = np.inf, np.nan
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    assert [kernel.schedule for kernel in model.kernels()] == ["gpu_convolution"]
    np.testing.assert_allclose(model(image)[0], pt.compile(graph, "reference")(image)[0], 1e-5, 1e-5)


def test_a_norm_that_others_read_is_computed_once() -> None:
    graph = layer(5, (4, 4))
    relu = next(node for node in graph.nodes if node.op == "Relu")
    model = compiled(pt.apply_pass(pt.Graph([*graph.outputs, relu[0]]), "InferShape"), "cuda", ARCH="sm_80")
    assert len(model.kernels()) == 2


@pytest.mark.parametrize("words", [{"taps": 3}, {"group": 5, "outs": 10}])
def test_other_convolutions_get_a_normed_image(words: dict[str, Any]) -> None:
    """Each number would be computed as often as it is read."""
    assert len(compiled(pt.apply_pass(layer(5, (4, 4), **words), "InferShape"), "cuda", ARCH="sm_80").kernels()) == 2


@pytest.mark.parametrize("precision", ["f16", "tf32"])
def test_tensor_cores_get_copies_of_a_normed_image(precision: str) -> None:
    names = schedules(compiled(pt.apply_pass(layer(16, (4, 4)), "InferShape"), "cuda", ARCH="sm_80", PRECISION=precision))
    assert "gpu_convolution_on_tensor_cores" in names and len(names) > 1
