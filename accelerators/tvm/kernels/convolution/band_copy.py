"""A band of an image, copied with zeros around it, for a convolution that reads padding or only some of the pixels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    float32,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import rounded, stored_bits
from partita.accelerators.tvm.kernels.shared.joined_blocks import JoinedBlocks
from partita.accelerators.tvm.kernels.shared.loops import kept, smaller
from partita.accelerators.tvm.kernels.shared.window import Pair, Window
from partita.accelerators.tvm.sizes.extent import Extent


@attrs.frozen(slots=True)
class BandCopy:
    """A copy of the rows that a band reads: [block, row, column, lane]."""

    window: Window
    """The window of the convolution."""
    rows: Operand
    """Number of rows of the result in the band."""
    blocks: int
    """Number of blocks in the copy, or of channels of a plain image."""
    lanes: int
    """Number of channels of a block; 1 for a plain image."""
    is_plain: bool
    """True if the image is [N, C, H, W]."""
    is_chunk: bool
    """True if the blocks are those of one chunk."""
    stored_as: Element = float32
    """The element type to which elements are rounded; the copy may store them in another."""

    @property
    def numbers(self) -> Operand:
        """Number of elements of the copy."""
        return self.down * self.wide * (self.blocks * self.lanes)

    @property
    def down(self) -> Operand:
        """Number of rows of the copy."""
        return (self.rows - 1) * self.strides[0] + self.window.span[0]

    @property
    def wide(self) -> int:
        """Number of columns of the copy."""
        return (self.window.out[1] - 1) * self.strides[1] + self.window.span[1]

    @property
    def strides(self) -> Pair:
        """The distances in the copy between the inputs of neighbouring results."""
        return (1, 1) if self.window.is_sampled else self.window.strides

    def write(
        self, kernel: Kernel, source: Buffer | JoinedBlocks, into: Buffer, n: Operand, top: Operand, chunk: Operand
    ) -> None:
        """Fills the copy, for image n and the band that begins at row `top` of the result."""
        window = self.window

        def copied(position: Operand, number: Value) -> None:
            into[position] = stored_bits(rounded(number, self.stored_as), into.element)

        every = window.strides if window.is_sampled else (1, 1)
        left, inside = self._columns(every[1])
        with kernel.loop(self.blocks, "c") as c, ExitStack() as inside_of_block:
            number = self._reader(inside_of_block, kernel, source, n, chunk * self.blocks + c if self.is_chunk else c)
            r = inside_of_block.enter_context(kernel.loop(self.down, "r"))
            row = kept(kernel, "row", top * window.strides[0] + r * every[0] - window.before[0], window.is_any)
            with kernel.when((row >= 0) & (row < window.sizes[0])):
                self._zeros(kernel, into, c, r, 0, left)
                with kernel.loop(inside, "e") as e:
                    position = self._position(c, r, left + e)
                    if self.is_plain:
                        copied(position, number(row, e * every[1]))
                    else:
                        with kernel.lanes(self.lanes) as lane:
                            copied(position + lane, number(row * window.sizes[1] + e * every[1], lane))
                self._zeros(kernel, into, c, r, left + inside, self.wide - left - inside)
            with kernel.otherwise():
                self._zeros(kernel, into, c, r, 0, self.wide)

    @staticmethod
    def _reader(
        loops: ExitStack, kernel: Kernel, source: Buffer | JoinedBlocks, n: Operand, block: Value
    ) -> Callable[[Operand, Operand], Value]:
        """The function that reads an element of this block, or plain channel: by pixel and lane, or by row and column."""
        if isinstance(source, Buffer):
            return lambda first, second: source[n, block, first, second]
        seen, image = loops.enter_context(source.seen(kernel, n, block))
        return lambda pixel, lane: seen[image, pixel, lane]

    def _columns(self, every: int) -> tuple[Operand, Operand]:
        """Number of columns of zeros before those of the image, and number of columns of the image."""
        before, own = self.window.before[1], self.window.sizes[1]
        if not isinstance(own, Extent):
            left = min(before, self.wide)
            return left, max(min(-(-own // every), self.wide - left), 0)
        left_of_all = smaller(before, self.wide)
        return left_of_all, minimum((as_index(own) + (every - 1)) // every, as_index(self.wide) - left_of_all)

    def _position(self, c: Value, r: Value, column: Operand) -> Value:
        return ((c * self.down + r) * self.wide + column) * self.lanes

    def _zeros(self, kernel: Kernel, into: Buffer, c: Value, r: Value, start: Operand, count: Operand) -> None:
        with kernel.loop(count * self.lanes, "z") as z:
            into[self._position(c, r, start) + z] = 0.0
