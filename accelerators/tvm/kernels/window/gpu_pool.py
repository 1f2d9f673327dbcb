"""Pools of floats on a GPU: one thread per result, which reduces its window; `plain_pool.py` is the CPU kernel. Two-byte elements
are loaded and stored as they are, and reduced in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, all_of, if_inside
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import FLOATS, computed_as, read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.kernels.shared.reducers import Reducer
from partita.accelerators.tvm.kernels.window.plain_pool import Sliding, counted, reducer_of, slidings
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent


def gpu_pool(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a single MaxPool, AveragePool or LpPool of floats without indices; None for any other body."""
    node = body.ops[0]
    reducer = reducer_of(node)
    if len(body.ops) != 1 or reducer is None or len(node.output_names) != 1 or element_of(node[0]) not in FLOATS:
        return None
    shape, wanted = shape_of(body.graph.inputs[0][0]), shape_of(node[0])
    if len(shape) < 3 or 0 in (*shape, *wanted):
        return None
    windows, problem, channels = slidings(node, shape, wanted), Problem.of(body), math.prod(shape[:2])
    flat = (channels, *shape[2:]), (channels, *wanted[2:])
    kernel, (x,), (y,) = problem.kernel("pool", {0: flat[0]}, [flat[1]])
    pool = _Pool(kernel, x, y, windows, reducer, bool(node.attrs.get("count_include_pad", 0)))
    pool.write(channels, machine.gpu)
    return problem.draft(kernel, "gpu_pool")


@attrs.frozen(slots=True, eq=False)
class _Pool:
    """The window of a pool, and its buffers."""

    kernel: Kernel
    x: Buffer
    y: Buffer
    windows: tuple[Sliding, ...]
    reducer: Reducer
    is_padding_counted: bool
    """True if a mean includes the padding."""

    def write(self, channels: int, gpu: Gpu) -> None:
        """Launches one thread per result."""
        kernel, sizes = self.kernel, [d.out for d in self.windows]
        count = channels * math.prod(sizes)
        is_any = any(isinstance(size, Extent) for size in (count, *(d.own for d in self.windows)))
        with each_item(kernel, count, gpu) as item:
            channel = kept(kernel, "channel", item // math.prod(sizes), is_any)
            at = [kept(kernel, f"at{d}", item // math.prod(sizes[d + 1 :]) % size, is_any) for d, size in enumerate(sizes)]
            self._result(channel, at)

    def _result(self, channel: Value, at: Sequence[Value]) -> None:
        """Reduces a window and writes its result."""
        kernel, element, reducer = self.kernel, computed_as(self.x.element), self.reducer
        firsts = [
            kernel.name_value(f"first{d}", i * window.step - window.before)
            for d, (i, window) in enumerate(zip(at, self.windows, strict=True))
        ]
        total = kernel.stack("total", element, (1,))
        total[0] = reducer.start
        with ExitStack() as loops:
            taps = [loops.enter_context(kernel.loop(d.size, f"tap{i}")) for i, d in enumerate(self.windows)]
            positions = [
                kernel.name_value(f"position{i}", first + tap * d.gap)
                for i, (first, tap, d) in enumerate(zip(firsts, taps, self.windows, strict=True))
            ]
            tests = [
                test for at_now, d in zip(positions, self.windows, strict=True) if not d.is_inside
                for test in (at_now >= 0, at_now < d.own)
            ]
            joined = reducer.joined(total[0], reducer.taken(read(self.x, (channel, *positions))))
            total[0] = if_inside(all_of(tests), joined, total[0]) if tests else joined
        numbers: Operand = as_index(1)
        for window, first in zip(self.windows, firsts, strict=True):
            numbers = counted(window, first, reducer, self.is_padding_counted) * numbers
        write(self.y, (channel, *at), reducer.finished(total[0], as_index(numbers).cast(element)))
