"""Products of two quantized values by tensor cores: run in numpy as they are written, by the tables of the PTX manual, and
assembled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile, tensor_tiles
from partita.accelerators.tvm.kernels.language import Kernel
from partita.accelerators.tvm.machine.gpu import cuda_gpu
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.types import Array
from tests.accelerators.tvm.assembling import check_nothing_is_spilled, needs_nvcc
from tests.accelerators.tvm.kernels.test_quantized_pairs import PAIRS, Pair, pairs
from tests.accelerators.tvm.lockstep import Hazard, run, without_barriers
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")

SMALL = [tile for tile in tensor_tiles(cuda_gpu("sm_80"), 1) if tile.rows * tile.columns <= 64 * 32 and tile.threads <= 128]
EXAMPLES = settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
TENSOR_CORES = "gpu_quantized_pair_on_tensor_cores"


def drafted(graph: pt.Graph, inputs: list[Array], tile: TensorTile | None = None) -> tuple[Kernel, list[Array]]:
    """The graph's only kernel for an A100, and what it reads: the graph's inputs and the weights."""
    fused = accelerator("cuda").fused(graph, gpu_machine("sm_80"))  # type: ignore[attr-defined]
    (call,) = [node for node in fused.nodes if node.is_call]
    body = make_body(call.subgraph)
    with pytest.MonkeyPatch.context() as patch:
        if tile is not None:
            patch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
        draft = draft_kernel(body, gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None and draft.schedule == TENSOR_CORES
    by_name = dict(zip([node.name for node in graph.inputs], inputs, strict=True))
    return draft.kernel, [*(by_name[entry.node.name] for entry in call.reads), *body.weights]


def emulated(graph: pt.Graph, inputs: list[Array], tile: TensorTile | None = None) -> Array:
    """What the graph's only kernel makes of the inputs in numpy, warp by warp."""
    (result,) = run(*drafted(graph, inputs, tile))
    return result


@pytest.mark.parametrize("kind", PAIRS)
def test_a_product_of_two_values_is_exact(kind: str) -> None:
    """The cut that is taken for it; bytes with a sign and without one on both sides."""
    pair = PAIRS[kind]
    np.testing.assert_array_equal(emulated(pair.graph(), pair.inputs), pair.expected().ravel())


@EXAMPLES
@given(pairs(), st.sampled_from(SMALL))
def test_products_of_any_cut_are_exact(pair: Pair, tile: TensorTile) -> None:
    """Zero points of every size, matrices whichever way they lie, slices of the depth, rests."""
    np.testing.assert_array_equal(emulated(pair.graph(), pair.inputs, tile), pair.expected().ravel())


@pytest.mark.parametrize("tile", [None, pytest.param(TensorTile(32, 32, 16, 16, 64, 2, 2, 1), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_largest_sums_are_exact(tile: TensorTile | None) -> None:
    """MatMulInteger of the deepest matrices, with zero points that are far from all their bytes."""
    depth = 33_000
    a, b = np.full((3, depth), -128, "int8"), np.full((depth, 5), 255, "uint8")
    inputs = pt.variable("a", "int8", a.shape), pt.variable("b", "uint8", b.shape)
    node = pt.op("MatMulInteger", *inputs, pt.constant(np.int8(127)), pt.constant(np.uint8(0)))
    result = emulated(pt.apply_pass(pt.Graph([node], list(inputs)), "InferShape"), [a, b], tile)
    np.testing.assert_array_equal(result, np.full(15, -255 * 255 * depth, "int32"))


def test_products_without_barriers_are_seen() -> None:
    pair = Pair((), 40, 80, 40)
    kernel, given = drafted(pair.graph(), pair.inputs, TensorTile(32, 32, 16, 16, 32, 1, 2, 1))
    run(kernel, given)
    with pytest.raises(Hazard):
        run(without_barriers(kernel), given)


@pytest.mark.thinned(6)
@needs_nvcc
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(
    ("dtypes", "form"), [(("uint8", "uint8"), "u8.u8"), (("int8", "uint8"), "s8.u8"), (("int8", "int8"), "s8.s8")]
)
def test_it_is_assembled_and_nothing_is_spilled(turned: bool, dtypes: tuple[str, str], form: str, tmp_path: Path) -> None:
    """The two products of an attention of BERT's."""
    sizes = (128, 64, 128) if turned else (128, 128, 64)
    pair = Pair((1, 12), *sizes, dtypes, (7, 100), turned)
    (kernel,) = compiled(pair.graph(), "cuda", ARCH="sm_80").kernels()
    assert kernel.schedule == TENSOR_CORES and f"mma.sync.aligned.m16n8k32.row.col.s32.{form}.s32" in kernel.assembly
    for arch in ("sm_80", "sm_90", "sm_100"):
        check_nothing_is_spilled(kernel.assembly, arch, tmp_path)


def test_older_gpus_read_bytes_one_by_one() -> None:
    graph = pt.Graph([PAIRS["scores"].graph().outputs[0]])
    (kernel,) = compiled(graph, "cuda", ARCH="sm_75").kernels()
    assert kernel.schedule == "gpu_quantized_pair"
