"""Small buffers of kernels are on the stack, or in registers."""

from __future__ import annotations

import pytest

import partita as pt
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")


@pytest.mark.parametrize("threads", [1, 4])
def test_no_kernel_asks_for_memory_in_its_loops(threads: int) -> None:
    x = pt.variable("x", "float32", (256, 1024))
    norm = pt.op("Softmax", pt.op("Mul", x, pt.op("Sigmoid", x)), axis=-1)
    for kernel in compiled(pt.Graph([norm], inputs=[x]), NUM_THREADS=threads).kernels():
        assert "AllocWorkspace" not in kernel.assembly
