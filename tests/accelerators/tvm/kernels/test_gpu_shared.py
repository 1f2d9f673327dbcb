"""Shared memory of kernels for GPUs: the bytes by which a cut is chosen are those that its kernel declares."""

from __future__ import annotations

import re

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.attention import gpu
from partita.accelerators.tvm.kernels.attention.gpu import HeadCut, cuts
from partita.accelerators.tvm.kernels.attention.gpu_tensor import TensorCut
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.kernels.contraction import gpu_tiles
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import BlockTile, tiles
from partita.accelerators.tvm.machine.gpu import Gpu, cuda_gpu
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.graph.types import numpy_dtype

pytest.importorskip("tvm")

SHARED = re.compile(r"^ *\w+: ([a-z]+)(\d+)\[([\d, ]+)\] shared$", re.MULTILINE)


def declared(result: pt.Node) -> int:
    """The bytes of all shared buffers of the kernel for a result."""
    draft = draft_kernel(make_body(pt.apply_pass(pt.Graph([result]), "InferShape")), gpu_machine("sm_80"))
    assert draft is not None and draft.kernel is not None
    buffers = SHARED.findall(str(draft.kernel))
    return sum(int(bits) // 8 * int(np.prod([int(size) for size in sizes.split(",")])) for _, bits, sizes in buffers)


def attention(dtype: str, depth: int, columns: int) -> pt.Node:
    query, key, value = (pt.variable(name, dtype, (2, 32, width)) for name, width in (("q", depth), ("k", depth), ("v", columns)))
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1]))
    return pt.op("MatMul", pt.op("Softmax", scores), value)


@pytest.mark.parametrize("cut", [HeadCut(64, 4, 32), HeadCut(16, 2, 8), HeadCut(4, 1, 16)], ids=str)
@pytest.mark.parametrize(("depth", "columns"), [(16, 32), (24, 17)])
def test_a_cut_of_an_attention(monkeypatch: pytest.MonkeyPatch, cut: HeadCut, depth: int, columns: int) -> None:
    monkeypatch.setattr(gpu, "cuts", lambda *sizes: iter([cut]))
    assert declared(attention("float32", depth, columns)) == cut.shared(depth, columns)


@pytest.mark.parametrize("cut", [TensorCut(1, 16), TensorCut(4, 64)], ids=str)
@pytest.mark.parametrize(("depth", "columns"), [(16, 32), (24, 17)])
def test_a_cut_of_an_attention_on_tensor_cores(monkeypatch: pytest.MonkeyPatch, cut: TensorCut, depth: int, columns: int) -> None:
    monkeypatch.setattr(gpu, "tensor_cuts", lambda *sizes: iter([cut]))
    """Either operand may lie in its smaller orientation."""
    assert 0 < declared(attention("float16", depth, columns)) <= cut.shared(depth, columns)


@pytest.mark.parametrize("tile", [BlockTile(64, 32, 4, 4, 8, 1), BlockTile(16, 16, 1, 2, 16, 4)], ids=str)
def test_a_tile_of_a_product(monkeypatch: pytest.MonkeyPatch, tile: BlockTile) -> None:
    monkeypatch.setattr(gpu_tiles, "choose", lambda name, candidates, cost: tile)
    x, weight = pt.variable("x", "float32", (40, 70)), pt.constant(np.ones((70, 48), numpy_dtype("float32")))
    assert declared(pt.op("MatMul", x, weight)) == tile.shared


@pytest.mark.parametrize("shared", [8 << 10, 16 << 10, 48 << 10])
def test_all_cuts_fit_the_gpu(shared: int) -> None:
    small = Gpu(16, 128, shared)
    for tile in tiles(small):
        assert tile.shared <= shared and 32 <= tile.threads <= 128
    for depth, columns in ((16, 32), (64, 64), (128, 17)):
        for cut in cuts(small, 12, 128, depth, columns):
            assert cut.shared(depth, columns) <= shared and cut.threads <= 128


def test_an_attention_is_cut_for_the_cores_that_there_are() -> None:
    """Large tiles if they fill the GPU; otherwise the cuts with the most blocks first."""
    large = [(cut.rows, cut.keys) for cut in cuts(cuda_gpu("sm_80"), 96, 1024, 64, 64)]
    assert large[0] == max(large)
    few = [-(-24 // cut.rows) for cut in cuts(cuda_gpu("sm_80"), 1, 24, 64, 64)]
    assert few == sorted(few, reverse=True) and few[0] == 6
