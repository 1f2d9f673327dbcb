"""A band of an image, copied with zeros around it, for a convolution that sees padding or reads only some of the places."""

from __future__ import annotations

import attrs

from accelerators.tvm.templates.script import Lines, indent, loop
from accelerators.tvm.templates.window import Pair, Window


@attrs.frozen(slots=True)
class BandCopy:
    """The copy `image` of the rows that a band sees: [block, row, column, lane]."""

    window: Window
    """What is seen."""
    rows: int
    """Rows of the result in the band."""
    blocks: int
    """Blocks in the copy, or channels of a plain image."""
    lanes: int
    """Channels of a block; 1 for a plain image."""
    is_plain: bool
    """Is the image [N, C, H, W]?"""
    is_chunk: bool
    """Are the blocks those of one chunk?"""

    @property
    def numbers(self) -> int:
        """Numbers of the copy."""
        return self.blocks * self.down * self.wide * self.lanes

    @property
    def down(self) -> int:
        """Rows of the copy."""
        return (self.rows - 1) * self.strides[0] + self.window.span[0]

    @property
    def wide(self) -> int:
        """Columns of the copy."""
        return (self.window.out[1] - 1) * self.strides[1] + self.window.span[1]

    @property
    def strides(self) -> Pair:
        """How far apart neighbouring results read in the copy."""
        return (1, 1) if self.window.is_sampled else self.window.strides

    def lines(self, source: str) -> Lines:
        """Lines that fill it, for image n and the band that begins at row `top` of the result."""
        window = self.window
        every = window.strides if window.is_sampled else (1, 1)
        left = min(window.before[1], self.wide)
        inside = max(min(-(-window.sizes[1] // every[1]), self.wide - left), 0)
        first = f"chunk * {self.blocks} + c" if self.is_chunk else "c"
        if self.is_plain:
            read = [f"image[{self._place(f'({left} + e)')}] = {source}[n, {first}, row, e * {every[1]}]"]
        else:
            number = f"{source}[n, {first}, row * {window.sizes[1]} + e * {every[1]}, l]"
            read = loop("l", self.lanes, [f"image[{self._place(f'({left} + e)')} + l] = {number}"], "vectorized")
        row = [
            f"row: T.let = top * {window.strides[0]} + r * {every[0]} - {window.before[0]}",
            f"if row >= 0 and row < {window.sizes[0]}:",
            *indent([*self._zeros(0, left), *loop("e", inside, read), *self._zeros(left + inside, self.wide - left - inside)]),
            "else:",
            *indent(self._zeros(0, self.wide)),
        ]
        return loop("c", self.blocks, loop("r", self.down, row))

    def _place(self, column: str) -> str:
        return f"((c * {self.down} + r) * {self.wide} + {column}) * {self.lanes}"

    def _zeros(self, start: int, count: int) -> Lines:
        return loop("z", count * self.lanes, [f"image[{self._place(str(start))} + z] = T.float32(0.0)"]) if count else []
