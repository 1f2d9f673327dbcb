"""Small buffers of kernels are on the stack, or in registers."""

from __future__ import annotations

import pytest

import partita as pt
from accelerators.tvm.codegen import generate
from accelerators.tvm.machine import host_machine
from accelerators.tvm.templates.script import kernel, local
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")


@pytest.mark.parametrize("threads", [1, 4])
def test_no_kernel_asks_for_memory_in_its_loops(threads: int) -> None:
    x = pt.variable("x", "float32", (256, 1024))
    norm = pt.op("Softmax", pt.op("Mul", x, pt.op("Sigmoid", x)), axis=-1)
    for made in compiled(pt.Graph([norm], inputs=[x]), NUM_THREADS=threads).kernels():
        assert "AllocWorkspace" not in made.assembly


@pytest.mark.parametrize(("count", "size", "asked"), [(4, 8192, 0), (5, 8192, 1), (1, 8193, 1), (40, 1024, 8)])
def test_what_does_not_fit_on_a_small_stack_is_asked_for(count: int, size: int, asked: int) -> None:
    lines = [local(f"held{i}", size) for i in range(count)]
    for i in range(count):
        lines += [f"for i in T.serial({size}):", f"    held{i}[i] = x[i] * T.float32({i + 2})"]
    total = " + ".join(f"held{i}[T.cast(x[0], 'int32') + {i}]" for i in range(count))
    made = kernel([("x", (size,), "float32"), ("y", (1,), "float32")], [*lines, f"y[0] = {total}"])
    text = generate({"k": made}, host_machine(1).target).inspect_source("ll")
    assert sum("call ptr %" in line for line in text.splitlines()) == asked
