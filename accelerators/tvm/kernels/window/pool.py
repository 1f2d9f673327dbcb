"""Windows of plain tensors of any rank: pools (the maximum, mean or norm of a window), and Col2Im, which adds up blocks, stored
as columns, to the image that they were cut from.

A window is a box. So the rows that a row of results covers are reduced first, column by column, which fills the vectors; then
each result reduces the columns of its window. Nothing outside of the input is read.

Of Col2Im a row of pixels is written at a time, so no two tasks write one pixel. Each pixel adds its contributions in the order
of the positions in a block, as ONNX's reference does. During the sums the pixels of a row that are a stride apart are
contiguous, so that columns are read and added in whole vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    all_of,
    constant,
    if_inside,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import FARTHEST, FLOATS, INTEGERS, NUMBERS, computed_as, read, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, is_shared_out, kept, nest
from partita.accelerators.tvm.kernels.shared.reducers import LARGEST, MEAN, ROOT_OF_SQUARES, SUM_OF_MAGNITUDES, Reducer
from partita.accelerators.tvm.kernels.shared.window import placement
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import TAPS
from partita.accelerators.tvm.sizes.extent import Extent, known_least
from partita.graph.node import Node

NORMS = {1: SUM_OF_MAGNITUDES, 2: ROOT_OF_SQUARES}
"""The reducers of LpPool by `p`."""


@attrs.frozen(slots=True)
class Sliding:
    """The positions of windows along one dimension."""

    own: int
    """The size of the input."""
    out: int
    """The number of windows."""
    size: int
    """The size of the window."""
    step: int
    """The stride."""
    gap: int
    """The dilation."""
    before: int
    """The padding before the input."""
    after: int
    """The declared padding after the input."""

    @property
    def span(self) -> int:
        """Number of positions that one window spans."""
        return (self.size - 1) * self.gap + 1

    @property
    def reach(self) -> int:
        """Number of positions that all windows together span."""
        return (self.out - 1) * self.step + self.span

    @property
    def columns(self) -> int:
        """Room for the positions of all windows and of the input: an upper bound for dynamic sizes."""
        reach, whole = self.reach, self.before + self.own
        if known_least(reach - whole) >= 0:
            return reach
        return whole if known_least(whole - reach) >= 0 else whole + self.after + (self.step - 1)

    @property
    def is_inside(self) -> bool:
        """True if every window lies inside the input."""
        return self.before == 0 and known_least(self.own - self.reach) >= 0


def slidings(node: Node, shape: Sequence[int], wanted: Sequence[int]) -> tuple[Sliding, ...]:
    """The windows of a pool per dimension, with automatic padding resolved."""
    taps = tuple(node.attrs.get("kernel_shape") or (1,) * (len(shape) - 2))
    strides, dilations, before, after = placement(node, shape[2:], taps)
    rows = zip(shape[2:], wanted[2:], taps, strides, dilations, before, after, strict=True)
    return tuple([Sliding(*row) for row in rows])


def plain_pool(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a single MaxPool, AveragePool or LpPool; None for any other body."""
    pool = _PlainPool.of(body, "plain_pool")
    if pool is None:
        return None
    taps = sum(d.size for d in pool.windows) * math.prod(shape_of(body.ops[0][0]))
    pool.write_rows(is_shared_out(taps, machine, TAPS))
    return pool.problem.draft(pool.kernel, "plain pool")


