"""Pools of float32 in the blocked layout: maximum or mean of a window (`sliding.py`), or of all pixels."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    constant,
    float32,
    maximum,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted
from partita.accelerators.tvm.kernels.shared.window import window_of
from partita.accelerators.tvm.kernels.window.sliding import Slide, Spot, slide_over
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import TAPS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node

SUMS = 8
"""Maximum number of independent sums of a mean at a time."""


def blocked_pool(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a pool and its element-wise epilogue; None for any other body."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    root, problem = roots[0], Problem.of(body)
    source, given = problem.position(root.inputs[0]), real_shape(root.inputs[0])
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    if len(roots) != 1 or source is None or after is None or given is None:
        return None
    batch, blocks, pixels, _ = given
    kernel, inputs, outputs = problem.kernel("pool", after.operands, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)
    if root.op == "GlobalAveragePool":
        _mean(kernel, writer, inputs[source], batch, blocks, pixels, machine)
    else:
        slide = _largest(root, writer) if root.op == "MaxPool" else _average(root, writer)
        slide_over(slide, kernel, inputs[source], batch, blocks, machine)
    return problem.draft(kernel, "blocked pool")


def _largest(root: Node, writer: Writer) -> Slide:
    """Maxima. These ignore NaN; the sum of squares is NaN only if an element is, and is then the result."""

    def write(total: Value, spot: Spot, pixel: Value, lane: Value, inside: Operand) -> None:
        writer.store(total, (spot.n, spot.block, pixel, lane))

    return Slide(window_of(root), -math.inf, _larger, write, has_squares=True)


def _larger(total: Value, image: Value, spot: Spot, kh: Value, kw: Operand) -> Value:
    return maximum(total, image)


def _average(root: Node, writer: Writer) -> Slide:
    """Sums, divided by the number of pixels of the window that count."""
    window, padded = window_of(root), bool(root.attrs.get("count_include_pad", 0))

    def write(total: Value, spot: Spot, pixel: Value, lane: Value, inside: Operand) -> None:
        if padded:
            mean = total * (1.0 / window.count)
        else:
            columns = max(inside, 1) if isinstance(inside, int) else maximum(inside, 1)
            mean = total / ((spot.high - spot.low) * columns).cast(float32)
        writer.store(mean, (spot.n, spot.block, pixel, lane))

    return Slide(window, 0.0, lambda total, image, spot, kh, kw: total + image, write)


def _mean(kernel: Kernel, writer: Writer, source: Buffer, batch: int, blocks: int, pixels: int, machine: Machine) -> None:
    """Writes the mean of all pixels, from a few sums that are accumulated in parallel."""
    lanes = machine.lanes
    several = SUMS if isinstance(pixels, Extent) else max(k for k in range(1, SUMS + 1) if k <= pixels)
    full, rest = counted(pixels) // several, counted(pixels) % several
    is_work = machine.threads_for(batch * blocks * pixels * lanes, TAPS) > 1
    with kernel.tasks(batch * blocks, "task", is_work) as task:
        n, block = kernel.name_value("n", task // blocks), kernel.name_value("block", task % blocks)
        acc = kernel.registers("acc", float32, (several,), lanes)
        for i in range(several):
            acc[i] = 0.0

        def add(count: int, first: Operand) -> None:
            for i in range(count):
                acc[i] = acc[i] + read(source, (n, block, first + i, 0), lanes)

        with kernel.loop(full, "i") as group:
            add(several, group * several)
        if isinstance(rest, int):
            add(rest, full * several)
        else:
            with kernel.loop(rest, "left") as left:
                add(1, full * several + left)
        with kernel.lanes(lanes) as lane:
            total = acc.lane(0, lane)
            for i in range(1, several):
                total = total + acc.lane(i, lane)
            share = 1.0 / pixels if isinstance(pixels, int) else constant(1.0, float32) / as_index(pixels).cast(float32)
            writer.store(total * share, (n, block, 0, lane))
