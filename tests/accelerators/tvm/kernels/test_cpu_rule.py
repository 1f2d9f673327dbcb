"""The rule for kernels of processors that nobody wrote by hand: which loops are split, shared by threads, and vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules.cpu_rule import schedule_cpu

tvm = pytest.importorskip("tvm")
te = tvm.te


@attrs.frozen
class Made:
    """A function of one array that TVM made, and what numpy makes of the array."""

    function: Any
    shape: tuple[int, ...]
    dtype: str
    wanted: Callable[[Any], Any]


def sums(*shape: int, axis: int, dtype: str = "float32") -> Made:
    """Sums along an axis."""
    x, k = te.placeholder(shape, dtype, name="x"), te.reduce_axis((0, shape[axis]), "k")
    kept = (*shape[:axis], *shape[axis + 1 :]) or (1,)
    alone = len(shape) == 1
    y = te.compute(kept, lambda *at: te.sum(x[k] if alone else x[(*at[:axis], k, *at[axis:])], axis=k), name="y")
    return Made(te.create_prim_func([x, y]), shape, dtype, lambda array: array.sum(axis).reshape(kept))


def pairs(*shape: int, axis: int) -> Made:
    """Sums of pairs of neighbours along an axis."""
    x, k = te.placeholder(shape, "float32", name="x"), te.reduce_axis((0, 2), "k")
    kept = tuple(size // 2 if d == axis else size for d, size in enumerate(shape))
    y = te.compute(kept, lambda *at: te.sum(x[(*at[:axis], at[axis] * 2 + k, *at[axis + 1 :])], axis=k), name="y")
    wanted = lambda array: array.reshape(*shape[:axis], -1, 2, *shape[axis + 1 :]).sum(axis + 1)  # noqa: E731
    return Made(te.create_prim_func([x, y]), shape, "float32", wanted)


def each(*shape: int) -> Made:
    x = te.placeholder(shape, "float32", name="x")
    y = te.compute(shape, lambda *at: x[at] * x[at] + 1.0, name="y")
    return Made(te.create_prim_func([x, y]), shape, "float32", lambda array: array * array + 1)


STRIPS = "range(4) vectorized(8) y_init range({0}) range(4) vectorized(8) y_update {1}range(4) vectorized(8) y_local"
CASES = {
    "rows": (sums(64, 65536, axis=1), "parallel(64) range(8192) range(8) y_rf range(64) range(8) y"),
    "few rows": (sums(3, 64, axis=1), "range(3) range(8) range(8) y_rf range(3) range(8) y"),
    "rows of odd sizes": (sums(64, 65533, axis=1), "parallel(64) range(65533) y"),
    "rows of integers": (sums(64, 65536, axis=1, dtype="int32"), "parallel(64) range(65536) y"),
    "short rows": (sums(300000, 8, axis=1), "parallel(300000) range(8) y"),
    "rows of cubes": (sums(8, 9, 65536, axis=2), "parallel(72) range(8192) range(8) y_rf range(72) range(8) y"),
    "columns": (sums(4096, 4096, axis=0), f"parallel(128) {STRIPS.format(4096, '')}"),
    "odd columns": (sums(4096, 1003, axis=0), "parallel(59) range(17) y_init range(4096) range(17) y_update range(17) y_local"),
    "few columns": (sums(65536 * 8, 3, axis=0), "parallel(3) range(65536) range(8) y_rf range(3) range(8) y"),
    "planes": (sums(64, 512, 256, axis=1), f"parallel(512) {STRIPS.format(512, 'range(1) ')}"),
    "all": (sums(1 << 22, axis=0), "parallel(1) range(524288) range(8) y_rf range(1) range(8) y"),
    "steps": (pairs(512, 4096, axis=1), "parallel(512) range(2048) range(2) y"),
    "steps down": (pairs(4096, 512, axis=0), f"parallel(32768) {STRIPS.format(2, 'range(1) ')}"),
    "each": (each(1000, 1024), "parallel(128000) vectorized(8) y"),
    "each of odd sizes": (each(999, 1001), "parallel(999999) y"),
    "each of few": (each(9, 9), "range(81) y"),
}


def loops(function: Any) -> str:
    """The loops and blocks of a kernel, one after another."""
    found = re.findall(r"for .+ in (?:T\.)?(\w+)\((.+)\):|with T\.sblock\(\"(\w+)\"\)", function.script())
    listed = [block or " ".join(f"{kind}({size})" for size in sizes.split(", ")) for kind, sizes, block in found]
    return " ".join(listed[1:]).replace("grid", "range")


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("threads", [1, 4])
def test_the_loops_of_a_kernel_by_rule(kind: str, threads: int) -> None:
    made, wanted = CASES[kind]
    scheduled, rule = schedule_cpu(made.function, Machine("cpu", "haswell", threads, 8, 16, (Used("avx2"), Used("fma"))))
    assert (rule, loops(scheduled)) == ("generic", wanted if threads > 1 else wanted.replace("parallel", "range"))
    x = np.random.default_rng(0).integers(-9, 9, made.shape).astype(made.dtype)
    result = tvm.runtime.empty(made.wanted(x).shape, made.dtype)
    tvm.tirx.build(tvm.IRModule({"main": scheduled}), target="llvm")["main"](tvm.runtime.tensor(x), result)
    assert np.array_equal(result.numpy(), made.wanted(x))
