"""Products, convolutions and attention of our own on GPUs: every cut computes what the reference does, on any OpenCL driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.attention import gpu
from partita.accelerators.tvm.kernels.attention.gpu import HeadCut, cuts
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.convolution import gpu_conv
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import BlockTile, Work, ranking, tiles
from partita.accelerators.tvm.machine.gpu import Gpu, cuda_gpu
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.running import compiled
from tests.close import assert_close

pytest.importorskip("tvm")

SMALL = Gpu(64, 256, 32768)
CUTS = list(tiles(SMALL))
STEADY = [tile for tile in CUTS if tile.slice_threads % tile.columns == 0]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32") / 4


def matches(result: Any, schedule: str, *inputs: np.ndarray) -> None:
    graph = pt.Graph([result], name="net")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    (kernel,) = model.units[0].compiled.kernels()  # type: ignore[attr-defined]
    assert kernel.schedule == schedule
    assert_close(model(*inputs)[0], pt.compile(graph, "reference")(*inputs)[0], rtol=1e-4)


EXAMPLES = settings(
    max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@EXAMPLES
@given(st.sampled_from(STEADY), st.data())
@pytest.mark.slow
def test_convolutions_of_any_cut(opencl: None, tile: BlockTile, data: st.DataObject) -> None:
    """Odd sizes, strides, pads, groups, one to three dimensions; the depth by taps and by channels."""
    draw, rank = data.draw, data.draw(st.integers(1, 3))
    groups, inner, outs, batch = (draw(st.sampled_from(few)) for few in ([1, 2], [1, 3, 8, 16], [2, 3, 17], [1, 2]))
    sizes, taps = ([draw(st.integers(*bounds)) for _ in range(rank)] for bounds in ((3, 6), (1, 3)))
    strides, pads = [draw(st.integers(1, 2)) for _ in range(rank)], [draw(st.integers(0, 1)) for _ in range(2 * rank)]
    pads = pads if any(tap > 1 for tap in taps) else [0] * 2 * rank
    image = pt.variable("x", "float32", (batch, groups * inner, *sizes))
    weight, bias = pt.constant(numbers(groups * outs, inner, *taps)), pt.constant(numbers(groups * outs, seed=1))
    out = pt.op("Relu", pt.op("Conv", image, weight, bias, strides=strides, pads=pads, group=groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_conv, "best_tile", lambda image, machine, size: tile)
        matches(out, "gpu_convolution", numbers(batch, groups * inner, *sizes, seed=2))


def test_pixels_beside_the_image_are_not_read(opencl: None) -> None:
    """The optimizer of a simulator read them."""
    image = pt.variable("x", "float32", (2, 8, 5, 6))
    weight, bias = pt.constant(numbers(17, 8, 2, 1)), pt.constant(numbers(17, seed=1))
    out = pt.op("Relu", pt.op("Conv", image, weight, bias, strides=[2, 1], pads=[0, 1, 1, 1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_conv, "best_tile", lambda image, machine, size: BlockTile(32, 32, 4, 4, 8, 4))
        matches(out, "gpu_convolution", numbers(2, 8, 5, 6, seed=2))


@EXAMPLES
@given(
    st.sampled_from(CUTS), st.integers(1, 35), st.integers(2, 70), st.integers(2, 40),
    st.sampled_from(["Gelu", "Exp", "Softplus"]),
)
def test_products_of_any_cut(opencl: None, tile: BlockTile, rows: int, depth: int, columns: int, after: str) -> None:
    x = pt.variable("x", "float32", (rows, depth))
    out = pt.op(after, pt.op("Add", pt.op("MatMul", x, pt.constant(numbers(depth, columns))), pt.constant(numbers(columns))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        matches(out, "gpu_gemm", numbers(rows, depth, seed=2))


def test_a_residual_block_is_one_launch_a_convolution(opencl: None) -> None:
    image = pt.variable("x", "float32", (1, 8, 4, 4))
    product = pt.op("Conv", image, pt.constant(numbers(8, 8, 1, 1)))
    matches(pt.op("Relu", pt.op("Sum", product, image)), "gpu_convolution", numbers(1, 8, 4, 4))


MASKS = {"none": None, "causal": "float32", "keys": "bool", "all keys": "bool"}


@EXAMPLES
@given(
    st.sampled_from([HeadCut(64, 4, 32), HeadCut(32, 2, 16), HeadCut(16, 1, 32), HeadCut(16, 2, 8), HeadCut(8, 1, 16)]),
    st.integers(1, 33), st.integers(16, 40), st.sampled_from([8, 12, 17]), st.sampled_from([16, 17, 32]),
    st.sampled_from([*MASKS]),
)
@pytest.mark.slow
def test_attention_of_any_cut(opencl: None, cut: HeadCut, rows: int, keys: int, depth: int, columns: int, masked: str) -> None:
    """Odd lengths; masked keys, rows with no key at all, which torch makes zeros of, and rows that see what came before."""
    arrays = [numbers(2, rows, 2, depth), numbers(2, 2, keys, depth, seed=1), numbers(2, 2, keys, columns, seed=2)]
    query, key, value = (pt.variable(name, "float32", array.shape) for name, array in zip("qkv", arrays))
    across = pt.op("Transpose", query, perm=[0, 2, 1, 3]), pt.op("Transpose", key, perm=[0, 1, 3, 2])
    scores = pt.op("Mul", pt.op("MatMul", *across), pt.constant(np.float32(0.5)))
    if masked == "causal":
        arrays.append(np.where(np.arange(keys) > np.arange(rows)[:, None], -np.inf, 0).astype("float32")[None, None])
        scores = pt.op("Add", scores, pt.variable("m", "float32", arrays[-1].shape))
    elif MASKS[masked] == "bool":
        arrays.append(np.broadcast_to(np.arange(keys) >= (keys if masked == "all keys" else keys - 3), (1, 1, 1, keys)).copy())
        scores = pt.op("Where", pt.variable("m", "bool", arrays[-1].shape), scores, pt.constant(np.float32(-np.inf)))
    weights = pt.op("Softmax", scores, axis=-1)
    if masked == "all keys":
        weights = pt.op("Where", pt.op("IsNaN", weights), pt.constant(np.float32(0)), weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "cuts", lambda *sizes: iter([cut]))
        matches(pt.op("MatMul", weights, value), "gpu_attention", *arrays)


def test_attention_fills_the_gpu() -> None:
    """BERT's layer, and one whose heads are too deep for large blocks."""
    gpu = cuda_gpu("sm_80")
    for sizes in ((12, 128, 64, 64), (16, 128, 128, 128)):
        first = next(cuts(gpu, *sizes))
        assert sizes[0] * -(-sizes[1] // first.rows) >= gpu.cores and first.shared(*sizes[2:]) <= gpu.shared
    assert next(cuts(gpu, 1, 8, 4096, 64), None) is None


def test_constants_of_more_than_seven_digits(opencl: None) -> None:
    """OpenCL C of TVM's had 12583040."""
    graph = pt.Graph([pt.op("Add", pt.variable("x", "float32", (2,)), pt.constant(np.float32(12583039)))])
    result = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})(np.zeros(2, "float32"))[0]
    np.testing.assert_array_equal(result, np.float32(12583039))


