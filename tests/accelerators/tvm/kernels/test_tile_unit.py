"""AMX: its portable form makes the bits that Intel's manual says, and its machine code holds the instructions themselves."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code.building import build
from partita.accelerators.tvm.kernels.contraction.amx import unit_for
from partita.accelerators.tvm.layouts.blocking import block
from partita.accelerators.tvm.layouts.narrowing import narrow
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine, host_machine
from partita.accelerators.tvm.machine.processor import host_features, usable_features
from partita.accelerators.tvm.query.support import takes
from partita.accelerators.tvm.sizes.sizing import sized
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")
ml_dtypes = pytest.importorskip("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
RAPIDS = Machine("cpu", "sapphirerapids", 1, 16, 32, (Used("amx-bf16"),))
"""A processor that has the unit."""

SMALLEST = np.float32(2.0**-126)


def flushed(x: Any) -> Any:
    return np.where(np.abs(x) < SMALLEST, np.float32(0), x)


def product_as_the_manual_has_it(x: Any, w: Any, depth: int) -> Any:
    """Sums of a tile, `depth` numbers at a step: even and odd products apart, then together, then to the sums."""
    a, b = (flushed(array.astype(np.float32)) for array in (x, w))
    sums = np.zeros((len(x), w.shape[1]), np.float32)
    for first in range(0, x.shape[1], depth):
        parts = np.zeros((2, *sums.shape), np.float32)
        for k in range(first, first + depth, 2):
            for u in range(2):
                parts[u] = flushed(parts[u] + flushed(a[:, k + u, None] * b[None, k + u]))
        sums = flushed(sums + flushed(parts[0] + parts[1]))
    return sums


def wild(random: np.random.Generator, *shape: int) -> Any:
    """Numbers of every size, some too small for a normal one, none whose product is."""
    numbers = random.standard_normal(shape) * np.exp2(random.integers(-30, 30, shape))
    return np.where(random.random(shape) < 0.05, numbers * 2.0**-110, numbers).astype(BFLOAT16)


def product(rows: int, columns: int, depth: int) -> tuple[pt.Graph, Any, Any]:
    random = np.random.default_rng(rows + columns)
    x, w = wild(random, rows, depth), wild(random, depth, columns)
    node = pt.op("Cast", pt.op("MatMul", pt.variable("x", "bfloat16", x.shape), pt.constant(w)), to=1)
    return pt.Graph([node]), x, w


@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 64, 64), (16, 16, 32), (37, 52, 96), (64, 48, 80)])
def test_the_portable_form_makes_the_bits_of_the_manual(rows: int, columns: int, depth: int) -> None:
    graph, x, w = product(rows, columns, depth)
    (result,) = compiled(graph, BFLOATS="amx-bf16", NUM_THREADS=1).run([x])
    unit = unit_for("bfloat16", rows, columns, depth, RAPIDS)
    assert unit is not None and unit.high == (1 if rows <= 16 else 2)
    np.testing.assert_array_equal(result, product_as_the_manual_has_it(x, w, unit.depth))


def test_the_unit_makes_the_bits_of_its_portable_form() -> None:
    if "amx-bf16" not in usable_features():
        pytest.skip("this processor has no AMX, or the system refuses it")
    graph, x, _ = product(37, 52, 96)
    (real,) = compiled(graph, BFLOATS="amx-bf16").run([x])
    emulated = attrs.evolve(host_machine(1), instructions=(Used("amx-bf16", is_emulated=True),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: emulated)
        (portable,) = compiled(graph).run([x])
    np.testing.assert_array_equal(real.view(np.uint32), portable.view(np.uint32))


@pytest.mark.parametrize("depth", [33, 74, 7])
def test_what_does_not_fit_its_rows_goes_another_way(depth: int) -> None:
    assert unit_for("bfloat16", 40, 64, depth, RAPIDS) is None
    assert unit_for("bfloat16", 40, 8, 64, RAPIDS) is None and unit_for("float16", 40, 64, 64, RAPIDS) is None
    graph, x, w = product(20, 64, depth)
    (result,) = compiled(graph, BFLOATS="amx-bf16").run([x])
    np.testing.assert_allclose(result, x.astype("d") @ w.astype("d"), rtol=1e-4, atol=1e-4 * np.abs(result).max())


def assembly(body: pt.Graph) -> str:
    return str(build(make_body(body), RAPIDS).library.inspect_source("asm"))


@pytest.mark.skipif(host_features().isdisjoint({"sse2", "avx2"}), reason="LLVM's x86 is what is looked at")
def test_machine_code_holds_the_instructions() -> None:
    text = assembly(pt.apply_pass(product(64, 64, 128)[0], "InferShape"))
    assert text.count("tdpbf16ps") >= 4 and text.count("ldtilecfg") == text.count("tilerelease") == 1
    x, w = pt.variable("x", "float32", (1, 64, 14, 14)), pt.constant(np.ones((64, 64, 3, 3), "float32"))
    graph = pt.apply_pass(pt.Graph([pt.op("Conv", x, w, kernel_shape=[3, 3], pads=[1] * 4)]), "InferShape")
    laid_out = block(graph, RAPIDS)
    blocked = narrow(laid_out, "bfloat16", takes(laid_out, RAPIDS)).graph
    convolution = next(node for node in blocked.nodes if node.op == "Conv")
    inputs = [pt.variable("image", type=convolution.inputs[0].type)]  # type: ignore[union-attr]
    alone = convolution.evolve(inputs=(inputs[0][0], *convolution.inputs[1:]))
    text = assembly(pt.Graph([alone], inputs=inputs))
    assert text.count("tdpbf16ps") >= 4 and text.count("ldtilecfg") == text.count("tilerelease") == 1


@pytest.mark.skipif(host_features().isdisjoint({"sse2", "avx2"}), reason="LLVM's x86 is what is looked at")
def test_machine_code_for_any_number_of_rows_holds_them_for_each_height() -> None:
    x, w = pt.variable("x", "bfloat16", ("N", 64)), pt.constant(np.ones((64, 48), BFLOAT16))
    graph = pt.apply_pass(pt.Graph([pt.op("Cast", pt.op("MatMul", x, w), to=1)]), "InferShape")
    text = assembly(sized(graph).graph)
    assert text.count("ldtilecfg") == 6, "heights of 1, 2, 4, 8, 16 and 32 rows"
    assert text.count("tdpbf16ps") >= 6 and "tilerelease" in text
