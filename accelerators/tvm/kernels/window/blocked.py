"""A small window that slides over each channel separately: depthwise convolution and pools, on blocked values.

A vector is a block of channels, so no pixel depends on another channel. Each row of the result is computed in three parts: the
columns that see padding on the left, those that see none, in tiles, and those that see padding on the right. For a static width,
taps outside the image are omitted from the code; for a dynamic width, columns that see padding are computed one at a time. Rows
outside the image are excluded from the loop over the window's rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    constant,
    float32,
    maximum,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_epilogue, plus_bias
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, kept, smaller
from partita.accelerators.tvm.kernels.shared.window import Window, window_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import TAPS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node
from partita.graph.types import Array

LONG = 16
"""Cost of a long epilogue, in taps."""


@attrs.frozen(slots=True)
class WindowSpot:
    """The position of a window."""

    n: Value
    """The image."""
    block: Value
    """The block of channels."""
    low: Value
    """The first row of the window inside the image."""
    high: Value
    """The end of the window's rows inside the image."""


@attrs.frozen(slots=True)
class Slide:
    """The work of a window at each position."""

    window: Window
    """The geometry of the window."""
    start: float
    """The initial value of the sums."""
    tap: Callable[[Value, Value, WindowSpot, Value, Operand], Value]
    """The sum after a tap, from the sum, the image's vector, the window's position, and the tap's row and column."""
    write: Callable[[Value, WindowSpot, Value, Value, Operand], None]
    """Writes one lane of a sum: takes the sum, the position of the window, the pixel of the result, the lane, and the number of
    taps across inside the image; 0 if that is not tracked."""
    is_long: bool = False
    """True if writing takes many instructions: it is then emitted once, in a loop, and taps inside are not tracked."""
    has_squares: bool = False
    """True if a sum of squares is kept with each sum, and replaces it if it is NaN."""


