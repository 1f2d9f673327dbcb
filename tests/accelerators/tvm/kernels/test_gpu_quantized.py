"""Products of quantized values on GPUs: whole numbers exactly, on OpenCL drivers, and by tensor cores as the manual has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile, tensor_tiles, tiles
from partita.accelerators.tvm.machine.gpu import Gpu, cuda_gpu
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.types import Array
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.lockstep import Hazard, run, without_barriers
from tests.accelerators.tvm.quantizing import Layer, dequantized, integers, quantized
from tests.accelerators.tvm.running import compiled, schedules

pytest.importorskip("tvm")

SMALL = [tile for tile in tensor_tiles(cuda_gpu("sm_80"), 1) if tile.rows * tile.columns <= 64 * 32 and tile.threads <= 128]
CUTS = list(tiles(Gpu(64, 256, 32768)))
EXAMPLES = settings(max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
TENSOR_CORES = "gpu_quantized_product_on_tensor_cores"
ROOTS = frozenset("Product Depthwise MaxPool Mean".split())
NO_CACHE: dict[str, Any] = {"CACHE_DIR": ""}


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Odd sizes, strides, dilations, pads around a zero point that is not 0, groups; channels that are copied by 16, 8 and 4
    bytes, read one by one, and as the image is given."""
    few = lambda *options: draw(st.sampled_from(options))  # noqa: E731
    group, inner, tap = few(1, 1, 2), few(3, 4, 5, 8, 16, 32, 40), few(1, 3)
    pad = few(0, 1) if tap > 1 else 0
    return Layer(
        group * inner, group * few(2, 17, 24), (few(5, 7), few(5, 6)), (tap, few(1, tap)), (few(1, 2), few(1, 2)),
        (few(1, 2) if tap > 1 else 1, 1), (pad, pad, few(0, pad), 0), group, few(1, 2), few(0, 9, 200), relu=few(True, False),
        biased=few(True, False),
    )


def kernels_of(graph: pt.Graph, arch: str = "sm_80") -> list[pt.Node]:
    """The calls of kernels that the graph becomes."""
    fused = accelerator("cuda").fused(graph, gpu_machine(arch))  # type: ignore[attr-defined]
    return [node for node in fused.nodes if node.is_call]


