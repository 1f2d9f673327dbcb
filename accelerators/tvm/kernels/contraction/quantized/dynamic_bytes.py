"""DynamicQuantizeLinear: floats as bytes whose scale and zero point are computed from the floats themselves.

On a GPU the first of two launches writes the minimum and the maximum of each of a few parts. In the second one every thread
combines those of all parts, which is little work, and rounds its own elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    float32,
    int32,
    maximum,
    minimum,
    nearest,
    select,
)
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted
from partita.accelerators.tvm.kernels.shared.row import SUMS, Row, join_lanes
from partita.accelerators.tvm.machine.machine import Machine

LARGEST = 255
"""The largest byte."""


def dynamic_bytes(body: Body, machine: Machine) -> Draft | None:
    """The kernel for the op alone; None for any other body."""
    dynamic = Dynamic.of(body)
    if dynamic is None:
        return None
    kernel, row = dynamic.kernel, Row(dynamic.count, machine.lanes)
    low, high = (kernel.name_value(how, _extreme(kernel, dynamic.x, row, how)) for how in ("min", "max"))
    scale, point = dynamic.scaled(low, high)
    dynamic.tell(scale, point)
    if 0 in dynamic.results:

        def step(column: Value, lanes: int) -> None:
            dynamic.round(column, lanes, scale, point)

        row.each(kernel, step)  # type: ignore[arg-type]
    return dynamic.problem.draft(kernel, "dynamic bytes")


@attrs.frozen(slots=True, eq=False)
class Dynamic:
    """The parts of a kernel for the op."""

    problem: Problem
    kernel: Kernel
    count: int
    """Number of elements."""
    x: Buffer
    results: Mapping[int, Buffer]
    """The bytes, their scale and their zero point, by output number, as far as they are used."""

    @classmethod
    def of(cls, body: Body) -> Dynamic | None:
        """The kernel for the op; None if its input is a constant, empty, or not float32."""
        problem = Problem.of(body)
        if len(problem.inputs) != 1:
            return None
        count = math.prod(shape_of(problem.inputs[0]))
        if not count or element_of(problem.inputs[0]) != "float32":
            return None
        sizes = [(count,) if entry.index == 0 else (1,) for entry in problem.outputs]
        kernel, (x,), outputs = problem.kernel("dynamic_bytes", {0: (count,)}, sizes)
        return cls(problem, kernel, count, x, {e.index: buffer for e, buffer in zip(problem.outputs, outputs, strict=True)})

    def scaled(self, low: Value, high: Value) -> tuple[Value, Value]:
        """The scale and the zero point, as floats, from the minimum and maximum of the elements and zero."""
        name = self.kernel.name_value
        span = name("span", high - low)
        scale = name("scale", select(span.equals(0.0), 1.0, span) / float(LARGEST))
        return scale, name("point", nearest(minimum(maximum(0.0 - low / scale, 0.0), float(LARGEST))))

    def tell(self, scale: Value, point: Value) -> None:
        """Writes the scale and the zero point."""
        for number, value in ((1, scale), (2, point.cast(int32))):
            if number in self.results:
                self.results[number][0] = value.cast(self.results[number].element)

    def round(self, first: Value, lanes: int, scale: Value, point: Value) -> None:
        """Quantizes a vector: elements over the scale, rounded to nearest, plus the zero point."""
        bounds = [(bound - point).spread(lanes) for bound in (0.0, float(LARGEST))]
        scaled = self.x.vector(lanes, first) / scale.spread(lanes)
        whole = nearest(minimum(maximum(scaled, bounds[0]), bounds[1])).cast(int32)
        self.results[0][first] = (whole + point.cast(int32).spread(lanes)).cast(self.results[0].element)


def _extreme(kernel: Kernel, x: Buffer, row: Row, how: str) -> Value:
    """The minimum or maximum of the elements and zero; NaN is ignored, as in onnxruntime."""
    join = minimum if how == "min" else maximum
    lanes, step = row.lanes, row.lanes * SUMS
    best = kernel.registers(f"{how}s", float32, (SUMS,), lanes)
    for i in range(SUMS):
        best[i] = 0.0
    count = counted(row.size)
    with kernel.loop(count // step, "v") as v:
        for i in range(SUMS):
            best[i] = join(x.vector(lanes, v * step + i * lanes), best[i])
    for i in range(1, SUMS):
        best[0] = join(best[0], best[i])
    result = kernel.stack(f"{how}_of_all", float32, (1,))
    result[0] = join_lanes(how, best.buffer, lanes)
    rest = count % step
    with kernel.loop(rest, "e") as e:
        result[0] = join(x[count - rest + e], result[0])
    return result[0]


THREADS = 256
"""Threads of a block, if the GPU allows as many: a power of two."""

EACH = 8
"""Elements of a thread in the second launch, and at least in the first."""

PARTS = 64
"""Maximum number of blocks of the first launch."""

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