def slide_over(slide: Slide, kernel: Kernel, source: Buffer, batch: int, blocks: int, machine: Machine) -> None:
    """Writes the whole kernel: tasks over images, bands of rows, and ranges of blocks."""
    window = slide.window
    taps = window.count + (LONG if slide.is_long else 0)
    threads = machine.threads_for(batch * blocks * machine.lanes * window.pixels * taps, TAPS)
    bands, across = _shares(kernel, window.out[0], blocks, threads)
    count = bands * across
    with kernel.tasks(batch * count, "task", threads > 1) as task:
        name = partial(kept, kernel, is_kept=window.is_any)
        n, band, piece = name("n", task // count), name("band", task // across % bands), name("range", task % across)
        left, right = piece * blocks // across, (piece + 1) * blocks // across
        with kernel.loop(right - left, "b_") as b:
            block = name("block", left + b)
            first, end = band * window.out[0] // bands, (band + 1) * window.out[0] // bands
            with kernel.loop(end - first, "r_") as r:
                row = name("row", first + r)
                _ResultRow(slide, kernel, source, machine, n, block, row).write()


def _shares(kernel: Kernel, rows: int, blocks: int, threads: int) -> tuple[Operand, Operand]:
    """Number of bands of rows, and number of ranges of blocks."""
    if not isinstance(rows, Extent):
        bands = min(threads, rows) if rows >= 2 * threads else 1
        return bands, min(blocks, math.ceil(threads / bands)) if bands < threads else 1
    if threads == 1:
        return 1, 1
    has_bands = as_index(rows) >= 2 * threads
    bands = kept(kernel, "bands", select(has_bands, as_index(threads), 1))
    return bands, kept(kernel, "ranges", select(has_bands, as_index(1), min(blocks, threads)))


class _ResultRow:
    """One row of the result."""

    def __init__(
        self, slide: Slide, kernel: Kernel, source: Buffer, machine: Machine, n: Value, block: Value, row: Value
    ) -> None:
        window = slide.window
        self.slide = slide
        self.kernel = kernel
        self.source = source
        self.machine = machine
        self.row = row
        self.name = partial(kept, kernel, is_kept=window.is_any)
        """Names a value that is computed once."""
        self.down = self.name("down", row * window.strides[0] - window.before[0])
        dilation = window.dilations[0]
        low = self.name("low", maximum(0, (dilation - 1 - self.down) // dilation))
        high = minimum(window.taps[0], (window.sizes[0] + dilation - 1 - self.down) // dilation)
        self.spot = WindowSpot(n, block, low, self.name("high", high))

    def write(self) -> None:
        """Writes the columns that see padding on the left, those that see none, in tiles, and those with padding on the right."""
        window, most = self.slide.window, self.machine.registers // (4 if self.slide.has_squares else 2)
        if isinstance(window.out[1], Extent):
            self._write_any(window.out[1], most)
            return
        low, high, wide = window.low(1), window.high(1), window.out[1]
        for start in range(0, low, most):
            self._tile(range(start, min(start + most, low)), None)
        if high > low:
            self._inner(low, high, most)
        for start in range(high, wide, most):
            self._tile(range(start, min(start + most, wide)), None)

    def _write_any(self, wide: int, most: int) -> None:
        """The same for a dynamic width."""
        window, kernel = self.slide.window, self.kernel
        low, high = self._unpadded(wide)
        if not isinstance(low, int) or low > 0:
            with kernel.loop(low, "left") as column:
                self._column(column)
        with kernel.when(high - low >= most), kernel.loop((high - low + (most - 1)) // most, "tile") as tile:
            self._tile(range(most), minimum(low + tile * most, high - most))
        with kernel.otherwise(), kernel.loop(high - low, "inner") as inner:
            self._column(low + inner)
        if window.before[1] or not window.is_inside:
            with kernel.loop(as_index(wide) - high, "right") as column:
                self._column(high + column)

    def _unpadded(self, wide: int) -> tuple[Operand, Value]:
        """The first column that sees no padding on the left, and the first one from there on that sees padding on the right."""
        window = self.slide.window
        first = parts_of(window.before[1], window.strides[1])
        low = 0 if isinstance(first, int) and first == 0 else self.name("unpadded", smaller(first, wide))
        last = (as_index(window.sizes[1]) + (window.before[1] - window.span[1])) // window.strides[1] + 1
        return low, self.name("padded", maximum(minimum(last, as_index(wide)), low))

    def _column(self, column: Value) -> None:
        """Writes one column of the row, from the taps of the window that lie inside the image."""
        window, slide, kernel, lanes, spot = self.slide.window, self.slide, self.kernel, self.machine.lanes, self.spot
        across = kept(kernel, "across", column * window.strides[1] - window.before[1])
        gap = window.dilations[1]
        low = kept(kernel, "first_tap", maximum((gap - 1 - across) // gap, 0))
        high = kept(kernel, "end_tap", maximum(minimum((window.sizes[1] + (gap - 1) - across) // gap, window.taps[1]), low))
        acc = kernel.registers("sum", float32, (2 if slide.has_squares else 1,), lanes)
        acc[0] = constant(slide.start, float32, lanes)
        if slide.has_squares:
            acc[1] = 0.0
        with kernel.loop(spot.high - spot.low, "kh_") as k, kernel.loop(high - low, "kw_") as tap:
            kh, kw = self.name("kh", spot.low + k), self.name("kw", low + tap)
            line = self.name("line", (self.down + kh * window.dilations[0]) * window.sizes[1])
            image = read(self.source, (spot.n, spot.block, line + (across + kw * gap), 0), lanes)
            acc[0] = slide.tap(acc[0], image, spot, kh, kw)
            if slide.has_squares:
                acc[1] = acc[1] + image * image
        if slide.has_squares:
            acc[0] = select(acc[1] <= math.inf, acc[0], acc[1])
        with kernel.lanes(lanes) as lane:
            slide.write(acc.lane(0, lane), spot, self.row * window.out[1] + column, lane, high - low)

    def _inner(self, low: int, high: int, most: int) -> None:
        width = high - low
        pixels = min(
            range(1, most + 1), key=lambda p: (math.ceil(width / p) * (max(p, 4) + 1), p) if p <= width else (math.inf, p)
        )
        with self.kernel.loop(math.ceil(width / pixels), "tile") as tile:
            column = low + tile * pixels
            self._tile(range(pixels), minimum(column, high - pixels) if width % pixels else column)

    def _tile(self, columns: range, first: Operand | None) -> None:
        """Writes some columns of the row; `first` is the first of them if they see no padding, else None."""
        kernel, lanes = self.kernel, self.machine.lanes
        name = "acc" if first is not None else f"acc{columns[0]}"
        acc = kernel.registers(name, float32, (len(columns),), lanes)
        column = None if first is None else self.name("column", first)
        for i in range(len(columns)):
            acc[i] = constant(self.slide.start, float32, lanes)
        squares = kernel.registers(f"{name}_squares", float32, (len(columns),), lanes) if self.slide.has_squares else None
        if squares is not None:
            for i in range(len(columns)):
                squares[i] = 0.0
        inside = self._taps(acc, squares, columns, column)
        if squares is not None:
            for i in range(len(columns)):
                acc[i] = select(squares[i] <= math.inf, acc[i], squares[i])
        base = self.row * self.slide.window.out[1]
        base = base if column is None else base + column
        if self.slide.is_long:
            self._write_long(name, acc, columns, base)
            return
        with kernel.lanes(lanes) as lane:
            for i, offset in enumerate(columns):
                self.slide.write(acc.lane(i, lane), self.spot, base + offset, lane, inside[i])

    def _taps(self, acc: Registers, squares: Registers | None, columns: range, first: Value | None) -> list[int]:
        """Adds each tap to the sums that it belongs to; returns, per sum, the number of taps across inside the image."""
        window, kernel, lanes, spot = self.slide.window, self.kernel, self.machine.lanes, self.spot
        step, dilation, before = window.strides[1], window.dilations[1], window.before[1]
        taps = [
            (i, kw, column * step + kw * dilation - before) for kw in range(window.taps[1]) for i, column in enumerate(columns)
        ]
        taps = [(i, kw, at) for i, kw, at in taps if first is not None or 0 <= at < window.sizes[1]]
        if taps:
            with kernel.loop(spot.high - spot.low, "kh_") as k:
                kh = kernel.name_value("kh", spot.low + k)
                line = self.name("line", (self.down + kh * window.dilations[0]) * window.sizes[1])
                for i, kw, at in taps:
                    position = line + at if first is None else line + (first * step + at)
                    image = read(self.source, (spot.n, spot.block, position, 0), lanes)
                    acc[i] = self.slide.tap(acc[i], image, spot, kh, kw)
                    if squares is not None:
                        squares[i] = squares[i] + image * image
        return [sum(i == own for own, _, _ in taps) for i in range(len(columns))]

    def _write_long(self, name: str, acc: Registers, columns: range, base: Value) -> None:
        kernel, lanes = self.kernel, self.machine.lanes
        held = kernel.registers(f"{name}_held", float32, (len(columns),), lanes)
        for i in range(len(columns)):
            held[i] = acc[i]
        with kernel.loop(len(columns), "i") as each, kernel.lanes(lanes) as lane:
            self.slide.write(held.lane(each, lane), self.spot, base + columns[0] + each, lane, 0)


MEAN_SUMS = 8
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
        _mean_of_all(kernel, writer, inputs[source], batch, blocks, pixels, machine)
    else:
        slide = _largest(root, writer) if root.op == "MaxPool" else _average(root, writer)
        slide_over(slide, kernel, inputs[source], batch, blocks, machine)
    return problem.draft(kernel, "blocked pool")


def _largest(root: Node, writer: Writer) -> Slide:
    """Maxima. These ignore NaN; the sum of squares is NaN only if an element is, and is then the result."""

    def write(total: Value, spot: WindowSpot, pixel: Value, lane: Value, inside: Operand) -> None:
        writer.store(total, (spot.n, spot.block, pixel, lane))

    return Slide(window_of(root), -math.inf, _larger, write, has_squares=True)


def _larger(total: Value, image: Value, spot: WindowSpot, kh: Value, kw: Operand) -> Value:
    return maximum(total, image)


def _average(root: Node, writer: Writer) -> Slide:
    """Sums, divided by the number of pixels of the window that count."""
    window, padded = window_of(root), bool(root.attrs.get("count_include_pad", 0))

    def write(total: Value, spot: WindowSpot, pixel: Value, lane: Value, inside: Operand) -> None:
        if padded:
            mean = total * (1.0 / window.count)
        else:
            columns = max(inside, 1) if isinstance(inside, int) else maximum(inside, 1)
            mean = total / ((spot.high - spot.low) * columns).cast(float32)
        writer.store(mean, (spot.n, spot.block, pixel, lane))

    return Slide(window, 0.0, lambda total, image, spot, kh, kw: total + image, write)


def _mean_of_all(kernel: Kernel, writer: Writer, source: Buffer, batch: int, blocks: int, pixels: int, machine: Machine) -> None:
    """Writes the mean of all pixels, from a few sums that are accumulated in parallel."""
    lanes = machine.lanes
    several = MEAN_SUMS if isinstance(pixels, Extent) else max(k for k in range(1, MEAN_SUMS + 1) if k <= pixels)
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


def depthwise(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with one filter per channel; None for any other body."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    root, lanes, problem = roots[0], machine.lanes, Problem.of(body)
    source, weight = (problem.position(entry) for entry in root.inputs[:2])
    given = real_shape(root.inputs[0])
    if len(roots) != 1 or source is None or weight is None or given is None:
        return None
    batch, blocks, _, _ = given
    window = window_of(root)
    beside = {2: (1, blocks, 1, lanes)} if len(root.inputs) > 2 else {}
    after = make_epilogue(body, root, plus_bias, [(i, i + 1) for i in range(4)], beside)
    if after is None or weight in after.operands:
        return None

    def filled(array: Array) -> Array:
        """[block, tap, lane]; the last block is padded with zeros."""
        whole = np.zeros((blocks * lanes, math.prod(array.shape[1:])), array.dtype)
        whole[: array.shape[0]] = array.reshape(array.shape[0], -1)
        return whole.reshape(blocks, lanes, -1).transpose(0, 2, 1).reshape(-1)

    packs = {weight: filled}
    if beside and root.inputs[2] is not None:
        packs[problem.positions[root.inputs[2]]] = lambda array: filled(array).reshape(1, blocks, 1, lanes)
    shapes = {**after.operands, weight: (blocks * lanes * window.count,)}
    kernel, inputs, outputs = problem.kernel("depthwise", shapes, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)

    def tap(total: Value, image: Value, spot: WindowSpot, kh: Value, kw: Operand) -> Value:
        first = ((spot.block * window.taps[0] + kh) * window.taps[1] + kw) * lanes
        return total + image * read(inputs[weight], (first,), lanes)

    def write(total: Value, spot: WindowSpot, pixel: Value, lane: Value, inside: Operand) -> None:
        writer.store(total, (spot.n, spot.block, pixel, lane))

    slide_over(Slide(window, 0.0, tap, write, after.is_long), kernel, inputs[source], batch, blocks, machine)
    return problem.draft(kernel, "depthwise", packs)
