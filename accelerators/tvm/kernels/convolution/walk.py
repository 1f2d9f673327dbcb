"""The orders in which the tiles of a convolution cover its output pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from partita.accelerators.tvm.kernels.convolution.image import Image
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Registers, Value, all_of
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.loops import start
from partita.accelerators.tvm.kernels.shared.panels import Tile
from partita.accelerators.tvm.machine.machine import Machine

ORIGIN: Operand = 0
"""The first pixel."""

Store = Callable[[Value, Value, Operand], None]
"""Writes the outputs: takes a sum, its row in the tile and its pixel."""


@attrs.frozen(slots=True)
class Walk:
    """Tiles along rows of pixels that are contiguous in the output."""

    image: Image
    """The convolution."""
    tile: int
    """Number of columns of a tile."""
    rows: int
    """Number of rows."""
    width: int
    """Number of pixels of a row."""

    writing = 2
    """Estimated cycles to write a vector of sums."""

    @property
    def along(self) -> int:
        """Number of tiles of a row."""
        return math.ceil(self.width / self.tile)

    @property
    def count(self) -> int:
        """Number of tiles of all pixels."""
        return self.rows * self.along

    @property
    def numbers(self) -> int:
        """Number of elements of the copy."""
        return self.image.batch * self.image.channels * self.image.plane

    def copy(self, kernel: Kernel, source: Buffer, into: Buffer, machine: Machine) -> None:
        """Writes the copy."""
        self.image.copy(kernel, source, into, machine)

    def read(self, batch: Operand, channel: Operand, tile: Value, taps: Sequence[Operand]) -> Operand:
        """The position in the copy of the tile's first column, for a tap of a channel."""
        image = self.image
        return (batch * image.channels + channel) * image.plane + self._position(tile) + image.tap(taps)

    def write(self, kernel: Kernel, tile: Tile, acc: Registers, index: Value, store: Store) -> None:
        """Writes all sums of a tile."""
        with tile.each(kernel) as (r, v), kernel.lanes(tile.lanes) as lane:
            store(acc.lane((r, v), lane), r, self._row(index) * self.width + self._column(index) + v * tile.lanes + lane)

    def _row(self, tile: Value) -> Operand:
        return tile // self.along if self.rows > 1 else 0

    def _column(self, tile: Value) -> Operand:
        return start(tile % self.along, self.tile, self.width)

    def _position(self, tile: Value) -> Operand:
        """The position of the tile's first pixel in the copy."""
        position = self._column(tile)
        if self.rows == 1:
            return position
        rest = self._row(tile)
        for size, step in list(zip(self.image.out, self.image.steps, strict=True))[-2::-1]:
            position = position + rest % size * step
            rest = rest // size
        return position


@attrs.frozen(slots=True)
class Together(Walk):
    """Tiles along all pixels as one row, for filters of one tap: the copy is [batch, tile, channel, column of the tile]."""

    @property
    def numbers(self) -> int:
        return self.image.batch * self.count * self.image.channels * self.tile

    def copy(self, kernel: Kernel, source: Buffer, into: Buffer, machine: Machine) -> None:
        image = self.image
        with kernel.tasks(image.batch * self.count, "part", machine.threads_for(self.numbers) > 1) as part:
            tile = kernel.name_value("tile", part % self.count)
            with kernel.loop(image.channels, "c") as c, kernel.loop(self.tile, "e") as e:
                target = (part * image.channels + c) * self.tile + e
                into[target] = read(source, (part // self.count, c, self._pixel(self._column(tile) + e)))

    def _pixel(self, output: Operand) -> Operand:
        """The pixel of the image that an output pixel reads."""
        image = self.image
        if image.out == image.sizes:
            return output
        rest, position, before = output, ORIGIN, 1
        for i in reversed(range(len(image.out))):
            index = rest % image.out[i] if i else rest
            position = position + index * (image.strides[i] * before)
            rest, before = rest // image.out[i], before * image.sizes[i]
        return position

    def read(self, batch: Operand, channel: Operand, tile: Value, taps: Sequence[Operand]) -> Operand:
        return ((batch * self.count + tile) * self.image.channels + channel) * self.tile


@attrs.frozen(slots=True)
class Throughout(Walk):
    """Tiles along the whole padded copy; pixels that are no outputs are computed and dropped."""

    writing = 24

    @property
    def numbers(self) -> int:
        return Walk.numbers.fget(self) + self.tile  # type: ignore[attr-defined]

    def write(self, kernel: Kernel, tile: Tile, acc: Registers, index: Value, store: Store) -> None:
        image, sums = self.image, tile.spilled(kernel, acc)
        with kernel.loop(tile.width, "e") as e:
            rest = kernel.name_value("at", self._position(index) + e)
            tests: list[Value] = []
            output, before = ORIGIN, 1
            for i in reversed(range(len(image.out))):
                position = rest % image.copied[i] if i else rest
                tests.append(position < image.out[i])
                output = output + position * before
                rest, before = rest // image.copied[i], before * image.out[i]
            with kernel.when(all_of(tests)), kernel.loop(tile.rows, "r") as r:
                store(sums.buffer[r * tile.width + e], r, output)


def walks(image: Image, tile: int) -> list[Walk]:
    """The walks for tiles of `tile` columns."""
    listed: list[Walk] = []
    if image.copied[1:] == image.out[1:]:
        if tile <= image.pixels:
            listed.append((Together if image.is_pointwise else Walk)(image, tile, 1, image.pixels))
    elif tile <= image.out[-1]:
        listed.append(Walk(image, tile, image.pixels // image.out[-1], image.out[-1]))
    if not listed or image.taps > 1:
        last = sum((o - 1) * step for o, step in zip(image.out, image.steps, strict=True)) + 1
        listed.append(Throughout(image, tile, 1, math.ceil(last / tile) * tile))
    return listed
