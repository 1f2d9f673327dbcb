"""Concatenation of values along their channels, which are last."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent

PIXELS = 64
"""Approximate pixels of a task."""


def joined(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a Concat of channels; None for any other body."""
    node = body.ops[0]
    if len(body.ops) != 1 or node.domain != DOMAIN:
        return None
    problem = Problem.of(body)
    *sizes, channels = shape_of(node[0])
    pixels = math.prod(sizes)
    shapes = {i: (pixels, shape_of(entry)[-1]) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (result,) = problem.kernel("joined", shapes, [(pixels, channels)])
    known = math.prod(size for size in sizes if not isinstance(size, Extent))
    each = next(count for count in range(min(PIXELS, known), 0, -1) if known % count == 0)
    lanes = machine.lanes * 32 // result.element.bits
    parallel = machine.threads_for(pixels * channels // 4) > 1
    with kernel.tasks(pixels // each, "task", parallel) as task, kernel.loop(each, "p") as p:
        pixel, first = kernel.name_value("pixel", task * each + p), 0
        for entry in node.reads:
            source = inputs[problem.positions[entry]]
            _copied(kernel, source, result, pixel, first, lanes)
            first += source.sizes[1]
    return problem.draft(kernel, "joined channels")


def _copied(kernel: Kernel, source: Buffer, result: Buffer, pixel: Value, first: int, lanes: int) -> None:
    """Copies the channels of one value at one pixel."""
    whole, rest = divmod(source.sizes[1], lanes)
    with kernel.loop(whole, "v") as v:
        result[pixel, v * lanes + first] = source.vector(lanes, pixel, v * lanes)
    if rest:
        result[pixel, whole * lanes + first] = source.vector(rest, pixel, whole * lanes)
