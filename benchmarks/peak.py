"""The machine's peak performance, as far as existing programs reach it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import attrs
import numpy as np

from benchmarks.timing import clocked
from partita.accelerators.tvm.code.codegen import generate
from partita.accelerators.tvm.kernels.language import Kernel, emit, float32
from partita.accelerators.tvm.machine.machine import host_machine
from partita.accelerators.tvm.run.runtime import runtime
from partita.accelerators.tvm.run.threads import set_tvm_threads

SUMS = 12
"""Chains of operations that wait for one another."""


@attrs.frozen
class Peak:
    """The peak, measured with a number of threads."""

    gflops: float
    """Billions of floating-point operations a second, in registers."""
    gigabytes: float
    """Billions of bytes a second, read and written, in copying arrays that no cache holds."""


@cache
def peak(threads: int, steps: int = 1_000_000, megabytes: int = 256) -> Peak:
    """Measure it; the best of several tries."""
    return Peak(_arithmetic(threads, steps), _copy(threads, megabytes))


def _arithmetic(threads: int, steps: int) -> float:
    """Multiplications and additions in registers, as many at once as hide their latency; nothing is read."""
    machine = host_machine(threads)
    lanes, size = machine.lanes, SUMS * machine.lanes
    kernel = Kernel("peak")
    given, result = kernel.input("x", float32, (2,)), kernel.output("y", float32, (threads * size,))
    with kernel.loop(threads, "t", "parallel") as t:
        sums = kernel.registers("sums", float32, (SUMS,), lanes)
        for i in range(SUMS):
            sums[i] = 1.0
        with kernel.loop(steps, "i"):
            for i in range(SUMS):
                sums[i] = sums[i] * given[0].spread(lanes) + given[1].spread(lanes)
        for i in range(SUMS):
            result[t * size + i * lanes] = sums[i]
    x, y = np.array([0.5, 0.5], np.float32), np.zeros(threads * size, np.float32)
    arrays = [runtime().from_dlpack(array) for array in (x, y)]
    run = generate({"peak": emit(kernel)}, machine.target)["peak"]
    set_tvm_threads(threads)
    return 2 * threads * size * steps / min(clocked(lambda: run(*arrays))(20)) / 1e9


def _copy(threads: int, megabytes: int) -> float:
    source = np.ones(megabytes * 2**20 // 4, np.float32)
    target = np.empty_like(source)
    pieces = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    with ThreadPoolExecutor(threads) as pool:
        seconds = min(clocked(lambda: list(pool.map(lambda piece: np.copyto(*piece), pieces)))(6))
    return 2 * source.nbytes / seconds / 1e9


def describe(peak: Peak) -> str:
    """The peak in one sentence."""
    return f"The machine's measured peak: {peak.gflops:.0f} GFLOP/s, {peak.gigabytes:.1f} GB/s."
