"""A band of a quantized image, copied with the zero point around it, channels filled up to whole steps, and bytes as larger
numbers where an instruction takes those."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    constant,
    int32,
    int64,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.quantized.cut import Shape
from partita.accelerators.tvm.kernels.shared.tile import counted, larger, pieces, smaller, start

CHUNK = 64
"""Numbers that are copied at once."""

WORDS = 16
"""Pixels that are copied at once where each is a word of all its channels."""


@attrs.frozen(slots=True)
class Frame:
    """The copy of the rows that a band sees: [row, column, channel]."""

    shape: Shape
    rows: Operand
    """Rows of the result in the band."""
    zero: int
    """The zero point."""

    @property
    def down(self) -> Operand:
        """Rows of the copy."""
        return (self.rows - 1) * self.shape.window.strides[0] + self.shape.window.span[0]

    @property
    def wide(self) -> int:
        """Columns of the copy."""
        return (self.shape.window.out[1] - 1) * self.shape.window.strides[1] + self.shape.window.span[1]

    @property
    def size(self) -> Operand:
        """Numbers of the copy."""
        return self.down * self.wide * self.shape.across

    @property
    def is_straight(self) -> bool:
        """Do all numbers of the copy stand in the image in the same order?"""
        shape, window = self.shape, self.shape.window
        return not shape.is_plain and window.is_inside and self.wide == window.sizes[1] and shape.across == shape.channels

    def memory(self, kernel: Kernel) -> Buffer:
        """Where the copy stands."""
        return kernel.memory("image", self.shape.element, (counted(self.size),))

    def write(self, kernel: Kernel, source: Buffer, into: Buffer, n: Value, top: Value, down: Operand | None = None) -> None:
        """Fill it, for image n and the band that begins at row `top` of the result; of a band that may have fewer rows than
        others, so many rows."""
        window, across = self.shape.window, self.shape.across
        if self.is_straight and down is None:
            start = kernel.name_value("first", top * (window.strides[0] * window.sizes[1] * across))
            _copied(kernel, source, into, n, start, top * 0, self.size)
            return
        left = smaller(window.before[1], self.wide)
        inside = larger(smaller(window.sizes[1], self.wide - left), 0)
        with kernel.loop(self.down if down is None else down, "r") as r:
            row = kernel.name_value("row", top * window.strides[0] + r - window.before[0])
            first = kernel.name_value("first", r * (self.wide * across))
            with kernel.when((row >= 0) & (row < window.sizes[0])):
                self._fill(kernel, into, first, left * across)
                self._row(kernel, source, into, n, row, first + left * across, inside)
                self._fill(kernel, into, first + (left + inside) * across, (self.wide - left - inside) * across)
            with kernel.otherwise():
                self._fill(kernel, into, first, self.wide * across)

    def _row(self, kernel: Kernel, source: Buffer, into: Buffer, n: Value, row: Value, to: Value, count: Operand) -> None:
        """Copy so many pixels of a row of the image."""
        channels, across = self.shape.channels, self.shape.across
        if self.shape.is_plain:
            def words(first: Operand, size: int) -> None:
                into[to + first * across] = self._words(source, n, row, first, size)

            each_piece(kernel, count, WORDS, words)
            return
        start = row * (self.shape.window.sizes[1] * channels)
        if across == channels:
            _copied(kernel, source, into, n, start, to, count * channels)
            return
        reach, own = self.shape.reach, channels // self.shape.groups
        with kernel.loop(count, "e") as e, kernel.loop(self.shape.groups, "g") as group:
            position = kernel.name_value("pixel", to + e * across + group * reach)
            _copied(kernel, source, into, n, start + e * channels + group * own, position, own)
            for channel in range(own, reach):
                into[position + channel] = 0

    def _words(self, source: Buffer, n: Value, row: Value, column: Operand, count: int) -> Value:
        """A vector of pixels of a plain image, each with its channels side by side in one word."""
        element = self.shape.element
        kind: Element = int32 if self.shape.across * element.bits == int32.bits else int64
        word = source.vector(count, n, 0, row, column).cast(kind)
        for channel in range(1, self.shape.channels):
            word = word | (source.vector(count, n, channel, row, column).cast(kind) << (element.bits * channel))
        return word.regrouped(element)

    def _fill(self, kernel: Kernel, into: Buffer, first: Value, count: Operand) -> None:
        def fill(start: Operand, size: int) -> None:
            into[first + start] = constant(self.zero, into.element, size)

        each_chunk(kernel, count, fill)


def _copied(kernel: Kernel, source: Buffer, into: Buffer, n: Value, start: Operand, to: Value, count: Operand) -> None:
    """Copy so many neighbouring numbers."""

    def copy(first: Operand, size: int) -> None:
        into[to + first] = source.vector(size, n, start + first).cast(into.element)

    each_chunk(kernel, count, copy)


def each_piece(kernel: Kernel, count: Operand, most: int, work: Callable[[Operand, int], None]) -> None:
    """The work for so many neighbours at a time, and one by one for those left at the end: told where they begin, and how many
    they are. Where it is not known how many there are, those at the end belong to a piece that overlaps the one before."""
    if isinstance(count, int):
        with kernel.loop(count // most, "e") as e:
            work(e * most, most)
        with kernel.loop(count % most, "e") as e:
            work(count // most * most + e, 1)
        return
    whole = counted(count)
    with kernel.when(as_index(whole) >= most), kernel.loop(pieces(whole, most), "e") as e:
        work(kernel.name_value("piece", start(e, most, whole)), most)
    with kernel.otherwise(), kernel.loop(whole, "e") as e:
        work(e, 1)


def each_chunk(kernel: Kernel, count: Operand, work: Callable[[Operand, int], None]) -> None:
    """The work for every so many of some neighbouring numbers, and for those left at the end: told where they begin, and how many
    they are."""
    if not isinstance(count, int):
        each_piece(kernel, count, CHUNK, work)
        return
    whole, rest = divmod(count, CHUNK)
    with kernel.loop(whole, "b") as b:
        work(b * CHUNK, CHUNK)
    if rest:
        work(whole * CHUNK, rest)
