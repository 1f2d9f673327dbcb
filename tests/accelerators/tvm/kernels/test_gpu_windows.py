"""Pools and local response normalisation on GPUs: every form computes in numpy what the ops do in double precision, and numbers
of two bytes need no casts around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.graph.errors import PartitaError
from tests.accelerators.tvm.kernels.test_pools import pools
from tests.accelerators.tvm.kernels.test_tensor_cores import matches, numbers
from tests.accelerators.tvm.running import compiled, schedules

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

EXAMPLES = settings(max_examples=12, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
REALS = st.sampled_from(["float16", "bfloat16", "float32"])


@EXAMPLES
@given(REALS, pools())
def test_any_windows(dtype: str, pool: tuple[str, str, list[int], dict[str, Any]]) -> None:
    """One to three dimensions, strides, dilations, pads of all kinds, windows that reach beyond the last pixel."""
    op, _, sizes, attrs = pool
    out = pt.op(op, pt.variable("x", dtype, (2, 3, *sizes)), **attrs)
    try:
        (entry,) = pt.apply_pass(pt.Graph([out], opsets={"": 22}), "InferShape").outputs
    except PartitaError:
        assume(False)
    assume(0 not in entry.type.shape)
    matches(out, "gpu_pool", numbers(2, 3, *sizes, dtype=dtype))


@EXAMPLES
@given(REALS, st.integers(1, 6), st.integers(1, 7), st.sampled_from([0.75, 0.5]))
def test_neighbouring_channels(dtype: str, size: int, channels: int, beta: float) -> None:
    """Windows of odd and even sizes, wider than all channels too."""
    x = pt.variable("x", dtype, (2, channels, 3, 5))
    matches(pt.op("LRN", x, size=size, beta=beta, alpha=0.5), "gpu_lrn", numbers(2, channels, 3, 5, dtype=dtype))


def old_net() -> pt.Graph:
    """A convolution, a normalisation, pools of two kinds, and one of the whole image, as old networks have them."""
    weight = pt.constant(np.full((32, 16, 3, 3), 0.1, "float32"))
    held = pt.op("Relu", pt.op("Conv", pt.variable("x", "float32", (1, 16, 16, 16)), weight, pads=[1] * 4))
    held = pt.op("MaxPool", pt.op("LRN", held, size=5), kernel_shape=[2, 2], strides=[2, 2])
    held = pt.op("AveragePool", held, kernel_shape=[3, 3], pads=[1] * 4)
    return pt.Graph([pt.op("AveragePool", held, kernel_shape=[8, 8])], name="old_net")


KERNELS = ["gpu_convolution", "gpu_lrn", "gpu_pool", "gpu_pool", "gpu_rows"]


def test_each_is_one_launch() -> None:
    assert schedules(compiled(old_net(), "cuda", ARCH="sm_80")) == KERNELS


@pytest.mark.parametrize("precision", [pytest.param("f16", marks=pytest.mark.slow), "bf16"])
@pytest.mark.slow
def test_numbers_of_two_bytes_need_no_casts_between(precision: str) -> None:
    """One chain is left in front and one behind, which make the types of the input and of the output."""
    names = schedules(compiled(old_net(), "cuda", ARCH="sm_80", PRECISION=precision))
    assert names[1:6] == ["gpu_convolution_on_tensor_cores", *KERNELS[1:]] and len(names) <= 7


def test_scales_and_shifts_are_folded() -> None:
    """A norm becomes part of the convolution before it; one that has none in front is computed as the next reads its image,
    or, where that has a window, is one chain with what follows."""
    scale = [pt.constant(np.full(8, number, "float32")) for number in (2.0, 0.5, 0.1, 4.0)]
    shift = pt.constant(np.full((8, 1, 1), 3, "float32"))
    x = pt.variable("x", "float32", (1, 8, 6, 6))
    first = pt.op("Relu", pt.op("Mul", pt.op("BatchNormalization", x, *scale), shift))
    for tap, wanted in ((1, ["gpu_convolution"]), (3, ["chain", "gpu_convolution"])):
        conv = pt.op("Conv", first, pt.constant(np.full((8, 8, tap, tap), 0.1, "float32")), pads=[tap // 2] * 4)
        out = pt.op("Relu", pt.op("Add", pt.op("Mul", conv, shift), shift))
        assert schedules(compiled(pt.Graph([out]), "cuda", ARCH="sm_80")) == wanted


@pytest.mark.parametrize(("attrs", "schedule"), [
    ({"kernel_shape": [6, 6]}, "gpu_rows"), ({"kernel_shape": [6, 6], "pads": [1, 0, 0, 0], "strides": [2, 2]}, "gpu_pool"),
    ({"kernel_shape": [5, 6]}, "gpu_pool"),
])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.thinned(2)
def test_windows_of_the_whole_image_are_shared_by_threads(op: str, attrs: dict[str, Any], schedule: str) -> None:
    x = pt.variable("x", "float32", (1, 8, 6, 6))
    assert schedules(compiled(pt.Graph([pt.op(op, x, **attrs)], opsets={"": 22}), "cuda", ARCH="sm_80")) == [schedule]
