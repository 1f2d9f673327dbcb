"""Transposed convolutions on GPUs: on tensor cores in numpy, in float32 on OpenCL drivers, and assembled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.graph.types import Array, numpy_dtype
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.kernels.test_tensor_cores import STEADY, any_cut, matches, numbers, sizes_of_numbers
from tests.accelerators.tvm.running import compiled, schedules

pytest.importorskip("tvm")

EXAMPLES = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def layer(dtype: str, data: st.DataObject, rank: int) -> tuple[pt.Node, Array]:
    """One of odd sizes, strides, pads and groups, with a bias and an activation behind, and an image for it."""
    draw = data.draw
    groups, inner, outs, batch = (draw(st.sampled_from(few)) for few in ([1, 2], [1, 3, 16], [2, 9], [1, 2]))
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    taps = [draw(st.integers(stride, 2 * stride + 1)) for stride in strides]
    sizes, pads = [draw(st.integers(3, 6)) for _ in range(rank)], [draw(st.integers(0, tap - 1)) for tap in taps * 2]
    beyond = [draw(st.integers(0, stride - 1)) for stride in strides]
    image = pt.variable("x", dtype, (batch, groups * inner, *sizes))
    weight = pt.constant(numbers(groups * inner, outs, *taps, dtype=dtype, seed=1))
    bias = pt.constant(numbers(groups * outs, dtype=dtype, seed=3))
    words = {"strides": strides, "pads": pads, "output_padding": beyond, "group": groups}
    out = pt.op("Relu", pt.op("ConvTranspose", image, weight, bias, **words))
    return out, numbers(batch, groups * inner, *sizes, dtype=dtype, seed=2)


@sizes_of_numbers
@EXAMPLES
@given(st.data(), st.integers(1, 2))
def test_on_tensor_cores_by_any_cut(size: int, data: st.DataObject, rank: int) -> None:
    dtype, tile = any_cut(size, STEADY, data)
    out, image = layer(dtype, data, rank)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        matches(out, "gpu_transposed_on_tensor_cores", image)


@EXAMPLES
@given(st.data(), st.integers(1, 3))
def test_in_float32(opencl: None, data: st.DataObject, rank: int) -> None:
    out, image = layer("float32", data, rank)
    graph = pt.Graph([out], name="net")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    assert [kernel.schedule for kernel in model.kernels()] == ["gpu_transposed"]
    np.testing.assert_allclose(model(image)[0], pt.compile(graph, "reference")(image)[0], 1e-5, 1e-5)


@pytest.mark.parametrize("words", [{"strides": [4, 2]}, {"dilations": [2, 2]}, {"auto_pad": "SAME_UPPER"}])
@pytest.mark.thinned(2)
def test_phases_without_a_tap_are_tvms_own(words: dict[str, object]) -> None:
    image, weight = pt.variable("x", "float32", (1, 2, 4, 4)), pt.constant(numbers(2, 3, 3, 3))
    model = compiled(pt.Graph([pt.op("ConvTranspose", image, weight, **words)]), "cuda", ARCH="sm_80")
    assert "gpu_transposed" not in schedules(model)


@pytest.mark.parametrize("taps", [(3, 3), (5, 4), (7, 3)])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.thinned(2)
def test_infinite_pixels_meet_the_taps_that_there_are(taps: tuple[int, int], dtype: str) -> None:
    """On tensor cores in numpy, in float32 on OpenCL drivers: a tap that a phase does not have would make NaN of them."""
    image, weight = np.ones((1, 5, 4, 6), dtype), np.full((5, 3, *taps), 0.5, dtype)
    image[0, 1, 2, 3], image[0, 4, 0, 0] = np.inf, -np.inf
    given = pt.variable("x", dtype, image.shape)
    out = pt.op("ConvTranspose", given, pt.constant(weight), strides=[2, 3], pads=[1, 0, 1, 1])
    if dtype == "float16":
        matches(out, "gpu_transposed_on_tensor_cores", image)
        return
    graph = pt.Graph([out])
    for device in ("opencl", "cpu"):
        model = pt.compile(graph, device, config={"CACHE_DIR": ""})
        np.testing.assert_array_equal(model(image)[0], pt.compile(graph, "reference")(image)[0])


def decoder(dtype: str = "float32") -> pt.Graph:
    """A step of a U-Net's decoder: an image made larger, joined with another one, and convolved."""
    given = pt.variable("x", dtype, (1, 16, 8, 8))
    weights = [np.full(shape, 0.1, numpy_dtype(dtype)) for shape in ((16, 8, 2, 2), (8, 8, 3, 3))]
    first = pt.op("Relu", pt.op("ConvTranspose", given, pt.constant(weights[0]), strides=[2, 2]))
    return pt.Graph([pt.op("Relu", pt.op("Conv", first, pt.constant(weights[1]), pads=[1] * 4))], name="decoder")


@pytest.mark.parametrize("precision", [pytest.param("f16", marks=pytest.mark.slow), "bf16", "tf32"])
@pytest.mark.thinned(2)
def test_numbers_of_two_bytes_need_no_casts_between(precision: str) -> None:
    names = schedules(compiled(decoder(), "cuda", ARCH="sm_80", PRECISION=precision))
    first = names.index("gpu_transposed_on_tensor_cores")
    assert names[first + 1] == "gpu_convolution_on_tensor_cores"


@needs_nvcc
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.thinned(2)
def test_it_is_assembled_and_nothing_is_spilled(dtype: str, tmp_path: Path) -> None:
    kernels = compiled(decoder(dtype), "cuda", ARCH="sm_80").kernels()
    (kernel,) = [kernel for kernel in kernels if kernel.schedule.startswith("gpu_transposed")]
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(kernel.assembly, arch, tmp_path)
