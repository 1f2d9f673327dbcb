"""How the tiles of a convolution walk its output places."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from accelerators.tvm.templates.image import SERIAL, Image
from accelerators.tvm.templates.script import Lines, indent, loop
from accelerators.tvm.templates.tile import Tile, start

Store = Callable[[str, str], Lines]
"""Lines that write the outputs, given the text of a sum and of its place."""


@attrs.frozen(slots=True)
class Walk:
    """Along rows of places that stand together in the output."""

    image: Image
    """The convolution."""
    tile: int
    """Columns of a tile."""
    rows: int
    """How many rows there are."""
    width: int
    """Places of a row."""

    writing = 2
    """About how many cycles it takes to write a vector of sums."""

    @property
    def along(self) -> int:
        """Tiles of a row."""
        return math.ceil(self.width / self.tile)

    @property
    def count(self) -> int:
        """Tiles of all places."""
        return self.rows * self.along

    @property
    def numbers(self) -> int:
        """Numbers of the copy."""
        return self.image.batch * self.image.channels * self.image.plane

    def copy(self, source: str) -> Lines:
        """Lines that make the copy."""
        return self.image.copy(source)

    def read(self, batch: str, channel: str, tile: str, taps: list[str]) -> str:
        """Text of where in the copy the tile's columns begin, for a tap of a channel."""
        image = self.image
        return f"({batch} * {image.channels} + {channel}) * {image.plane} + {self._position(tile)} + {image.tap(taps)}"

    def write(self, tile: Tile, index: str, store: Store) -> Lines:
        """Lines that write all sums of a tile."""
        return tile.lane_sums(
            store(
                tile.lane(), f"{self._row(index)} * {self.width} + {self._column(index)} + v * {tile.lanes} + l"
            )
        )

    def _row(self, tile: str) -> str:
        return f"({tile} // {self.along})" if self.rows > 1 else "0"

    def _column(self, tile: str) -> str:
        return start(f"({tile} % {self.along})", self.tile, self.width)

    def _position(self, tile: str) -> str:
        """The tile's first place, in the copy."""
        if self.rows == 1:
            return self._column(tile)
        made, rest = self._column(tile), self._row(tile)
        for size, step in list(zip(self.image.out, self.image.steps, strict=True))[-2::-1]:
            made += f" + {rest} % {size} * {step}"
            rest = f"({rest} // {size})"
        return made


@attrs.frozen(slots=True)
class Together(Walk):
    """Along one row of all places, for filters of one tap: the copy is [batch, tile, channel, column of the tile]."""

    @property
    def numbers(self) -> int:
        return self.image.batch * self.count * self.image.channels * self.tile

    def copy(self, source: str) -> Lines:
        image = self.image
        rest, place, before = f"({self._column('tile')} + e)", "0", 1
        for i in reversed(range(len(image.out))):
            place += (
                f" + {rest} % {image.out[i]} * {image.strides[i] * before}"
                if i
                else f" + {rest} * {image.strides[i] * before}"
            )
            rest, before = f"({rest} // {image.out[i]})", before * image.sizes[i]
        if image.out == image.sizes:
            place = f"{self._column('tile')} + e"
        target = f"(part * {image.channels} + c) * {self.tile} + e"
        lines = loop(
            "c",
            image.channels,
            loop("e", self.tile, [f"image[{target}] = {source}[part // {self.count}, c, {place}]"]),
        )
        kind = "parallel" if self.numbers >= SERIAL else "serial"
        return loop("part", image.batch * self.count, [f"tile: T.int32 = part % {self.count}", *lines], kind)

    def read(self, batch: str, channel: str, tile: str, taps: list[str]) -> str:
        return f"(({batch} * {self.count} + {tile}) * {self.image.channels} + {channel}) * {self.tile}"


@attrs.frozen(slots=True)
class Throughout(Walk):
    """Along the whole padded copy; places that are no outputs are computed and left out."""

    writing = 24

    @property
    def numbers(self) -> int:
        return Walk.numbers.fget(self) + self.tile  # type: ignore[attr-defined]

    def write(self, tile: Tile, index: str, store: Store) -> Lines:
        image = self.image
        rest, tests, output, before = "at", [], "0", 1
        for i in reversed(range(len(image.out))):
            position = f"{rest} % {image.copied[i]}" if i else rest
            tests.append(f"{position} < {image.out[i]}")
            output += f" + {position} * {before}"
            rest, before = f"({rest} // {image.copied[i]})", before * image.out[i]
        inner = loop("r", tile.rows, store(f"sums[r * {tile.width} + e]", output))
        return [
            *tile.spilled(),
            *loop(
                "e",
                tile.width,
                [
                    f"at: T.int32 = {self._position(index)} + e",
                    f"if {' and '.join(tests)}:",
                    *indent(inner),
                ],
            ),
        ]


def walks(image: Image, tile: int) -> list[Walk]:
    """The walks that tiles of so many columns can take."""
    made: list[Walk] = []
    if image.copied[1:] == image.out[1:]:
        if tile <= image.places:
            made.append((Together if image.is_pointwise else Walk)(image, tile, 1, image.places))
    elif tile <= image.out[-1]:
        made.append(Walk(image, tile, image.places // image.out[-1], image.out[-1]))
    if not made or image.taps > 1:
        last = sum((o - 1) * step for o, step in zip(image.out, image.steps, strict=True)) + 1
        made.append(Throughout(image, tile, 1, math.ceil(last / tile) * tile))
    return made
