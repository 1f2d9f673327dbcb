"""Sums of products of bytes in the processor's tiles: the instructions that are emitted, and who may use them."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code.building import build
from partita.accelerators.tvm.kernels.catalogue import fuse_kernels
from partita.accelerators.tvm.kernels.contraction.amx import unit_for_bytes
from partita.accelerators.tvm.layouts.quantized.quantize import quantize
from partita.accelerators.tvm.machine import processor
from partita.accelerators.tvm.machine.instructions import BY_NAME, Used, best_instructions
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.prepare.quantized_weights import hold_weights
from tests.accelerators.tvm.quantizing import Layer
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")

LAYERS = {
    "pixels side by side": Layer(64, 48, (7, 9)),
    "a window": Layer(12, 40, (9, 8), (3, 3), pads=(1, 1, 1, 1)),
}
TILES = frozenset("amx-tile amx-int8 avx512f avx512bw avx512vnni avx512vl avx2".split())


@pytest.mark.parametrize("kind", LAYERS)
def test_the_processors_own_instructions_are_emitted(kind: str) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("names an x86 processor")
    machine = Machine("cpu", "sapphirerapids", 1, 16, 32, (Used("amx-int8"),))
    fused = fuse_kernels(quantize(hold_weights(LAYERS[kind].graph()), machine))
    call = next(node for node in fused.nodes if node.is_call and "Product" in str(node.subgraph))
    assert call.subgraph is not None
    text = build(make_body(call.subgraph), machine).library.inspect_source("asm")
    counts = {name: text.count(name) for name in ("ldtilecfg", "tileloadd", "tdpbusd", "tilestored", "tilerelease")}
    assert counts["ldtilecfg"] == counts["tilerelease"] == 1
    assert all(counts.values())


@pytest.mark.parametrize("kind", LAYERS)
def test_several_tasks_have_tiles_of_their_own(kind: str) -> None:
    layer = LAYERS[kind]
    x = layer.given()
    (result,) = compiled(layer.graph(), INTEGERS="amx-int8", NUM_THREADS=2).run([x], [None])
    assert np.array_equal(result, layer.expected(x))


@pytest.mark.parametrize(("pixels", "reach"), [(1, 4), (2, 8), (3, 64), (17, 768), (31, 80), (33, 148), (200, 12)])
def test_tiles_fit_the_pixels_and_steps_fit_the_depth(pixels: int, reach: int) -> None:
    unit = unit_for_bytes(pixels, reach, 2, False)
    assert unit.rows * unit.high <= pixels and 1 <= unit.rows <= 16
    assert reach % unit.depth == 0 and unit.depth <= 64 and unit.depth % 4 == 0


def test_tiles_are_the_first_choice_of_a_processor_that_has_them() -> None:
    assert best_instructions(TILES)[0] == Used("amx-int8")
    assert best_instructions(TILES - {"amx-int8"})[0] == Used("avx512-vnni")


@pytest.mark.parametrize("permitted", [True, False])
def test_tiles_are_used_if_the_system_permits_it(permitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "host_features", lambda: TILES)
    monkeypatch.setattr(processor, "_is_permitted", lambda: permitted)
    features = processor.usable_features.__wrapped__()
    assert BY_NAME["amx-int8"].is_here(features) == permitted
    assert BY_NAME["avx512-vnni"].is_here(features)
