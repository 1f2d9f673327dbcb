"""Special instructions: the portable code that stands in for one makes the same bits, and products by it are right anywhere."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.code.codegen import generate
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import FMA, MEANINGS, instruction_for, instruction_named
from partita.accelerators.tvm.kernels.contraction.packing import group_into
from partita.accelerators.tvm.kernels.language import Kernel, emit, float32, int32
from partita.accelerators.tvm.kernels.shared.choice import choosing
from partita.accelerators.tvm.machine.instructions import BY_NAME, INSTRUCTIONS, Used, best_instructions
from partita.accelerators.tvm.machine.machine import Machine, host_machine, with_instruction
from partita.accelerators.tvm.machine.processor import host_features
from tests.accelerators.tvm.running import check, schedules
from tests.close import assert_close
from tests.drawn import some

tvm = pytest.importorskip("tvm")
ml_dtypes = pytest.importorskip("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALF_A_STEP = 2**-8 * 1.02

EMULATED = Machine("cpu", "generic", 2, 16, 32, instructions=(Used("vdpbf16ps", is_emulated=True),))
"""A processor that has the instruction, planned for on any that makes it of portable code."""


def sums(add: Any, machine: Machine, total: Any, left: Any, right: Any) -> Any:
    """A vector of sums after an instruction, whose pairs of bfloat16 are int32."""
    kernel, lanes = Kernel("k"), total.shape[-1]
    a, b = kernel.input("a", int32, left.shape), kernel.input("b", int32, right.shape)
    start = kernel.input("start", float32, total.shape)
    y = kernel.output("y", float32, total.shape)
    with kernel.loop(len(left), "row") as row:
        y[row, 0] = add(start.vector(lanes, row, 0), a[row].spread(lanes), b.vector(lanes, row, 0))
    function = generate({"k": emit(kernel)}, machine.target)
    result = np.zeros_like(total)
    tensors = [tvm.runtime.tensor(array) for array in (left, right, total, result)]
    function["k"](*tensors)
    return tensors[3].numpy()


def wild(random: np.random.Generator, *shape: int) -> Any:
    """Numbers of every size, some too small for a normal one."""
    numbers = random.standard_normal(shape) * np.exp2(random.integers(-60, 40, shape))
    return (numbers * np.where(random.random(shape) < 0.05, 2.0**-75, 1)).astype("float32")


PAIRS = [row.name for row in INSTRUCTIONS if row.multiplies == "bfloat16" and row.name in MEANINGS and row.group == 2]
"""The instructions for pairs of bfloat16."""


def test_each_instruction_has_a_meaning() -> None:
    for row in INSTRUCTIONS:
        has_loops = row.has_tiles or row.name in ("plain", "vpermps")
        assert has_loops != (row.name in MEANINGS), row.name
        assert row.multiplies in ("int8", "int4") or has_loops or MEANINGS[row.name].portable is not None, row.name
        assert not row.single or BY_NAME[row.single].multiplies == row.multiplies


@pytest.mark.parametrize("name", PAIRS)
def test_an_instruction_and_its_emulation_make_the_same_bits(name: str) -> None:
    if not BY_NAME[name].is_here(host_features()):
        pytest.skip(f"this processor has no {name}")
    random, machine, lanes = np.random.default_rng(5), host_machine(1), BY_NAME[name].lanes
    left, right = (wild(random, 200, count, 2).astype(BFLOAT16).view(np.int32)[..., 0] for count in (1, lanes))
    given = wild(random, 200, lanes), left[:, 0].copy(), np.ascontiguousarray(right)
    real, emulated = (sums(instruction_named(name, is_emulated).add, machine, *given) for is_emulated in (False, True))
    np.testing.assert_array_equal(real.view(np.uint32), emulated.view(np.uint32))


@pytest.mark.parametrize("name", PAIRS)
def test_products_of_pairs_are_their_sum(name: str) -> None:
    random, lanes = np.random.default_rng(6), BY_NAME[name].lanes
    left, right = (random.standard_normal((50, count, 2)).astype(BFLOAT16) for count in (1, lanes))
    total = random.standard_normal((50, lanes)).astype("float32")
    pairs = left.view(np.int32)[:, 0, 0].copy(), right.view(np.int32)[..., 0].copy()
    result = sums(instruction_named(name, True).add, EMULATED, total, *pairs)
    wanted = total + (left.astype("d") * right.astype("d")).sum(-1)
    assert_close(result, wanted)


@some
@given(st.integers(1, 40), st.integers(2, 70), st.integers(16, 70), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
def test_products_by_pairs(rows: int, depth: int, columns: int, fixed: bool, turned: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, depth)).astype(BFLOAT16)
    array = random.standard_normal((columns, depth) if turned else (depth, columns)).astype(BFLOAT16)
    given, w = pt.variable("x", "bfloat16", x.shape), pt.constant(array) if fixed else pt.variable("w", "bfloat16", array.shape)
    product = pt.op("MatMul", given, pt.op("Transpose", w, perm=[1, 0]) if turned else w)
    graph = pt.Graph([pt.op("Relu", product)], inputs=[given] if fixed else [given, w])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: attrs.evolve(EMULATED, threads=threads))
        result = check(graph, [x] if fixed else [x, array], HALF_A_STEP)
    assert schedules(result) == ["gemm" if fixed else "product"]
    text = str(result.kernels()[0].text)
    assert "4294901760" in text or "-65536" in text, "the odd numbers of the pairs are cut out"


def test_neighbours_along_the_depth_stand_side_by_side_and_zeros_fill_up() -> None:
    columns, panel = np.arange(1, 11).reshape(5, 2), np.full((6, 2), -1)
    group_into(panel, columns, 2)
    assert panel.reshape(-1).tolist() == [1, 3, 2, 4, 5, 7, 6, 8, 9, 0, 10, 0]
    group_into(panel[:5], columns, 1)
    assert panel[:5].tolist() == columns.tolist()


def test_which_instruction_a_processor_takes() -> None:
    zen, rapids = (Machine("cpu", arch, 4, 16, 32, instructions=(Used("vdpbf16ps"),)) for arch in ("znver4", "sapphirerapids"))
    assert instruction_for("bfloat16", zen) is instruction_named("vdpbf16ps")
    assert instruction_for("float16", zen) is FMA and instruction_for("float32", zen) is FMA
    assert instruction_for("bfloat16", rapids) is FMA, "there float32 is twice as fast"
    assert instruction_for("bfloat16", Machine("cpu", "haswell", 4, 8, 16)) is FMA
    with choosing({"instruction": "vdpbf16ps"}) as choices:
        assert instruction_for("bfloat16", rapids) is instruction_named("vdpbf16ps")
    assert choices.offered == {"instruction": ("fma", "vdpbf16ps")}


def test_a_processor_has_at_most_one_instruction_for_an_element_type() -> None:
    features = frozenset().union(*(extensions for row in INSTRUCTIONS for extensions in row.needs))
    assert [str(used) for used in best_instructions(features)] == ["amx-int8", "amx-bf16", "fmlal", "vpermps"]
    assert [str(used) for used in best_instructions(frozenset(("avx2", "avxvnni")))] == ["avx-vnni", "fma"]
    assert [str(used) for used in best_instructions(frozenset())] == ["plain", "fma"]


def test_one_instruction_takes_the_place_of_another_for_the_same_element_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partita.accelerators.tvm.machine.machine.usable_features", lambda: frozenset(("avx2",)))
    machine = Machine("cpu", "znver5", 1, 16, 32, best_instructions(frozenset("avx2 avx512bf16".split())))
    changed = with_instruction(machine, "avx-vnni")
    assert changed.instruction("int8") == Used("avx-vnni", is_emulated=True, is_asked=True), "this processor lacks it"
    assert changed.instruction("bfloat16") == Used("vdpbf16ps") and changed.instruction("float32") is None
    assert with_instruction(machine, "avx2").instruction("int8") == Used("avx2", is_asked=True)
    assert changed.identity()["instructions"] == "vdpbf16ps avx-vnni:emulated"
    assert with_instruction(machine, "") is machine