def gpu_pool(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a single MaxPool, AveragePool or LpPool of floats: one thread of a GPU per result, which reduces its
    window. Two-byte elements are loaded and stored as they are, and reduced in float32."""
    pool = _PlainPool.of(body, "pool")
    if pool is None or pool.x.element.name not in FLOATS:
        return None
    pool.write_items(machine.gpu)
    return pool.problem.draft(pool.kernel, "gpu_pool")


def reducer_of(node: Node) -> Reducer | None:
    """The reduction of a pool op; None for other ops, and for powers other than 1 and 2."""
    if node.op == "LpPool":
        return NORMS.get(node.attrs.get("p", 2))
    return {"MaxPool": LARGEST, "AveragePool": MEAN}.get(str(node.op))


@attrs.frozen(slots=True, eq=False)
class _PlainPool:
    """Writes the kernel of a pool."""

    problem: Problem
    kernel: Kernel
    x: Buffer
    y: Buffer
    channels: int
    """Channels of all images."""
    windows: tuple[Sliding, ...]
    reducer: Reducer
    is_padding_counted: bool
    """True if a mean includes the padding."""

    @classmethod
    def of(cls, body: Body, name: str) -> _PlainPool | None:
        """The pool of a body's only op; None for any other op, a pool with indices, or an element type without a kernel."""
        node = body.ops[0]
        reducer = reducer_of(node)
        if reducer is None or len(node.output_names) != 1:
            return None
        shape, wanted = shape_of(body.graph.inputs[0][0]), shape_of(node[0])
        is_taken = element_of(node[0]) in (FLOATS | INTEGERS if reducer is LARGEST else FLOATS)
        if len(shape) < 3 or 0 in (*shape, *wanted) or not is_taken:
            return None
        problem, channels = Problem.of(body), math.prod(shape[:2])
        kernel, (x,), (y,) = problem.kernel(name, {0: (channels, *shape[2:])}, [(channels, *wanted[2:])])
        is_padding_counted = bool(node.attrs.get("count_include_pad", 0))
        return cls(problem, kernel, x, y, channels, slidings(node, shape, wanted), reducer, is_padding_counted)

    @property
    def element(self) -> Element:
        """The element type of the computation."""
        return computed_as(self.x.element)

    def write_rows(self, is_shared: bool | Value) -> None:
        """Writes the loops for a processor: row of results after row."""
        kernel, (*outer, last) = self.kernel, self.windows
        with nest(kernel, (self.channels, *[d.out for d in outer]), is_shared) as (channel, *rows):
            firsts = [self._first(d, row) for d, row in zip(outer, rows, strict=True)]
            columns = kernel.memory("columns", self.element, (last.columns,))
            with kernel.loop(last.columns, "column") as column:
                columns[column] = constant(self.reducer.start_of(self.element), self.element)
            with nest(kernel, [d.size for d in outer], False, "tap") as taps:
                at = [first + tap * d.gap for first, tap, d in zip(firsts, taps, outer, strict=True)]
                with self._inside(at, outer), kernel.loop(last.own, "column") as column:
                    number = self.reducer.taken(read(self.x, (channel, *at, column)))
                    joined = self.reducer.joined(columns[column + last.before], number)
                    columns[column + last.before] = joined
            along = [self._counted(d, first) for d, first in zip(outer, firsts, strict=True)]
            with kernel.loop(last.out, "i") as i:
                self._result((channel, *rows, i), columns, along)

    def _first(self, d: Sliding, window: Operand) -> Value:
        """The first position of a window, negative in the padding before the input."""
        return as_index(window) * d.step - d.before

    def _inside(self, at: Sequence[Value], outer: Sequence[Sliding]) -> ExitStack:
        """A block that runs only for positions inside the input."""
        blocks = ExitStack()
        for position, d in zip(at, outer, strict=True):
            if not d.is_inside:
                blocks.enter_context(self.kernel.when(position >= 0))
                blocks.enter_context(self.kernel.when(position < d.own))
        return blocks

    def _result(self, position: tuple[Operand, ...], columns: Buffer, along: list[Value]) -> None:
        """Reduces the columns of a window to its result."""
        last, i = self.windows[-1], position[-1]
        total = self.kernel.stack("total", self.element, (1,))
        total[0] = columns[i * last.step]
        with self.kernel.loop(last.size - 1, "k") as k:
            total[0] = self.reducer.joined(total[0], columns[i * last.step + (k + 1) * last.gap])
        count = reduce(lambda a, b: a * b, [self._counted(last, self._first(last, i)), *along])
        write(self.y, position, self.reducer.finished(total[0], count.cast(self.element)))

    def write_items(self, gpu: Gpu) -> None:
        """Launches one thread of a GPU per result."""
        kernel, sizes = self.kernel, [d.out for d in self.windows]
        count = self.channels * math.prod(sizes)
        is_any = any(isinstance(size, Extent) for size in (count, *(d.own for d in self.windows)))
        with each_item(kernel, count, gpu) as item:
            channel = kept(kernel, "channel", item // math.prod(sizes), is_any)
            at = [kept(kernel, f"at{d}", item // math.prod(sizes[d + 1 :]) % size, is_any) for d, size in enumerate(sizes)]
            self._item(channel, at)

    def _item(self, channel: Value, at: Sequence[Value]) -> None:
        """Reduces a window and writes its result."""
        kernel, element, reducer = self.kernel, self.element, self.reducer
        firsts = [
            kernel.name_value(f"first{d}", self._first(window, i))
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
            numbers = self._counted(window, first) * numbers
        write(self.y, (channel, *at), reducer.finished(total[0], as_index(numbers).cast(element)))

    def _counted(self, d: Sliding, first: Value) -> Value:
        """Number of positions that count along a dimension of a window that begins at `first`."""
        is_whole = self.is_padding_counted and known_least(d.before + d.own + d.after - d.reach) >= 0
        if self.reducer is not MEAN or d.is_inside or is_whole:
            return as_index(d.size)
        low, high = (-d.before, d.own + d.after) if self.is_padding_counted else (0, d.own)
        skipped = maximum(low - first + d.gap - 1, 0) // d.gap
        behind = maximum(minimum((high - first + d.gap - 1) // d.gap, d.size), skipped)
        return maximum(behind - skipped, 1)


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
    steps, gaps, before, after = placement(node, image, block)
    if not rank or not rank == len(block) == len(steps) == len(gaps) == len(before) == len(after):
        return None
    around = *before, *after
    if min(*image, *block, *steps, *gaps) < 1 or min(around) < 0 or sum((*image, *block, *steps, *gaps, *around)) >= FARTHEST:
        return None
    bare = [Sliding(*sizes) for sizes in zip(image, [0] * rank, block, steps, gaps, before, after, strict=True)]
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
