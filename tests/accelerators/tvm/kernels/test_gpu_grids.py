"""How kernels are launched on a GPU: CUDA has no more than 65,535 blocks along y and along z."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.code.launches import Launch, split_launches
from partita.accelerators.tvm.lower.lowering import lower
from partita.accelerators.tvm.machine.library import tvm
from partita.accelerators.tvm.machine.machine import gpu_machine
from partita.accelerators.tvm.schedules import gpu_rule

pytest.importorskip("tvm")

MANY = 70_000
"""More than CUDA has along y or z."""


def launches(out: pt.Node) -> list[Launch]:
    """All launches of a body for an NVIDIA GPU."""
    machine = gpu_machine("sm_80")
    body = make_body(pt.apply_pass(pt.Graph([out], opsets={"": 22}), "InferShape"))
    kernels = lower(body, machine).kernels()
    module = tvm().IRModule({name: kernel.with_attr("global_symbol", name) for name, kernel in kernels.items()})
    _, plans = split_launches(module, machine.target)
    return [launch for plan in plans.values() for launch in plan.launches]


def attention(dtype: str) -> pt.Node:
    query, key, value = (pt.variable(name, dtype, (MANY, 16, 16)) for name in "qkv")
    weights = pt.op("Softmax", pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1])), axis=-1)
    return pt.op("MatMul", weights, value)


def values(dtype: str) -> pt.Node:
    return pt.op("MatMul", pt.variable("x", dtype, (MANY, 16, 16)), pt.variable("y", dtype, (MANY, 16, 16)))


def rows() -> pt.Node:
    return pt.op("MatMul", pt.variable("x", "float32", (128 * MANY, 8)), pt.constant(np.ones((8, 8), "float32")))


def groups() -> pt.Node:
    image = pt.variable("x", "float32", (1, MANY, 3, 3))
    return pt.op("Conv", image, pt.constant(np.ones((2 * MANY, 1, 1, 1), "float32")), group=MANY)


def turned() -> pt.Node:
    return pt.op("Transpose", pt.variable("x", "float32", (8, 8 * MANY)), perm=[1, 0])


CASES = {
    "attention": attention("float32"), "attention of halves": attention("float16"), "products": values("float32"),
    "products of halves": values("float16"), "rows": rows(), "groups": groups(), "a matrix that is turned": turned(),
}


@pytest.mark.parametrize("case", CASES)
def test_cuda_can_launch_them(case: str) -> None:
    listed = launches(CASES[case])
    assert listed and max(max(launch.groups[1:]) for launch in listed) <= gpu_rule.MOST_BLOCKS


def test_what_tvm_writes_for_too_many_blocks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sort of longer rows has five blocks for each along y."""
    monkeypatch.setattr(gpu_rule, "MOST_BLOCKS", 4)
    with pytest.raises(CompileError, match="more than 4 blocks along one dimension"):
        launches(pt.op("TopK", pt.variable("x", "float32", (2, 640)), pt.constant(np.array([3])), axis=-1))
