"""Col2Im: adds up blocks, stored as columns, to the image that they were cut from.

A row of pixels is written at a time, so no two tasks write one pixel. Each pixel adds its contributions in the order of the
positions in a block, as ONNX's reference does. During the sums the pixels of a row that are a stride apart are contiguous, so
that columns are read and added in whole vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, constant, maximum, minimum
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import FARTHEST, NUMBERS, computed_as, read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, nest
from partita.accelerators.tvm.kernels.window.pool import Sliding
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import TAPS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node

UNROLLED = 8
"""Maximum number of positions along a row of a block that are unrolled."""


def columns_to_image(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a single Col2Im with constant image and block sizes; None for any other body."""
    node, problem = body.ops[0], Problem.of(body)
    if not has_constant_blocks(node):
        return None
    shape, image, windows = shape_of(node.reads[0]), shape_of(node[0]), blocks(node)
    position = problem.position(node.reads[0])
    if windows is None or position is None or len(problem.inputs) != 1 or len(shape) != 3 or 0 in (*shape, *image):
        return None
    channels, counts, sizes = math.prod(image[:2]), [d.out for d in windows], [d.size for d in windows]
    flat = (channels, *sizes, *counts)
    is_far = any(not isinstance(count, Extent) and count >= FARTHEST for count in (math.prod(flat), math.prod(image)))
    if is_far or min(counts) < 1 or math.prod(flat) != math.prod(shape) or shape[2] != math.prod(counts):
        return None
    kernel, (x,), (y,) = problem.kernel("columns_to_image", {0: flat}, [(channels, *image[2:])])
    _Summing(kernel, x, y, windows).write(channels, is_shared_out(math.prod(flat), machine, TAPS))
    return problem.draft(kernel, "columns to image")


def has_constant_blocks(node: Node) -> bool:
    """True for Col2Im of a numeric type with constant image and block sizes."""
    return node.op == "Col2Im" and not node.domain and element_of(node[0]) in NUMBERS and blocks(node) is not None


def blocks(node: Node) -> tuple[Sliding, ...] | None:
    """The blocks of a Col2Im per dimension; None if their sizes are not constant, or invalid."""
    given = [entry.node.value for entry in node.reads[1:3]]
    if len(given) != 2 or given[0] is None or given[1] is None:
        return None
    image, block = given[0].tolist(), given[1].tolist()
    rank = len(image)
    steps, gaps = (list(node.attrs.get(name) or [1] * rank) for name in ("strides", "dilations"))
    pads = list(node.attrs.get("pads") or [0] * 2 * rank)
    if not rank or not rank == len(block) == len(steps) == len(gaps) == len(pads) // 2:
        return None
    if min(*image, *block, *steps, *gaps) < 1 or min(pads) < 0 or sum((*image, *block, *steps, *gaps, *pads)) >= FARTHEST:
        return None
    bare = [Sliding(*sizes) for sizes in zip(image, [0] * rank, block, steps, gaps, pads[:rank], pads[rank:], strict=True)]
    return tuple([attrs.evolve(d, out=(d.before + d.own + d.after - d.span) // d.step + 1) for d in bare])


@attrs.frozen(slots=True, eq=False)
class _Summing:
    """Writes the loops."""

    kernel: Kernel
    x: Buffer
    """The columns: [channel, position in a block..., block...]."""
    y: Buffer
    """The images."""
    windows: tuple[Sliding, ...]

    def write(self, channels: int, is_shared: bool | Value) -> None:
        """Writes the loops: row of pixels after row."""
        kernel, (*outer, last) = self.kernel, self.windows
        element = computed_as(self.y.element)
        phases, apart = min(last.step, last.own), -(-last.own // last.step)
        with nest(kernel, (channels, *[d.own for d in outer]), is_shared) as (channel, *rows):
            sums = kernel.memory("sums", element, (phases, apart))
            with kernel.loop(phases, "phase") as phase, kernel.loop(apart, "i") as i:
                sums[phase, i] = constant(0, element)
            with nest(kernel, [d.size for d in outer], False, "tap") as taps, ExitStack() as inside:
                hit = [self._block(inside, d, row, tap) for d, row, tap in zip(outer, rows, taps, strict=True)]
                with kernel.loop(last.size, "k", "unroll" if last.size <= UNROLLED else "serial") as k:
                    self._add((channel, *taps, k, *hit), k, sums)
            with kernel.loop(last.own, "i") as i:
                write(self.y, (channel, *rows, i), sums[i % last.step, i // last.step])

    def _block(self, inside: ExitStack, d: Sliding, pixel: Operand, tap: Operand) -> Value:
        """The block that has a pixel at this position along a dimension; the code that follows runs only if one exists."""
        distance = as_index(pixel) + d.before - as_index(tap) * d.gap
        inside.enter_context(self.kernel.when(distance >= 0))
        inside.enter_context(self.kernel.when(distance < d.out * d.step))
        if d.step > 1:
            inside.enter_context(self.kernel.when((distance % d.step).equals(0)))
        return distance // d.step

    def _add(self, at: Sequence[Operand], k: Value, sums: Buffer) -> None:
        """Adds the elements of all blocks along a row at one of their positions."""
        kernel, d = self.kernel, self.windows[-1]
        offset = k * d.gap - d.before
        first = kernel.name_value("first", maximum((d.step - 1 - offset) // d.step, 0))
        end = kernel.name_value("end", minimum((d.own - offset + d.step - 1) // d.step, d.out))
        with kernel.loop(maximum(end - first, 0), "block") as block:
            position = offset % d.step, offset // d.step + first + block
            sums[position] = sums[position] + read(self.x, (*at, first + block))
