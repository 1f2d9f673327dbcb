"""DynamicQuantizeLinear on a GPU, in two launches: floats as bytes whose scale and zero point are computed from the floats.

The first launch writes the minimum and the maximum of each of a few parts. In the second one every thread combines those of all
parts, which is little work, and rounds its own elements."""

from __future__ import annotations

from collections.abc import Callable

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    float32,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.quantized.dynamic_bytes import Dynamic
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.machine.machine import Machine

THREADS = 256
"""Threads of a block, if the GPU allows as many: a power of two."""

EACH = 8
"""Elements of a thread in the second launch, and at least in the first."""

PARTS = 64
"""Most blocks of the first launch."""

JOINS = minimum, maximum
"""The reductions: minimum and maximum."""


def gpu_dynamic_bytes(body: Body, machine: Machine) -> Draft | None:
    """The kernel for the op alone; None for any other body."""
    dynamic = Dynamic.of(body)
    if dynamic is None:
        return None
    threads, kernel = THREADS, dynamic.kernel
    while threads > machine.gpu.threads:
        threads //= 2
    blocks = parts_of(dynamic.count, threads * EACH)
    parts = min(blocks, PARTS) if isinstance(blocks, int) else PARTS
    extremes = kernel.memory("extremes", float32, (len(JOINS), parts))
    with kernel.launch((parts, 1, 1), threads) as (block, _, _, thread):
        _find(kernel, dynamic, extremes, block, thread, threads)
    with kernel.launch((blocks, 1, 1), threads) as (block, _, _, thread):
        low, high = (_joined(kernel, extremes, i, parts) for i in range(len(JOINS)))
        scale, point = dynamic.scaled(low, high)
        with kernel.when((block * threads + thread).equals(0)):
            dynamic.tell(scale, point)
        if 0 in dynamic.results:
            first = kernel.name_value("first", block * (threads * EACH) + thread)
            _each(kernel, dynamic.count, first, threads, EACH, lambda at: dynamic.round(at, 1, scale, point))
    return dynamic.problem.draft(kernel, "gpu_dynamic_bytes")


def _find(kernel: Kernel, dynamic: Dynamic, extremes: Buffer, block: Value, thread: Value, threads: int) -> None:
    """Writes the minimum and maximum of a block's part and zero; NaN is ignored, as in onnxruntime."""
    apart = threads * extremes.sizes[1]
    best = kernel.stack("best", float32, (len(JOINS),))
    for i in range(len(JOINS)):
        best[i] = 0.0

    def look(at: Value) -> None:
        number = kernel.name_value("number", dynamic.x[at])
        for i, join in enumerate(JOINS):
            best[i] = join(number, best[i])

    first = kernel.name_value("first", block * threads + thread)
    _each(kernel, dynamic.count, first, apart, parts_of(dynamic.count, apart), look)
    shared = kernel.shared("shared", float32, (len(JOINS), threads))
    half = threads
    while half > 1:
        with kernel.when(thread < half):
            for i in range(len(JOINS)):
                shared[i, thread] = best[i]
        kernel.barrier()
        half //= 2
        with kernel.when(thread < half):
            for i, join in enumerate(JOINS):
                best[i] = join(shared[i, thread + half], best[i])
    with kernel.when(thread.equals(0)):
        for i in range(len(JOINS)):
            extremes[i, block] = best[i]


def _each(kernel: Kernel, count: int, first: Value, apart: int, most: Operand, work: Callable[[Value], None]) -> None:
    """The work for up to `most` elements at a distance of `apart`, as far as there are any."""
    with kernel.loop(most, "i") as i:
        at = kernel.name_value("at", first + i * apart)
        with kernel.when(at < count):
            work(at)


def _joined(kernel: Kernel, extremes: Buffer, which: int, parts: int) -> Value:
    """The minimum or maximum of all parts."""
    best = kernel.stack(f"best{which}", float32, (1,))
    best[0] = 0.0
    with kernel.loop(parts, "part") as part:
        best[0] = JOINS[which](extremes[which, part], best[0])
    return best[0]
