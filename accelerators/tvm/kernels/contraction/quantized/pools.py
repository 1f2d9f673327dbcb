"""Pools of values with channels last: the maximum of each window, or the mean of quantized elements."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.contraction.quantized.draft import times_scale
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    exactly,
    float32,
    int32,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_channel_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_vector, kept
from partita.accelerators.tvm.kernels.shared.window import Window, window_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import BYTE_TAPS
from partita.graph.node import Node
from partita.graph.types import Array

Chunks = Callable[[int, Callable[[Operand, int], None]], None]
"""A loop over the channels of a pixel, `lanes` neighbours at a time; its body gets the start and size of each group."""

SCALE = 1
"""The index of a Mean's scale among its inputs."""


def largest(body: Body, machine: Machine) -> Draft:
    """The kernel for MaxPool: a window's pixels outside the image are clamped to its border, which the window sees anyway."""
    pool = _BytePool.of(body, body.ops[0], machine)
    kernel, (image,), (result,) = pool.problem.kernel("largest", {0: pool.flat}, [pool.results])

    def write(n: Value, y: Value, x: Value, chunks: Chunks) -> None:
        window = pool.window
        rows = [pool.inside(kernel, y, 0, k) for k in range(window.taps[0])]
        columns = [pool.inside(kernel, x, 1, k) for k in range(window.taps[1])]
        taps = [row * window.sizes[1] + column for row in rows for column in columns]
        pixel = n * window.pixels + y * window.out[1] + x

        def chunk(first: Operand, lanes: int) -> None:
            numbers = [image.vector(lanes, n, at * pool.channels + first) for at in taps]
            while len(numbers) > 1:
                pairs = [maximum(*numbers[i : i + 2]) for i in range(0, len(numbers) - 1, 2)]
                numbers = pairs + numbers[len(pairs) * 2 :]
            result[pixel, first] = numbers[0]

        chunks(machine.lanes * 32 // result.element.bits, chunk)

    pool.each(kernel, machine, write)
    return pool.problem.draft(kernel, "largest of quantized")


def mean(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a mean of quantized elements, with its epilogue. It is the mean of the integers, whose sum is exact, or of
    the floats that they represent."""
    roots = [node for node in body.ops if node.domain == DOMAIN and node.op == "Mean"]
    if len(roots) != 1:
        return None
    root, pool = roots[0], _BytePool.of(body, roots[0], machine)
    scale = root.reads[SCALE].node.value if root.attrs.get("adds_numbers", 0) else None
    after = make_channel_epilogue(body, root, times_scale if scale is None else alone)
    position = pool.problem.position(root.inputs[0])
    if after is None or position is None or position in after.operands:
        return None
    shapes = {**after.operands, position: pool.flat}
    kernel, inputs, outputs = pool.problem.kernel("mean", shapes, [after.results] * len(pool.problem.outputs))
    writer = Writer(after, inputs, outputs)

    def write(n: Value, y: Value, x: Value, chunks: Chunks) -> None:
        spans = [pool.span(kernel, index, d) for d, index in enumerate((y, x))]
        pixel = kernel.name_value("pixel", n * pool.window.pixels + y * pool.window.out[1] + x)

        def chunk(first: Operand, lanes: int) -> None:
            total = _sum_of(kernel, pool, inputs[position], spans, (n, first, lanes), scale)
            _write_mean(kernel, pool, total, spans, lanes, writer, (pixel, first))

        chunks(machine.lanes, chunk)

    pool.each(kernel, machine, write)
    return pool.problem.draft(kernel, "mean of quantized")


def _sum_of(
    kernel: Kernel, pool: _BytePool, image: Buffer, spans: list[tuple[Value, Value]], chunk: tuple[Value, Operand, int],
    scale: Array | None,
) -> Registers:
    """The sums of neighbouring channels in a window: of the integers as stored, or, given a scale, of the floats that they
    represent, each rounded before it is added."""
    (top, down), (left, across) = spans
    n, first, lanes = chunk
    acc = kernel.registers("acc", int32 if scale is None else float32, (1,), lanes)
    acc[0] = 0 if scale is None else 0.0
    with kernel.loop(down, "r") as r, kernel.loop(across, "c") as c:
        at = ((top + r) * pool.window.sizes[1] + left + c) * pool.channels + first
        stored = image.vector(lanes, n, at).cast(int32)
        number = stored if scale is None else exactly((stored - pool.zero).cast(float32) * float(scale.item()))
        acc[0] = acc[0] + number
    return acc


def _write_mean(
    kernel: Kernel, pool: _BytePool, total: Registers, spans: list[tuple[Value, Value]], lanes: int, writer: Writer,
    at: tuple[Value, Operand],
) -> None:
    """Writes the sums, minus the zero points for sums of integers, divided by the number of elements."""
    (_, down), (_, across) = spans
    pixel, first = at
    counted = down * across if pool.counts_inside else down * 0 + pool.window.count
    with kernel.lanes(lanes) as lane:
        summed = total.lane(0, lane)
        centred = summed if total.buffer.element is float32 else (summed - (down * across).cast(int32) * pool.zero).cast(float32)
        writer.store(centred / counted.cast(int32).cast(float32), (pixel, first + lane))


@attrs.frozen(slots=True, eq=False)
class _BytePool:
    """The window of a pool, and the image that it slides over."""

    problem: Problem
    window: Window
    batch: int
    channels: int
    zero: int
    """The zero point of the input of a mean."""
    counts_inside: bool
    """True if a mean counts only pixels of the image, not the padding."""

    @classmethod
    def of(cls, body: Body, node: Node, machine: Machine) -> _BytePool:
        batch, *_, channels = shape_of(node[0])
        inside = not node.attrs.get("count_include_pad", 0)
        return cls(Problem.of(body), window_of(node), batch, channels, int(node.attrs.get("zero", 0)), inside)

    @property
    def flat(self) -> tuple[int, int]:
        """The shape of the input as [image, all else]."""
        return self.batch, self.window.sizes[0] * self.window.sizes[1] * self.channels

    @property
    def results(self) -> tuple[int, int]:
        """The shape of the result as [pixel, channel]."""
        return self.batch * self.window.pixels, self.channels

    def each(self, kernel: Kernel, machine: Machine, write: Callable[[Value, Value, Value, Chunks], None]) -> None:
        """Writes the work for each pixel; threads share the rows, or on a GPU all results."""
        window = self.window
        if machine.is_gpu:
            with kernel.tasks(self.batch * window.pixels * self.channels, "task", True) as task:
                pixel = kernel.name_value("pixel", task // self.channels)
                n = kernel.name_value("n", pixel // window.pixels)
                y = kernel.name_value("y", pixel % window.pixels // window.out[1])
                x = kernel.name_value("x", pixel % window.out[1])
                write(n, y, x, lambda lanes, chunk: chunk(task % self.channels, 1))
            return
        taps = self.batch * window.pixels * window.count * self.channels
        with kernel.tasks(self.batch * window.out[0], "task", machine.threads_for(taps, BYTE_TAPS) > 1) as task:
            n = self.name(kernel, "n", task // window.out[0])
            y = self.name(kernel, "y", task % window.out[0])
            with kernel.loop(window.out[1], "x") as x:
                write(n, y, x, lambda lanes, chunk: each_vector(kernel, self.channels, lanes, chunk))

    def inside(self, kernel: Kernel, index: Value, d: int, tap: int) -> Value:
        """The image's row or column of a tap, clamped to the border."""
        window = self.window
        at = index * window.strides[d] + (tap * window.dilations[d] - window.before[d])
        return self.name(kernel, f"{'yx'[d]}{tap}", minimum(maximum(at, 0), window.sizes[d] - 1))

    def span(self, kernel: Kernel, index: Value, d: int) -> tuple[Value, Value]:
        """The first row or column of the image in a window, and their number."""
        window, name = self.window, "yx"[d]
        first = index * window.strides[d] - window.before[d]
        start = self.name(kernel, f"{name}_first", maximum(first, 0))
        end = minimum(first + window.taps[d], window.sizes[d])
        return start, self.name(kernel, f"{name}_count", end - start)

    def name(self, kernel: Kernel, name: str, count: Operand) -> Value:
        """The named count, computed once even for images of dynamic size."""
        return kept(kernel, name, count, self.window.is_any)
