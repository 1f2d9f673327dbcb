"""Products of matrices in panels: what the templates for matrix products and for attention have in common.

The right matrix stands in panels of a few vectors' width, each one contiguous stream. A tile, some rows of the left matrix times
one panel, keeps its sums in registers: a step of the depth loads the panel's vectors, and spreads a number of each row over the
lanes. Where a size is no multiple of the tile's, the last tile overlaps the one before and makes the same numbers again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

import attrs

from accelerators.tvm.machine import Machine
from accelerators.tvm.templates.choice import choose
from accelerators.tvm.templates.script import Lines, loop
from accelerators.tvm.templates.tile import Tile, fitting, start, starts

FUSED = 8
"""Processors of narrower vectors than this may multiply and add one after the other, which takes a register more."""

UNROLLED = 4
"""Steps of the depth that are written out one after another."""


@attrs.frozen(slots=True)
class PanelTile(Tile):
    """Rows of the left matrix times one panel of the right one, which is as wide as the tile."""

    around: ClassVar[float] = 0.5

    def down(self, rows: int) -> int:
        """Tiles that cover so many rows."""
        return math.ceil(rows / self.rows)

    def across(self, columns: int) -> int:
        """Panels that cover so many columns."""
        return math.ceil(columns / self.width)

    def starts(self, columns: int) -> list[int]:
        """Where the panels begin."""
        return starts(columns, self.width)

    def row(self, tile: str, rows: int) -> str:
        """Text of a tile's first row."""
        return start(tile, self.rows, rows)

    def column(self, panel: str, columns: int) -> str:
        """Text of a panel's first column."""
        return start(panel, self.width, columns)

    def product(
        self, depth: int, number: Callable[[str, str], str], panel: str, first: str, step_of: int | None = None
    ) -> Lines:
        """The sums `acc` of a tile: number(r, k) is the left matrix's; the panel's numbers begin at `first` in its buffer, each
        step of the depth a panel's width after the one before, or as far as told."""
        apart = self.width if step_of is None else step_of

        def step(k: str) -> Lines:
            return self.step(number("r", k), panel, f"{first} + ({k}) * {apart}")

        whole, left = divmod(depth, UNROLLED)
        lines = [*self.buffers, *self.clear()]
        if whole:
            lines += loop("k", whole, loop("u", UNROLLED, step(f"k * {UNROLLED} + u"), "unroll"))
        return lines + (loop("u", left, step(f"{whole * UNROLLED} + u"), "unroll") if left else [])

    def finish(self, lines: Callable[[str, str, str], Lines], long: bool = False) -> Lines:
        """Lines for each sum, a vector at a time, from the texts of the sum, its row and its column in the tile.

        Long ones stand once in a loop, for which the sums leave their registers."""
        buffer = "sums" if long else "acc"
        sums = loop("l", self.lanes, lines(self.lane(buffer), "r", f"v * {self.lanes} + l"), "vectorized")
        return [*self.spilled(), *loop("r", self.rows, loop("v", self.vectors, sums))] if long else self.each(sums)


def panel_tiles(machine: Machine) -> Iterator[PanelTile]:
    """Every tile that fits the registers: the sums, the panel's vectors and one spread number. A single row needs little more
    than its sums: each of the panel's vectors is read where it is multiplied."""
    spare = machine.lanes < FUSED
    for rows, vectors in fitting(machine, lambda rows, vectors: vectors + 1 + spare if rows > 1 else 4):
        yield PanelTile(rows, vectors, machine.lanes)


def shared_out(pairs: int, tiles: int, tasks: int, work: Lines, before: Lines = ()) -> Lines:  # type: ignore[assignment]
    """The work for each tile `t` of each `pair`, in so many tasks of equal ranges; `before` is done once for each pair."""
    if tasks <= 1:
        return loop("pair", pairs, [*before, *loop("t", tiles, work)])
    total = pairs * tiles
    inner = [
        f"pair: T.let = first // {tiles} + p",
        f"low: T.let = T.max(0, first - pair * {tiles})",
        *before,
        *loop("t_", f"T.min({tiles}, last - pair * {tiles}) - low", ["t: T.let = low + t_", *work]),
    ]
    ranges = [f"first: T.let = task * {total} // {tasks}", f"last: T.let = (task + 1) * {total} // {tasks}"]
    return loop("task", tasks, [*ranges, *loop("p", f"(last + {tiles - 1}) // {tiles} - first // {tiles}", inner)], "parallel")


def best_tile(rows: int, columns: int, machine: Machine, what: str = "tile") -> PanelTile | None:
    """The tile that takes the fewest cycles for all of it; None for fewer columns than a vector has."""
    fitting = [tile for tile in panel_tiles(machine) if tile.rows <= rows and tile.width <= columns]

    def cost(tile: PanelTile) -> tuple[float, int]:
        return tile.down(rows) * tile.across(columns) * tile.cycles, -tile.vectors

    return choose(what, fitting, cost) if fitting else None
