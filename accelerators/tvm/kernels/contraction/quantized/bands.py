"""The bands into which the images of a quantized product are cut: those of its cut, or, for images of dynamic height and width,
those that a kernel computes from the sizes of a call; and the copy of a band, with the zero point as padding, channels padded to
full steps, and bytes widened if the instruction takes wider elements."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.contraction.quantized.cut import FRAME, HEAVY, LARGE_FRAME, ByteCut, ByteShape
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    constant,
    int32,
    int64,
    maximum,
    minimum,
    select,
    uint8,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.loops import (
    counted,
    each_piece,
    each_vector,
    is_shared_out,
    kept,
    larger,
    pieces,
    smaller,
)
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import BYTE_PRODUCTS

CHUNK = 64
"""Elements that are copied at once."""

WORDS = 16
"""Pixels that are copied at once if all channels of a pixel fit a word."""


@attrs.frozen(slots=True)
class Frame:
    """The copy of a band's input: [row, column, channel]."""

    shape: ByteShape
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
        reach, own = self.shape.reach, self.shape.inner
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

        each_vector(kernel, count, CHUNK, fill, "b")


def _copied(kernel: Kernel, source: Buffer, into: Buffer, n: Value, start: Operand, to: Value, count: Operand) -> None:
    """Copies `count` contiguous elements."""

    def copy(first: Operand, size: int) -> None:
        into[to + first] = source.vector(size, n, start + first).cast(into.element)

    each_vector(kernel, count, CHUNK, copy, "b")


@attrs.frozen(slots=True, eq=False)
class ByteBands:
    """The division of the work into tasks."""

    count: Operand
    """The number of bands of an image."""
    rows: Operand
    """Rows of the result in a band."""
    room: Operand
    """Rows of the result that a band's copy has space for."""
    parts: Operand
    """Number of ranges of panels."""
    parallel: bool | Value
    """True if threads share the work, or a condition."""

    @property
    def cuts_panels(self) -> bool:
        """True if there may be several ranges of panels."""
        return not isinstance(self.parts, int) or self.parts > 1


def bands_of(kernel: Kernel, cut: ByteCut, machine: Machine) -> ByteBands:
    """The bands of a product."""
    shape, window = cut.shape, cut.shape.window
    if not window.is_any:
        return ByteBands(cut.bands, cut.rows, cut.rows, cut.parts, cut.parallel)
    is_enough = is_shared_out(window.pixels * shape.outs * shape.depth, machine, BYTE_PRODUCTS)
    if window.is_flat:
        count = kept(kernel, "bands", pieces(window.out[0], cut.rows))
        rows = kept(kernel, "rows", (as_index(window.out[0]) + count - 1) // count)
        return ByteBands(count, rows, cut.rows, cut.parts, is_enough)
    return bands_of_images(kernel, shape, _tallest(shape), cut.parts, machine, is_enough)


def bands_of_images(
    kernel: Kernel, shape: ByteShape, tallest: Operand, parts: int, machine: Machine, is_enough: bool | Value
) -> ByteBands:
    """The bands of images of dynamic height and width: equal ones, of at most `tallest` rows. If there is enough work their
    number is about a multiple of the threads', and if they are fewer than the threads, there are `parts` ranges of panels."""
    high, tall = as_index(shape.window.out[0]), kept(kernel, "tall", tallest)
    wanted = (high + tall - 1) // tall
    if is_enough is not False:
        each = as_index(machine.threads) if is_enough is True else select(is_enough, as_index(machine.threads), 1)
        wanted = (wanted + each - 1) // each * each
    wanted = kept(kernel, "wanted", wanted)
    rows = kept(kernel, "rows", (high + wanted - 1) // wanted)
    count = kept(kernel, "bands", (high + rows - 1) // rows)
    ranges = kept(kernel, "ranges", select(count >= machine.threads, 1, as_index(parts))) if parts > 1 else parts
    # Only a parallel loop gives each task its own memory of dynamic size, even if one thread runs all tasks.
    return ByteBands(count, rows, rows, ranges, True if shape.copies else is_enough)


def _tallest(shape: ByteShape) -> Operand:
    """Maximum number of rows of a band whose input stays in a cache."""
    window = shape.window
    high = as_index(window.out[0])
    if shape.outs * shape.depth >= HEAVY:
        return high
    row = as_index(window.sizes[1]) * (window.strides[0] * shape.across * shape.element.bits // 8)
    frame = FRAME if shape.element is uint8 else LARGE_FRAME
    return minimum(maximum((frame if shape.copies else shape.near) // row, 1), high)
