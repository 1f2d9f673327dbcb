"""Convolutions on GPUs that compute the norm and the activation before them as they read: on OpenCL drivers, and by tensor cores
as the manual has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction.convolution import gpu_conv
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.types import Array, numpy_dtype
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.kernels.test_tensor_cores import EXAMPLES, STEADY, any_cut, matches, numbers, sizes_of_numbers
from tests.accelerators.tvm.lockstep import Hazard, run, without_barriers
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
@pytest.mark.thinned(2)
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


def small_numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Whole numbers whose products and sums by a few others all these element types have, TF32 among them."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(numpy_dtype(dtype))


def normed_layer(dtype: str, sizes: tuple[int, ...], outs: int, stride: int = 1, pad: int = 0) -> pt.Node:
    """A convolution of one tap, whose image is normed, and padded by zeros after that."""
    channels, (_, _, *pixels) = sizes[1], sizes
    factors = [pt.constant(small_numbers(seed, (1, channels, *[1] * len(pixels)), dtype)) for seed in (1, 2)]
    image = pt.op("Mul", pt.variable("x", dtype, sizes), factors[0])
    normed = pt.op("Relu", pt.op("Add", image, factors[1]))
    weight, bias = (pt.constant(numbers(*shape, dtype=dtype)) for shape in ((outs, channels, *[1] * len(pixels)), (outs,)))
    convolved = pt.op("Conv", normed, weight, bias, strides=[stride] * len(pixels), pads=[pad] * 2 * len(pixels))
    return pt.op("LeakyRelu", convolved)


@sizes_of_numbers
@EXAMPLES
@given(st.data())
def test_norms_before_convolutions_of_any_cut_on_tensor_cores(size: int, data: st.DataObject) -> None:
    """In numpy, by the PTX manual: pixels that are read by four and by two, and one by one; rests of all sizes."""
    dtype, tile = any_cut(size, STEADY, data)
    few = lambda *options: data.draw(st.sampled_from(options))  # noqa: E731
    sizes = few(1, 2), few(3, 16, 33), *few((4, 4), (3, 6), (5, 7), (9,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_conv, "best_tile", lambda image, machine, size: tile)
        node = normed_layer(dtype, sizes, few(2, 17), few(1, 1, 2), few(0, 0, 1))
        matches(node, "gpu_convolution_on_tensor_cores", small_numbers(3, sizes, dtype))


def test_tensor_cores_without_barriers_are_seen() -> None:
    """The threads write what other threads multiply."""
    graph = pt.apply_pass(pt.Graph([normed_layer("float16", (1, 40, 4, 8), 24)]), "InferShape")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_conv, "best_tile", lambda image, machine, size: TensorTile(32, 32, 16, 16, 16, 1, 2))
        draft = draft_kernel(body := make_body(graph), gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None
    held = [small_numbers(3, (1, 40, 4, 8), "float16"), *body.weights]
    given = [draft.packs[i](array) if i in draft.packs else array for i, array in enumerate(held)]
    run(draft.kernel, given)
    with pytest.raises(Hazard):
        run(without_barriers(draft.kernel), given)


@pytest.mark.parametrize("precision", [pytest.param("f16", marks=pytest.mark.slow), "bf16", "tf32"])
@pytest.mark.thinned(2)
def test_a_norm_before_a_convolution_takes_no_launch_on_tensor_cores(precision: str) -> None:
    names = schedules(compiled(pt.apply_pass(layer(16, (4, 4)), "InferShape"), "cuda", ARCH="sm_80", PRECISION=precision))
    assert [name for name in names if name.startswith("gpu")] == ["gpu_convolution_on_tensor_cores"]


@needs_nvcc
@pytest.mark.parametrize("dtype", [pytest.param("float16", marks=pytest.mark.slow), "bfloat16", "float32"])
@pytest.mark.thinned(2)
def test_nothing_is_spilled(dtype: str, tmp_path: Path) -> None:
    """A layer of DenseNet-121."""
    graph = pt.apply_pass(pt.Graph([normed_layer(dtype, (1, 256, 28, 28), 128)], opsets={"": 22}), "InferShape")
    (kernel,) = compiled(graph, "cuda", ARCH="sm_80", PRECISION="tf32").kernels()
    assert "mma.sync" in kernel.assembly
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(kernel.assembly, arch, tmp_path)