def emulated(layer: Layer, tile: TensorTile | None = None, is_bare: bool = False) -> tuple[Array, str]:
    """What the layer's product makes of its image in numpy, warp by warp, and the kernel's name; bare of its barriers."""
    (call,) = [node for node in kernels_of(layer.graph()) if any(inner.op == "Product" for inner in node.subgraph.nodes)]  # type: ignore[union-attr]
    body = make_body(call.subgraph)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        if tile is not None:
            patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        draft = draft_kernel(body, gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None
    image = layer.given()
    given = image if layer.channels <= 4 and layer.group == 1 else np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    held = [given, *body.weights]
    (result,) = run(
        without_barriers(draft.kernel) if is_bare else draft.kernel,
        [draft.packs[i](array) if i in draft.packs else array for i, array in enumerate(held)],
    )
    batch, outs, down, across = layer.expected(image).shape
    return result.reshape(batch, down, across, outs).transpose(0, 3, 1, 2), draft.schedule


@EXAMPLES
@given(layers(), st.data())
def test_convolutions_of_any_cut_on_tensor_cores(layer: Layer, data: st.DataObject) -> None:
    """The very integers, rounded half to even: fragments of m16n8k32, bias, scales of channels, activation and saturation."""
    is_single = layer.channels // layer.group % 4 != 0 or (layer.channels <= 4 and layer.group == 1)
    listed = [tile for tile in SMALL if not is_single or tile.slice_threads % tile.rows == 0]
    result, schedule = emulated(layer, data.draw(st.sampled_from(listed)))
    assert schedule == TENSOR_CORES
    np.testing.assert_array_equal(result, layer.expected(layer.given()))


def test_products_without_barriers_are_seen() -> None:
    layer = Layer(64, 24, (6, 6), (3, 3), pads=(1, 1, 1, 1))
    tile = TensorTile(32, 32, 16, 16, 32, 1, 2, 1)
    emulated(layer, tile)
    with pytest.raises(Hazard):
        emulated(layer, tile, is_bare=True)


@EXAMPLES
@given(layers(), st.sampled_from(CUTS))
@pytest.mark.slow
def test_convolutions_of_any_cut_on_opencl(opencl: None, layer: Layer, tile: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        model = pt.compile(layer.graph(), "opencl", config=NO_CACHE)
        assert "gpu_quantized_product" in schedules(model.units[0].compiled)  # type: ignore[arg-type]
        np.testing.assert_array_equal(model(layer.given())[0], layer.expected(layer.given()))


def block() -> pt.Graph:
    """Two convolutions, a pool and one that sees each channel by itself between integers, and a residual that is added."""
    given = dequantized(pt.variable("x", "uint8", (1, 16, 8, 8)), 0.02, 128)

    def layer(value: pt.Node, seed: int, group: int = 1) -> pt.Node:
        weight = dequantized(integers(seed, (16, 16 // group, 3, 3), "int8"), np.full(16, 0.001 * group, "f"), axis=0)
        return pt.op("Conv", value, weight, pads=[1] * 4, group=group)

    def stored(value: pt.Node) -> pt.Node:
        return dequantized(quantized(value, 0.03, 5), 0.03, 5, dtype="uint8")

    first = stored(pt.op("MaxPool", stored(pt.op("Relu", layer(given, 1))), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]))
    total = stored(pt.op("Relu", pt.op("Add", layer(stored(layer(first, 2, 16)), 3), first)))
    mean = quantized(pt.op("GlobalAveragePool", total), 0.03, 5)
    return pt.apply_pass(pt.Graph([mean], name="block"), "InferShape")


@pytest.mark.parametrize("arch", ["sm_70", "sm_80"])
def test_a_residual_block_is_one_launch_an_op(arch: str) -> None:
    """Only where the model is given its image are channels put side by side."""
    ops = [[inner.op for inner in node.subgraph.nodes if inner.is_op] for node in kernels_of(block(), arch)]  # type: ignore[union-attr]
    named = [next((op for op in names if op in ROOTS), names[0]) for names in ops]
    assert named == ["Transpose", "Product", "MaxPool", "Depthwise", "Product", "Mean"]


def test_a_residual_block_is_what_onnx_says(opencl: None) -> None:
    given = integers(5, (1, 16, 8, 8), "uint8")
    result = pt.compile(block(), "opencl", config=NO_CACHE)(given)[0]
    np.testing.assert_array_equal(result, pt.compile(block(), "reference")(given)[0])


def test_several_kernels_that_round_products_are_one_program(opencl: None) -> None:
    """Each is a source that begins with the function that rounds; OpenCL's driver gets them as one text."""
    images = [pt.variable(name, "uint8", shape) for name, shape in (("x", (3, 5)), ("y", (7, 2)))]
    sums = [pt.op("Add", pt.op("Tanh", dequantized(image, 0.02, 7)), dequantized(image, 0.03, 9)) for image in images]
    graph = pt.Graph([quantized(total, 0.05, 3) for total in sums], name="sums")
    given = [integers(i, shape, "uint8") for i, shape in enumerate([(3, 5), (7, 2)])]
    results = pt.compile(graph, "opencl", config=NO_CACHE)(*given)
    for result, wanted in zip(results, pt.compile(graph, "reference")(*given), strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.thinned(2)
def test_whole_products(opencl: None, dtype: str) -> None:
    """MatMulInteger, QLinearMatMul and Gemm between integers, of bytes with a sign and without one."""
    x, left, right = pt.variable("x", dtype, (5, 44)), integers(1, (5, 44), dtype), integers(2, (44, 18), "int8")
    point, number = pt.constant(np.asarray(3, dtype)), lambda value: pt.constant(np.float32(value))
    whole = pt.op("MatMulInteger", x, pt.constant(right), point)
    linear = pt.op(
        "QLinearMatMul", x, number(0.02), point, pt.constant(right), number(0.01), pt.constant(np.int8(0)), number(0.9),
        pt.constant(np.asarray(7, dtype)),
    )
    gemm = pt.op("Gemm", dequantized(x, 0.02, 3), dequantized(right, 0.01))
    graph = pt.Graph([whole, linear, quantized(gemm, 0.7, 9)], name="products")
    results = pt.compile(graph, "opencl", config=NO_CACHE)(left)
    for result, wanted in zip(results, pt.compile(graph, "reference")(left), strict=True):
        np.testing.assert_array_equal(result, wanted)


@needs_nvcc
@pytest.mark.parametrize("channels", [3, 64])
@pytest.mark.thinned(2)
def test_it_is_assembled_and_nothing_is_spilled(channels: int, tmp_path: Path) -> None:
    """PTX for sm_80 becomes machine code for later GPUs too. Bytes are copied where channels stand together."""
    layer = Layer(channels, 64, (28, 28), (3, 3), pads=(1, 1, 1, 1), relu=True)
    (kernel,) = [kernel for kernel in compiled(layer.graph(), "cuda", ARCH="sm_80").kernels() if kernel.schedule == TENSOR_CORES]
    ptx = kernel.assembly
    assert ptx.count("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32") >= 2
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in ptx and "cp.async.cg.shared.global" in ptx
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(ptx, arch, tmp_path)


@pytest.mark.slow
@needs_nvcc
def test_what_is_dequantized_is_rounded_before_something_is_added() -> None:
    """An instruction that multiplies and adds at once would move ties."""
    kernels = compiled(block(), "cuda", ARCH="sm_80").kernels()
    assert sum("mul.rn.f32" in kernel.assembly for kernel in kernels if kernel.schedule == TENSOR_CORES) == 1
