"""A copy of a band of a quantized image, with the zero point as padding, channels padded to full steps, and bytes widened if the
instruction takes wider elements."""

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
from partita.accelerators.tvm.kernels.shared.loops import counted, larger, pieces, smaller, start

CHUNK = 64
"""Elements that are copied at once."""

WORDS = 16
"""Pixels that are copied at once if all channels of a pixel fit a word."""


@attrs.frozen(slots=True)
class Frame:
    """The copy of a band's input: [row, column, channel]."""

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
        """Elements of the copy."""
        return self.down * self.wide * self.shape.across

    @property
    def is_straight(self) -> bool:
        """True if the copy has the same elements in the same order as the image."""
        shape, window = self.shape, self.shape.window
        return not shape.is_plain and window.is_inside and self.wide == window.sizes[1] and shape.across == shape.channels

    def memory(self, kernel: Kernel) -> Buffer:
        """Allocates the copy."""
        return kernel.memory("image", self.shape.element, (counted(self.size),))

    def write(self, kernel: Kernel, source: Buffer, into: Buffer, n: Value, top: Value, down: Operand | None = None) -> None:
        """Fills it, for image n and the band that begins at row `top` of the result; `down` is the number of rows of a band that
        may have fewer than others."""
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
        """Copies `count` pixels of a row of the image."""
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
        """A vector of pixels of a plain image, with all channels of a pixel in one word."""
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
    """Copies `count` contiguous elements."""

    def copy(first: Operand, size: int) -> None:
        into[to + first] = source.vector(size, n, start + first).cast(into.element)

    each_chunk(kernel, count, copy)


def each_piece(kernel: Kernel, count: Operand, most: int, work: Callable[[Operand, int], None]) -> None:
    """The work for pieces of `most` neighbours, and for single ones at the end; it gets the start and size of each piece. If the
    count is dynamic, the last ones belong to a piece that overlaps the one before."""
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
    """The work for chunks of contiguous elements, and for the remainder; it gets the start and size of each."""
    if not isinstance(count, int):
        each_piece(kernel, count, CHUNK, work)
        return
    whole, rest = divmod(count, CHUNK)
    with kernel.loop(whole, "b") as b:
        work(b * CHUNK, CHUNK)
    if rest:
        work(whole * CHUNK, rest)
