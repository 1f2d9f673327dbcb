"""Small buffers of kernels are on the stack, or in registers."""

from __future__ import annotations

import pytest

import partita as pt
from partita.accelerators.tvm.code.codegen import generate
from partita.accelerators.tvm.kernels.language import Kernel, constant, emit, float32, int32
from partita.accelerators.tvm.machine.machine import host_machine
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")


@pytest.mark.parametrize("threads", [1, 4])
def test_no_kernel_asks_for_memory_in_its_loops(threads: int) -> None:
    x = pt.variable("x", "float32", (256, 1024))
    norm = pt.op("Softmax", pt.op("Mul", x, pt.op("Sigmoid", x)), axis=-1)
    for item in compiled(pt.Graph([norm], inputs=[x]), NUM_THREADS=threads).kernels():
        assert "AllocWorkspace" not in item.assembly


@pytest.mark.parametrize(("count", "size", "asked"), [(4, 8192, 0), (5, 8192, 1), (1, 8193, 1), (40, 1024, 8)])
def test_what_does_not_fit_on_a_small_stack_is_asked_for(count: int, size: int, asked: int) -> None:
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (size,)), kernel.output("y", float32, (1,))
    held = [kernel.stack(f"held{number}", float32, (size,)) for number in range(count)]
    for number, buffer in enumerate(held):
        with kernel.loop(size, "i") as i:
            buffer[i] = x[i] * float(number + 2)
    y[0] = sum((buffer[x[0].cast(int32).as_index() + number] for number, buffer in enumerate(held)), constant(0.0, float32))
    text = generate({"k": emit(kernel)}, host_machine(1).target).inspect_source("ll")
    assert sum("call ptr %" in line for line in text.splitlines()) == asked
