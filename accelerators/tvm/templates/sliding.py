"""A small window that slides over each channel by itself: depthwise convolution and pools, on blocked values.

A vector is a block of channels, so that no place needs another's. Each row of the result is walked in three parts: the columns
that see padding to the left, those that see none, in tiles, and those that see padding to the right. Columns are known when the
text is made: taps outside of the image are left out of it. Rows outside are left out of the loop over the window's rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from accelerators.tvm.machine import Machine
from accelerators.tvm.templates.script import Lines, Vectors, local, loop
from accelerators.tvm.templates.window import Window

SERIAL = 200_000
"""Fewer taps than this are one thread's work."""


@attrs.frozen(slots=True)
class Slide:
    """What a window does at each place; texts may use n, block, row, kh and the names given."""

    window: Window
    """The geometry."""
    start: float
    """What the sums begin with."""
    tap: Callable[[str, str, int], str]
    """Text of the sum after a tap: from the text of the sum, that of the image's vector, and the tap's column."""
    write: Callable[[str, str, str, int], Lines]
    """Lines that write lane l of a sum: its text, its row and column, and how many taps across were inside."""
    is_long: bool = False
    """Do those lines take many instructions? They are written once then, in a loop; taps inside are not told apart."""
    has_squares: bool = False
    """Is a sum of squares kept beside each sum, which replaces it where it is no number?"""


def slide_text(slide: Slide, source: str, batch: int, blocks: int, machine: Machine) -> Lines:
    """The whole kernel: tasks over images, bands of rows and blocks."""
    window = slide.window
    threads = machine.threads if batch * blocks * window.places * window.count >= SERIAL else 1
    bands = min(threads, window.out[0]) if window.out[0] >= 2 * threads else 1
    across = min(blocks, math.ceil(threads / bands)) if bands < threads else 1
    rows = [
        f"down: T.let = row * {window.strides[0]} - {window.before[0]}",
        f"low: T.let = T.max(0, ({window.dilations[0] - 1} - down) // {window.dilations[0]})",
        f"high: T.let = T.min({window.taps[0]}, ({window.sizes[0] + window.dilations[0] - 1} - down) // {window.dilations[0]})",
        *_row(slide, source, machine),
    ]
    count = bands * across
    first, end = (f"{piece} * {window.out[0]} // {bands}" for piece in ("band", "(band + 1)"))
    left, right = (f"{piece} * {blocks} // {across}" for piece in ("range", "(range + 1)"))
    work = [
        f"n: T.let = task // {count}",
        f"band: T.let = task // {across} % {bands}",
        f"range: T.let = task % {across}",
        *loop(
            "b_",
            f"{right} - {left}",
            [
                f"block: T.let = {left} + b_",
                *loop("r_", f"{end} - {first}", [f"row: T.let = {first} + r_", *rows]),
            ],
        ),
    ]
    return loop("task", batch * count, work, "parallel" if threads > 1 and batch * count > 1 else "serial")


def _row(slide: Slide, source: str, machine: Machine) -> Lines:
    """One row of the result."""
    window = slide.window
    low, high, wide = window.low(1), window.high(1), window.out[1]
    lines: Lines = []
    most = machine.registers // (4 if slide.has_squares else 2)
    for start in range(0, low, most):
        lines += _tile(slide, source, machine.lanes, range(start, min(start + most, low)), None)
    if high > low:
        width = high - low
        places = min(
            range(1, most + 1), key=lambda p: (math.ceil(width / p) * (max(p, 4) + 1), p) if p <= width else (math.inf, p)
        )
        column = f"T.min({low} + tile * {places}, {high - places})" if width % places else f"{low} + tile * {places}"
        inner = _tile(slide, source, machine.lanes, range(places), column)
        lines += loop("tile", math.ceil(width / places), inner)
    for start in range(high, wide, most):
        lines += _tile(slide, source, machine.lanes, range(start, min(start + most, wide)), None)
    return lines


def _tile(slide: Slide, source: str, lanes: int, columns: range, first: str | None) -> Lines:
    """Some columns of the row; `first` is the text of where they begin, if they see no padding."""
    window, text = slide.window, Vectors(lanes)
    step, dilation, before = window.strides[1], window.dilations[1], window.before[1]
    name = "acc" if first is not None else f"acc{columns[0]}"
    lines = [local(name, len(columns) * lanes)]
    if first is not None:
        lines.append(f"column: T.let = {first}")
    accs = [text.at(name, i * lanes) for i in range(len(columns))]
    lines += [f"{acc} = {text.const(slide.start)}" for acc in accs]
    squares = [text.at(f"{name}_squares", i * lanes) for i in range(len(columns))] if slide.has_squares else []
    lines += [local(f"{name}_squares", len(columns) * lanes)] if squares else []
    lines += [f"{square} = {text.const(0.0)}" for square in squares]
    taps: Lines = []
    inside = [0] * len(columns)
    for kw in range(window.taps[1]):
        for i, column in enumerate(columns):
            at = column * step + kw * dilation - before
            if first is None and not 0 <= at < window.sizes[1]:
                continue
            inside[i] += 1
            place = f"({'column * ' + str(step) + ' + ' if first is not None else ''}{at})"
            image = f"{source}[n, block, line + {place}, T.ramp(0, 1, {lanes})]"
            taps.append(f"{accs[i]} = {slide.tap(accs[i], image, kw)}")
            taps += [f"{squares[i]} = {squares[i]} + {image} * {image}"] if squares else []
    line = f"line: T.let = (down + kh * {window.dilations[0]}) * {window.sizes[1]}"
    if taps:
        lines += loop("kh_", "high - low", ["kh: T.let = low + kh_", line, *taps])
    infinite = text.every('T.float32("inf")')
    lines += [f"{acc} = T.Select({square} <= {infinite}, {acc}, {square})" for acc, square in zip(accs, squares)]
    if slide.is_long:
        aside = [f"{text.at(f'{name}_held', i * lanes)} = {acc}" for i, acc in enumerate(accs)]
        place = f"row * {window.out[1]} + {'column + ' if first is not None else ''}{columns[0]} + i"
        each = loop("l", lanes, slide.write(f"{name}_held[i * {lanes} + l]", "row", place, 0), "vectorized")
        return [*lines, local(f"{name}_held", len(columns) * lanes), *aside, *loop("i", len(columns), each)]
    writes: Lines = []
    for i, column in enumerate(columns):
        place = f"row * {window.out[1]} + {'column + ' if first is not None else ''}{column}"
        writes += slide.write(f"{name}[{i * lanes} + l]", "row", place, inside[i])
    return [*lines, *loop("l", lanes, writes, "vectorized")]
