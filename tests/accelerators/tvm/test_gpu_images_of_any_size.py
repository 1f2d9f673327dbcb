"""Convolutions, pools and what stands around them on GPUs at any size: compiled once, on OpenCL drivers right at every size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile
from partita.accelerators.tvm.run import opencl_driver
from partita.accelerators.tvm.sizes import sizing
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.any_size import specialized
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.kernels.test_tensor_cores import STEADY, numbers
from tests.accelerators.tvm.kernels.test_tensor_cores_of_any_size import agrees

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

Value = Any

EXAMPLES = settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def weights(*shape: int, seed: int = 0) -> Value:
    return pt.constant(numbers(*shape, seed=seed))


def conv(value: Value, *shape: int, **words: Any) -> Value:
    """With a bias and an activation."""
    return pt.op("Relu", pt.op("Conv", value, weights(*shape), weights(shape[0], seed=1), **words))


def residual(value: Value) -> Value:
    """A stem whose sizes are divided and rounded down, and a block with a way around it."""
    held = conv(value, 12, 3, 3, 3, pads=[1] * 4, strides=[2, 2])
    held = pt.op("MaxPool", held, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return pt.op("Add", conv(conv(held, 8, 12, 1, 1), 12, 8, 3, 3, pads=[1] * 4), held)


def mobile(value: Value) -> Value:
    """Channels by themselves, groups, dilations, strides, the mean of all pixels, and a product behind."""
    held = conv(pt.op("LRN", value, size=3), 3, 1, 3, 3, group=3, pads=[1] * 4, strides=[2, 2])
    held = conv(held, 8, 3, 3, 3, pads=[2] * 4, dilations=[2, 2])
    held = conv(held, 6, 4, 1, 1, group=2, strides=[2, 2])
    return pt.op("Gemm", pt.op("Flatten", pt.op("GlobalAveragePool", held)), weights(6, 5))


def decoder(value: Value) -> Value:
    """Images made smaller, made larger in two ways, and joined; means with and without their padding."""
    held = pt.op("AveragePool", conv(value, 4, 3, 3, 3, pads=[1] * 4), kernel_shape=[2, 2], strides=[2, 2])
    held = pt.op("AveragePool", held, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    words: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    larger = pt.op("Resize", held, None, pt.constant(np.array([1, 1, 2, 2], "float32")), **words)
    return pt.op("Concat", larger, pt.op("Relu", pt.op("ConvTranspose", held, weights(4, 5, 2, 2), strides=[2, 2])), axis=1)


NETS = {"residual": residual, "mobile": mobile, "decoder": decoder}
SIZES = [(1, 17, 21), (2, 32, 8), (1, 9, 40), (3, 4, 4), (1, 64, 50), (2, 2, 5), (1, 1, 1)]


def on_opencl(graph: pt.Graph) -> Value:
    """The model there, compiled once; the test is skipped where nothing runs OpenCL."""
    try:
        opencl_driver.drivers()
    except AcceleratorUnavailable as unavailable:
        pytest.skip(f"no OpenCL here: {unavailable.cause}")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    return model


@pytest.mark.parametrize("name", NETS)
@pytest.mark.thinned(2)
def test_one_compilation_serves_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odd sizes, fewer pixels than a tile has, and none of a window that is not padding."""
    monkeypatch.setattr(sizing, "FEW_ROWS", 0)
    graph = pt.Graph([NETS[name](pt.variable("x", "float32", ("N", 3, "H", "W")))], name="net")
    model, reference = on_opencl(graph), pt.compile(graph, "reference")
    for batch, high, wide in SIZES:
        grain = 2 if name == "decoder" else 1
        image = numbers(batch, 3, -(-high // grain) * grain, -(-wide // grain) * grain)
        (wanted,) = reference(image)
        np.testing.assert_allclose(model(image)[0], wanted, 1e-5, 1e-5 * float(np.abs(wanted).max()))
    assert specialized(model).sizes == (), "no size was compiled by itself"


def test_few_pixels_are_compiled_by_themselves() -> None:
    """Those of all images count, by the weights that they are multiplied by."""
    graph = pt.Graph([conv(pt.variable("x", "float32", ("N", 3, "H", "W")), 4, 3, 3, 3, pads=[1] * 4)], name="net")
    model, reference = on_opencl(graph), pt.compile(graph, "reference")
    for shape in [(1, 3, 2, 3), (2, 3, 2, 3), (1, 3, 2, 4), (7, 3, 1, 1)]:
        np.testing.assert_allclose(model(numbers(*shape))[0], reference(numbers(*shape))[0], 1e-5, 1e-5)
    assert [shapes[0] for shapes in specialized(model).sizes] == [(1, 3, 2, 3), (7, 3, 1, 1)]


@EXAMPLES
@given(st.sampled_from(["float16", "bfloat16", "float32"]), st.sampled_from([1, 3]), st.data())
def test_on_tensor_cores_by_any_cut(dtype: str, tap: int, data: st.DataObject) -> None:
    """Images of a few pixels and of more than a tile has; the depth by taps and by channels."""
    cut: TensorTile = data.draw(st.sampled_from([tile for tile in STEADY if tile.bytes == numpy_dtype(dtype).itemsize]))
    batch, inner, high, wide = (data.draw(st.sampled_from(few)) for few in ([1, 2], [3, 16, 32], [1, 5, 8], [1, 4, 7]))
    image = pt.variable("x", dtype, ("N", inner, "H", "W"))
    out = pt.op("Conv", image, pt.constant(numbers(9, inner, tap, tap, dtype=dtype)), pads=[tap // 2] * 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: cut)
        inputs = [numbers(batch, inner, high, wide, dtype=dtype, seed=2)]
        agrees(pt.op("Relu", out), "gpu_convolution_on_tensor_cores", {"s0": batch, "s1": high, "s2": wide}, inputs)
        larger = pt.op("ConvTranspose", image, pt.constant(numbers(inner, 3, 4, 2, dtype=dtype)), strides=[2, 2], pads=[1, 0] * 2)
        agrees(larger, "gpu_transposed_on_tensor_cores", {"s0": batch, "s1": high, "s2": wide}, inputs)


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["f16", "f32", "tf32"])
def test_nets_of_images_are_assembled_and_nothing_is_spilled(precision: str, tmp_path: Path) -> None:
    graph = pt.Graph([decoder(conv(pt.variable("x", "float32", ("N", 16, "H", "W")), 3, 16, 3, 3, pads=[1] * 4))], name="net")
    model = pt.compile(graph, "cuda", config={"CACHE_DIR": "", "ARCH": "sm_80", "PRECISION": precision})
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for kernel in model.kernels():
        check_nothing_is_spilled(kernel.assembly, "sm_80", tmp_path)
