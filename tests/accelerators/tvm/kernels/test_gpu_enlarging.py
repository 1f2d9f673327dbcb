"""Resizes by whole factors on GPUs: numbers of two bytes in numpy, float32 on OpenCL drivers too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.graph.types import Array
from tests.accelerators.tvm.kernels.test_tensor_cores import matches, numbers
from tests.accelerators.tvm.running import compiled, schedules

pytest.importorskip("tvm")

EXAMPLES = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
MODES = [
    {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    {"mode": "nearest", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
]


def resized(dtype: str, data: st.DataObject, words: dict[str, str]) -> tuple[pt.Node, Array]:
    """An image of odd sizes made larger, and numbers for it."""
    shape = tuple(data.draw(st.integers(1, most)) for most in (2, 3, 7, 7))
    scales = [1, 1, data.draw(st.integers(1, 4)), data.draw(st.integers(2, 3))]
    image = pt.variable("x", dtype, shape)
    out = pt.op("Resize", image, None, pt.constant(np.array(scales, "float32")), **words)
    return out, numbers(*shape, dtype=dtype, seed=2)


@pytest.mark.parametrize("words", MODES)
@EXAMPLES
@given(st.sampled_from(["float16", "bfloat16"]), st.data())
def test_numbers_of_two_bytes(words: dict[str, str], dtype: str, data: st.DataObject) -> None:
    out, image = resized(dtype, data, words)
    matches(out, "gpu_enlarge", image)


@pytest.mark.parametrize("words", MODES)
@EXAMPLES
@given(st.data())
@pytest.mark.thinned(2)
def test_float32(opencl: None, words: dict[str, str], data: st.DataObject) -> None:
    out, image = resized("float32", data, words)
    graph = pt.Graph([out], name="net")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    assert [kernel.schedule for kernel in model.kernels()] == ["gpu_enlarge"]
    np.testing.assert_allclose(model(image)[0], pt.compile(graph, "reference")(image)[0], 1e-5, 1e-6)


@pytest.mark.parametrize("words", MODES)
@pytest.mark.thinned(2)
def test_no_casts_between(words: dict[str, str]) -> None:
    image, weight = pt.variable("x", "float32", (1, 16, 8, 8)), pt.constant(numbers(16, 16, 3, 3))
    first = pt.op("Relu", pt.op("Conv", image, weight, pads=[1] * 4))
    larger = pt.op("Resize", first, None, pt.constant(np.array([1, 1, 2, 2], "float32")), **words)
    graph = pt.Graph([pt.op("Relu", pt.op("Conv", larger, weight, pads=[1] * 4))], name="net")
    names = schedules(compiled(graph, "cuda", ARCH="sm_80", PRECISION="f16"))
    products = ["gpu_convolution_on_tensor_cores"] * 2
    assert names[1:4] == [products[0], "gpu_enlarge", products[1]]
