"""Convolutions of each channel by itself on GPUs: float32 on OpenCL drivers, numbers of two bytes in numpy, and assembled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.kernels.test_tensor_cores import matches, numbers
from tests.accelerators.tvm.running import compiled, schedules

pytest.importorskip("tvm")

EXAMPLES = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@EXAMPLES
@given(st.sampled_from(["float16", "bfloat16", "float32"]), st.data())
def test_windows_of_any_form(dtype: str, data: st.DataObject) -> None:
    """One to three dimensions, strides, dilations, pads on either side, groups of one channel and of two, one result each."""
    draw, rank = data.draw, data.draw(st.integers(1, 3))
    groups, inner, batch = draw(st.integers(2, 5)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    sizes, taps = [draw(st.integers(5, 7)) for _ in range(rank)], [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    image = pt.variable("x", dtype, (batch, groups * inner, *sizes))
    weight, bias = (pt.constant(numbers(*shape, dtype=dtype, seed=1)) for shape in ((groups, inner, *taps), (groups,)))
    out = pt.op("Conv", image, weight, bias, strides=strides, dilations=dilations, pads=pads, group=groups)
    matches(pt.op("Relu", out), "gpu_depthwise", numbers(batch, groups * inner, *sizes, dtype=dtype, seed=2))


def test_several_results_of_a_channel_are_products() -> None:
    image, weight = pt.variable("x", "float16", (1, 2, 6, 6)), pt.constant(numbers(8, 1, 3, 3, dtype="float16"))
    out = pt.op("Conv", image, weight, group=2)
    matches(out, "gpu_convolution_on_tensor_cores", numbers(1, 2, 6, 6, dtype="float16"))


def separable(dtype: str = "float32") -> pt.Graph:
    """A layer of MobileNet: one channel by itself between two products."""
    held = pt.variable("x", dtype, (1, 16, 14, 14))
    for i, (outs, inner, tap) in enumerate(((96, 16, 1), (96, 1, 3), (24, 96, 1))):
        weight = pt.constant(np.full((outs, inner, tap, tap), 0.1, numpy_dtype(dtype)))
        group = 96 if inner == 1 else 1
        held = pt.op("Relu", pt.op("Conv", held, weight, pads=[tap // 2] * 4, group=group, name=f"conv{i}"))
    return pt.Graph([held], name="separable")


@pytest.mark.parametrize("precision", [pytest.param("f16", marks=pytest.mark.slow), "bf16"])
@pytest.mark.slow
def test_numbers_of_two_bytes_need_no_casts_between(precision: str) -> None:
    """Two chains are left, which make the types of the input and of the output."""
    names = schedules(compiled(separable(), "cuda", ARCH="sm_80", PRECISION=precision))
    products = ["gpu_convolution_on_tensor_cores", "gpu_depthwise", "gpu_convolution_on_tensor_cores"]
    assert names[1:4] == products and len(names) <= 5


@needs_nvcc
def test_it_is_assembled_and_nothing_is_spilled(tmp_path: Path) -> None:
    (kernel,) = [k for k in compiled(separable("float16"), "cuda", ARCH="sm_80").kernels() if k.schedule == "gpu_depthwise"]
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(kernel.assembly, arch, tmp_path)
