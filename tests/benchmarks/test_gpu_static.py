"""What the static judgement says of a model on a GPU that is not there."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from benchmarks.gpu_registers import Taken, read
from benchmarks.gpu_static import HEADER, PEAKS, TAKEN, Judged, Kernel, judge, layers
from partita.accelerators.tvm.code import nvcc
from tests.accelerators.tvm.assembling import needs_nvcc

pytest.importorskip("tvm")


def test_a_launch_is_as_fast_as_the_cores_that_it_fills() -> None:
    full, half = (Judged("Conv", Kernel("gpu_convolution", 1, blocks, 128, 0, False), 10**9) for blocks in (108, 54))
    assert half.is_thin and not full.is_thin
    assert half.time(PEAKS["a100"]) - 2e-6 == pytest.approx(2 * (full.time(PEAKS["a100"]) - 2e-6))


def test_tensor_cores_make_half_as_many_products_in_tf32() -> None:
    wide, product = (Judged("Conv", Kernel("gpu_convolution", 1, 108, 128, 0, tensor), 10**9) for tensor in (False, True))
    f16, tf32 = (product.time(PEAKS["a100"], precision) - 2e-6 for precision in ("f16", "tf32"))
    assert tf32 == pytest.approx(2 * f16) and tf32 == pytest.approx(1e9 / 156e12)
    assert wide.time(PEAKS["a100"], "tf32") == wide.time(PEAKS["a100"], "f16")


@pytest.mark.skipif(nvcc.compiler() is None, reason="no CUDA compiler here")
def test_a_residual_block_is_two_launches() -> None:
    """A convolution with its activation, and one with the residual and the activation behind it."""
    weight = np.ones((64, 64, 3, 3), "float32")
    image = pt.variable("x", "float32", (1, 64, 28, 28))
    inner = pt.op("Relu", pt.op("Conv", image, pt.constant(weight), pads=[1, 1, 1, 1]))
    outer = pt.op("Conv", inner, pt.constant(2 * weight), pads=[1, 1, 1, 1])
    verdict = judge(pt.Graph([pt.op("Relu", pt.op("Sum", outer, image))], name="block"), "sm_80")
    kernels = [judged.kernel for judged in verdict.kernels]
    assert [kernel.schedule for kernel in kernels] == ["gpu_convolution"] * 2
    assert not any(judged.is_thin for judged in verdict.kernels)
    assert sum(judged.flops for judged in verdict.kernels) == 2 * (2 * 9 * 64 * 64 * 784) + 3 * 64 * 784
    image_bytes, weight_bytes = 4 * 64 * 784, weight.nbytes
    assert verdict.least == 2 * image_bytes + 2 * weight_bytes
    assert verdict.moved >= 5 * image_bytes + weight_bytes
    row = verdict.row("block", PEAKS["a100"])
    assert row[:3] == ["block", "2", "0"] and len(row) == len(HEADER)
    assert "gpu_convolution" in layers(verdict, PEAKS["a100"])


@pytest.mark.skipif(nvcc.compiler() is None, reason="no CUDA compiler here")
def test_narrow_products_are_on_tensor_cores() -> None:
    x = pt.variable("x", "float32", (128, 256))
    graph = pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(np.ones((256, 256), "float32"))))], name="layer")
    wide, narrow = (judge(graph, "sm_80", precision) for precision in ("f32", "f16"))
    assert wide.tensor_share == 0 and narrow.tensor_share > 0.99
    values, weight = 4 * 2 * 128 * 256, 256 * 256
    assert (wide.least, narrow.least) == pytest.approx((values + 4 * weight, values + 2 * weight), rel=1e-3)


def test_what_ptxas_says_of_several_kernels() -> None:
    said = """ptxas info    : Compiling entry function 'one' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 18432 bytes smem, 384 bytes cmem[0]
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, 368 bytes cmem[0]
"""
    assert read(said) == Taken(255, 18432, 28)


@needs_nvcc
def test_registers_are_columns_where_they_are_asked_for() -> None:
    graph = pt.Graph([pt.op("Relu", pt.variable("x", "float32", (128, 256)))])
    verdict = judge(graph, "sm_80", registers=True)
    assert verdict.taken is not None and verdict.taken.registers > 0 and verdict.taken.spilled == 0
    assert len(verdict.row("net", PEAKS["a100"])) == len(HEADER) + len(TAKEN)