def test_all_stages_of_a_kernel_are_bound_to_threads(opencl: None) -> None:
    """dlight's rule for transposes scheduled one of two stages, and left the other to the host."""
    data, positions = pt.variable("x", "float32", (1, 128)), pt.variable("i", "int64", (1, 1, 1, 128, 2))
    graph = pt.Graph([pt.op("GatherND", data, positions)], name="net")
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    at = np.stack([np.zeros(128), np.arange(128)[::-1]], -1).astype("int64").reshape(1, 1, 1, 128, 2)
    np.testing.assert_array_equal(model(numbers(1, 128), at)[0].ravel(), numbers(1, 128)[0, ::-1])


@pytest.mark.parametrize(
    "work", [Work(512, 49, 4608), Work(256, 196, 1024), Work(64, 3136, 576), Work(2048, 49, 512), Work(1, 1000, 2048)], ids=str
)
def test_products_with_few_outputs_fill_the_gpu(work: Work) -> None:
    """Those of ResNet-50; dlight's tiles leave up to nine tenths of the cores idle."""
    gpu = cuda_gpu("sm_80")
    cuts = list(tiles(gpu))
    tile = min(cuts, key=ranking(cuts, [work], gpu))
    assert work.blocks(tile.rows, tile.columns) >= 100 and tile.threads >= gpu.warp and tile.shared <= gpu.shared


@needs_nvcc
def test_nothing_is_spilled(tmp_path: Path) -> None:
    """PTX for sm_80 becomes machine code for later GPUs too."""
    image = pt.variable("x", "float32", (1, 64, 28, 28))
    net = pt.Graph([pt.op("Relu", pt.op("Conv", image, pt.constant(numbers(128, 64, 3, 3)), pads=[1, 1, 1, 1]))])
    (kernel,) = compiled(net, "cuda", ARCH="sm_80").kernels()
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(kernel.assembly, arch, tmp_path)
