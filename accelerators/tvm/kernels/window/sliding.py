"""A small window that slides over each channel by itself: depthwise convolution and pools, on blocked values.

A vector is a block of channels, so that no pixel needs another's. Each row of the result is walked in three parts: the columns
that see padding to the left, those that see none, in tiles, and those that see padding to the right. Columns are known when the
text is made: taps outside of the image are left out of it. Rows outside are left out of the loop over the window's rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from accelerators.tvm.kernels.language import (
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
from accelerators.tvm.kernels.shared.numbers import read
from accelerators.tvm.kernels.shared.window import Window
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.work import TAPS


@attrs.frozen(slots=True)
class Spot:
    """The position of a window."""

    n: Value
    """The image."""
    block: Value
    """The block of channels."""
    low: Value
    """The first of the window's rows that lies in the image."""
    high: Value
    """The first one after it that does not."""


@attrs.frozen(slots=True)
class Slide:
    """The work of a window at each position."""

    window: Window
    """The geometry."""
    start: float
    """The number that the sums begin with."""
    tap: Callable[[Value, Value, Spot, Value, int], Value]
    """The sum after a tap: from the sum, the image's vector, where the window is, and the tap's row and column."""
    write: Callable[[Value, Spot, Value, Value, int], None]
    """Writes one lane of a sum: the sum, where the window is, the pixel of the result, the lane, and how many taps across were
    inside; 0 where that is not told apart."""
    is_long: bool = False
    """Does writing take many instructions? They are written once then, in a loop; taps inside are not told apart."""
    has_squares: bool = False
    """Is a sum of squares kept beside each sum, which replaces it where it is NaN?"""


def slide_over(slide: Slide, kernel: Kernel, source: Buffer, batch: int, blocks: int, machine: Machine) -> None:
    """The whole kernel: tasks over images, bands of rows and blocks."""
    window = slide.window
    threads = machine.threads_for(batch * blocks * window.pixels * window.count, TAPS)
    bands = min(threads, window.out[0]) if window.out[0] >= 2 * threads else 1
    across = min(blocks, math.ceil(threads / bands)) if bands < threads else 1
    count = bands * across
    with kernel.tasks(batch * count, "task", threads > 1) as task:
        n = kernel.name_value("n", task // count)
        band = kernel.name_value("band", task // across % bands)
        piece = kernel.name_value("range", task % across)
        left, right = piece * blocks // across, (piece + 1) * blocks // across
        with kernel.loop(right - left, "b_") as b:
            block = kernel.name_value("block", left + b)
            first, end = band * window.out[0] // bands, (band + 1) * window.out[0] // bands
            with kernel.loop(end - first, "r_") as r:
                row = kernel.name_value("row", first + r)
                _Row(slide, kernel, source, machine, n, block, row).write()


class _Row:
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
        self.down = kernel.name_value("down", row * window.strides[0] - window.before[0])
        dilation = window.dilations[0]
        low = kernel.name_value("low", maximum(0, (dilation - 1 - self.down) // dilation))
        high = minimum(window.taps[0], (window.sizes[0] + dilation - 1 - self.down) // dilation)
        self.spot = Spot(n, block, low, kernel.name_value("high", high))

    def write(self) -> None:
        """Columns that see padding to the left, those that see none, in tiles, and those that see padding to the right."""
        window, most = self.slide.window, self.machine.registers // (4 if self.slide.has_squares else 2)
        low, high, wide = window.low(1), window.high(1), window.out[1]
        for start in range(0, low, most):
            self._tile(range(start, min(start + most, low)), None)
        if high > low:
            self._inner(low, high, most)
        for start in range(high, wide, most):
            self._tile(range(start, min(start + most, wide)), None)

    def _inner(self, low: int, high: int, most: int) -> None:
        width = high - low
        pixels = min(
            range(1, most + 1), key=lambda p: (math.ceil(width / p) * (max(p, 4) + 1), p) if p <= width else (math.inf, p)
        )
        with self.kernel.loop(math.ceil(width / pixels), "tile") as tile:
            column = low + tile * pixels
            self._tile(range(pixels), minimum(column, high - pixels) if width % pixels else column)

    def _tile(self, columns: range, first: Operand | None) -> None:
        """Some columns of the row; `first` is where they begin, if they see no padding."""
        kernel, lanes = self.kernel, self.machine.lanes
        name = "acc" if first is not None else f"acc{columns[0]}"
        acc = kernel.registers(name, float32, (len(columns),), lanes)
        column = None if first is None else kernel.name_value("column", first)
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
        """Each tap added to each sum that it belongs to; -> for each sum, how many taps across were inside of the image."""
        window, kernel, lanes, spot = self.slide.window, self.kernel, self.machine.lanes, self.spot
        step, dilation, before = window.strides[1], window.dilations[1], window.before[1]
        taps = [
            (i, kw, column * step + kw * dilation - before) for kw in range(window.taps[1]) for i, column in enumerate(columns)
        ]
        taps = [(i, kw, at) for i, kw, at in taps if first is not None or 0 <= at < window.sizes[1]]
        if taps:
            with kernel.loop(spot.high - spot.low, "kh_") as k:
                kh = kernel.name_value("kh", spot.low + k)
                line = kernel.name_value("line", (self.down + kh * window.dilations[0]) * window.sizes[1])
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
