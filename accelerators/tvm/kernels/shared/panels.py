"""Products of matrices in panels: what the kernels for matrix products and for attention have in common.

The right matrix stands in panels of a few vectors' width, each one contiguous stream. A tile, some rows of the left matrix times
one panel, keeps its sums in registers: a step of the depth loads the panel's vectors, and spreads a number of each row over the
lanes. Where a size is no multiple of the tile's, the last tile overlaps the one before and makes the same numbers again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import ClassVar

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    float32,
    int32,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.instructions import FMA, Instruction, Number
from partita.accelerators.tvm.kernels.shared.tile import Tile, fitting, kept, pieces, start, starts
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent

MANY = 840
"""So many rows are a multiple of any tile's: what takes fewest cycles for them takes fewest for many rows."""

OPEN_ROWS = tuple(round(4 * 2 ** (i / 4)) for i in range(33))
"""Numbers of rows from 4 to 1024, on a scale of powers: what takes fewest cycles for them is taken for any number of rows."""

WAYS = 9
"""A tile has so many rows at most where rows are a multiple of PAGE apart: a near cache has 8 places for numbers that are so far
from one another, and with more rows each step waits for some that were pushed out."""

PAGE = 4096
"""Bytes after which places of a near cache are the same again."""

MOST_CYCLES = (1 << 31) - 1
"""More than any number of rows takes."""

FUSED = 8
"""Processors of narrower vectors than this may multiply and add one after the other, which takes a register more."""

FEW = 4
"""Fewer rows than this wait for the matrix, not for products."""

SPARSE = 4
"""With more rows than so many tiles an overlap is lost among them."""

WASTED = 1.25
"""So many times the cycles may be taken that the best height would take, before there is a tile of that height."""

FETCH = 2.0
"""Cycles until a vector of the panel is there: the nearest cache does not hold the panel."""

FAR = 4.0
"""Cycles until a vector of the panel is there for the first tile that reads it: no cache of the core holds it yet."""

FIRST_STEP = 10.5
"""Cycles that a step of that tile takes at least: the processor looks some hundred instructions ahead, and asks for few lines in
the same time where each vector meets many rows. With AVX2 eight rows by one vector took twice the time of four by three."""

UNROLLED = 4
"""Steps of the depth that are written out one after another."""

PRODUCTS = 16
"""So many products of vectors are enough in a loop, for the loop itself to cost little."""


@attrs.frozen(slots=True)
class Panel:
    """A stream of the right matrix's numbers: each step of the depth as many as the tile is wide."""

    buffer: Buffer
    first: Operand
    """Where it begins in the buffer."""
    apart: int
    """How far each step's numbers are from those of the step before."""
    instruction: Instruction = FMA
    """What they are packed for."""

    def vector(self, lanes: int, step: Operand, column: Value) -> Value:
        """What the instruction takes at a step, from a column on."""
        group = self.instruction.group
        at = self.first + step * self.apart + (column if group == 1 else column * group)
        return self.instruction.right(self.buffer, at, lanes)

    def first_of_group(self, lanes: int, step: Operand, column: Value) -> Value:
        """The first numbers of the groups of a step, from a column on: where the depth ends inside of a group."""
        return (self.vector(lanes, step, column) << 16).bits_as(float32)


@attrs.frozen(slots=True)
class PanelTile(Tile):
    """Rows of the left matrix times one panel of the right one, which is as wide as the tile."""

    around: ClassVar[float] = 0.5

    @property
    def half_cycles(self) -> int:
        """The cycles of a step, counted in halves."""
        return round(self.cycles * 2)

    @property
    def few_steps(self) -> int:
        """How many steps are written out where there is code for tiles of several heights: so many that the loop around them
        is lost among the products, and no more, since LLVM takes as long as there is code."""
        return min(UNROLLED, math.ceil(PRODUCTS / (self.rows * self.vectors)))

    @property
    def fetched_cycles(self) -> float:
        """The cycles of a step where the panel comes from a farther cache, which may take longer than all else."""
        return max(self.cycles, self.vectors * FETCH + self.around)

    @property
    def first_cycles(self) -> float:
        """The cycles of a step of the first tile that reads a panel: it waits for the panel."""
        return max(self.fetched_cycles, self.vectors * FAR)

    def cycles_over(self, rows: int) -> float:
        """The cycles of a step of all tiles that cover so many rows."""
        return self.first_cycles + (self.down(rows) - 1) * self.fetched_cycles

    def heights(self, is_fetched: bool = False) -> list[PanelTile]:
        """Lower tiles of the same width and this one, so many that any number of rows is covered in about as few cycles as if
        there were one of each height. The lowest has one row. Where the panel is fetched from a farther cache there is one of
        each height, so that as many rows as this one's are covered by one tile: a second one would wait for the panel again."""
        every = [attrs.evolve(self, rows=rows) for rows in range(1, self.rows + 1)]
        if is_fetched:
            return every
        chosen = [every[0], self]

        def cycles(tiles: list[PanelTile], rows: int) -> float:
            return min(tile.down(rows) * tile.cycles for tile in tiles if tile.rows <= rows)

        for rows in range(FEW, SPARSE * self.rows):
            if cycles(chosen, rows) > WASTED * cycles(every, rows):
                least = cycles(every, rows)
                chosen.append(next(tile for tile in every[::-1] if tile.rows <= rows and tile.down(rows) * tile.cycles == least))
        return sorted(chosen, key=lambda tile: tile.rows)

    def down(self, rows: int) -> int:
        """Tiles that cover so many rows."""
        return math.ceil(rows / self.rows)

    def across(self, columns: int) -> int:
        """Panels that cover so many columns."""
        return math.ceil(columns / self.width)

    def starts(self, columns: int) -> list[int]:
        """Where the panels begin."""
        return starts(columns, self.width)

    def row(self, tile: Value, rows: int) -> Operand:
        """A tile's first row."""
        return start(tile, self.rows, rows)

    def column(self, panel: Value, columns: int) -> Operand:
        """A panel's first column."""
        return start(panel, self.width, columns)

    def product(
        self, kernel: Kernel, depth: int, number: Number, panel: Panel, group: Number | None = None, unrolled: int = UNROLLED
    ) -> Registers:
        """The sums of a tile; number(r, k) is the left matrix's, group(r, step) what the panel's instruction takes of it, where
        that is more than a number. So many steps are `unrolled`, written out one after another."""
        acc, taken = self.sums(kernel), panel.instruction.group
        given = number if group is None or taken == 1 else group

        def step(k: Operand) -> None:
            self.step(kernel, acc, lambda r: given(r, k), lambda c: panel.vector(self.lanes, k, c), panel.instruction)

        if isinstance(depth, Extent):
            self._any_depth(kernel, as_index(depth), step)
            return acc
        whole, left = divmod(depth // taken, unrolled)
        with kernel.loop(whole, "k") as k, kernel.unroll(unrolled, "u") as u:
            step(k * unrolled + u)
        with kernel.unroll(left, "u") as u:
            step(whole * unrolled + u)
        if depth % taken:
            last = depth // taken
            self.step(kernel, acc, lambda r: number(r, depth - 1), lambda c: panel.first_of_group(self.lanes, last, c))
        return acc

    def _any_depth(self, kernel: Kernel, depth: Value, step: Callable[[Operand], None]) -> None:
        """All steps of a depth that is not known."""
        whole = kernel.name_value("whole", depth // UNROLLED)
        with kernel.loop(whole, "k") as k, kernel.unroll(UNROLLED, "u") as u:
            step(k * UNROLLED + u)
        with kernel.loop(depth - whole * UNROLLED, "k") as k:
            step(whole * UNROLLED + k)

    def finish(
        self, kernel: Kernel, acc: Registers, store: Callable[[Value, Value, Value], None], is_long: bool = False
    ) -> None:
        """What is done with each sum, a vector at a time, given the sum, its row and its column in the tile.

        What is long stands once in a loop, for which the sums leave their registers."""
        if not is_long:
            with self.each(kernel) as (r, v), kernel.lanes(self.lanes) as lane:
                store(acc.lane((r, v), lane), r, v * self.lanes + lane)
            return
        sums = self.spilled(kernel, acc)
        with kernel.loop(self.rows, "r") as r, kernel.loop(self.vectors, "v") as v, kernel.lanes(self.lanes) as lane:
            store(sums.lane((r, v), lane), r, v * self.lanes + lane)


def panel_tiles(machine: Machine) -> Iterator[PanelTile]:
    """Every tile that fits the registers: the sums, the panel's vectors and one spread number. A single row needs little more
    than its sums: each of the panel's vectors is read where it is multiplied."""
    spare = machine.lanes < FUSED
    for rows, vectors in fitting(machine, lambda rows, vectors: vectors + 1 + spare if rows > 1 else 4):
        yield PanelTile(rows, vectors, machine.lanes)


def share_out(
    kernel: Kernel,
    pairs: Operand,
    tiles: Operand,
    tasks: int,
    work: Callable[[Value], Callable[[Value], None]],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """The work for each tile of each pair, in so many tasks of equal ranges.

    `work` writes what is done once for a pair, and returns what writes the work of one of its tiles; `around` what a task does
    before all of it and after."""
    if tasks <= 1:
        with around(), kernel.loop(pairs, "pair") as pair:
            each = work(pair)
            with kernel.loop(tiles, "t") as t:
                each(t)
        return
    total, name = pairs * tiles, partial(kept, kernel, is_kept=not isinstance(tiles, int))
    with kernel.loop(tasks, "task", "parallel") as task, around():
        first = name("first", task * total // tasks)
        last = name("last", (task + 1) * total // tasks)
        with kernel.loop((last + (tiles - 1)) // tiles - first // tiles, "p") as p:
            pair = name("pair", first // tiles + p)
            low = name("low", maximum(0, first - pair * tiles))
            each = work(pair)
            with kernel.loop(minimum(tiles, last - pair * tiles) - low, "t_") as step:
                each(name("t", low + step))


def by_height(kernel: Kernel, rows: int | Value, tiles: Sequence[PanelTile], write: Callable[[PanelTile], None]) -> None:
    """Code for tiles of several heights, of which that runs which covers the rows of a call in the fewest cycles; for a number of
    rows that is known, the highest alone."""
    if isinstance(rows, int):
        write(tiles[-1])
        return
    by_rows = {tile.rows: tile for tile in tiles}
    by_size(kernel, rows, {tile.rows: tile.half_cycles for tile in tiles}, lambda height: write(by_rows[height]))


def by_size(kernel: Kernel, whole: Operand, cycles_of: Mapping[int, int], write: Callable[[int], None]) -> None:
    """Code for pieces of several sizes, each with the cycles that one takes, of which that runs which covers the whole of a call
    in the fewest; the last of those that take as few."""
    for_each_size(kernel, chosen_size(kernel, whole, cycles_of), cycles_of, write)


def chosen_size(kernel: Kernel, whole: Operand, cycles_of: Mapping[int, int]) -> Buffer:
    """That size, found once, here."""
    count = as_index(whole)
    # In memory, since TVM writes out named values wherever they are used.
    height, cycles = (kernel.stack(name, int32, (1,)) for name in ("height", "cycles"))
    height[0], cycles[0] = 0, MOST_CYCLES
    for size, each in cycles_of.items():
        taken = (as_index(pieces(count, size)) * each).cast(int32)
        with kernel.when((count >= size) & (taken <= cycles[0])):
            height[0], cycles[0] = size, taken
    return height


def for_each_size(kernel: Kernel, chosen: Buffer, sizes: Iterable[int], write: Callable[[int], None]) -> None:
    """Code for each of these sizes, of which the chosen one's runs."""
    for size in sizes:
        with kernel.when(chosen[0].equals(size)):
            write(size)


def at_most(tasks: int, count: Operand) -> int:
    """So many tasks, and no more than there are pieces of work, where their count is known."""
    return min(tasks, count) if isinstance(count, int) else tasks


def best_tile(
    rows: int, columns: int, machine: Machine, what: str = "tile", threads: int = 1, apart: int | None = None
) -> PanelTile | None:
    """The tile that takes the fewest cycles until the last thread is through; None for fewer columns than a vector has.

    By a constant matrix, whose panels come from a farther cache, rows of the left one are so many bytes `apart`. There the first
    tile that reads a panel waits for it."""
    highest = rows if apart is None else min(rows, _highest(apart))
    fitting = [tile for tile in panel_tiles(machine) if tile.width <= columns and tile.rows <= highest]

    def cost(tile: PanelTile) -> tuple[float, int]:
        panels = tile.across(columns)
        most = math.ceil(tile.down(rows) * panels / threads)
        if apart is None:
            return most * tile.cycles, -tile.vectors
        waited = max(tile.first_cycles, FIRST_STEP) - tile.fetched_cycles
        return most * tile.fetched_cycles + math.ceil(panels / threads) * waited, -tile.vectors

    return choose(what, fitting, cost) if fitting else None


def open_tile(columns: int, machine: Machine, what: str = "tile") -> PanelTile | None:
    """The tile for any number of rows: the one that takes the fewest cycles together with the lower ones of its width. A wide one
    would have few heights, so that a panel was fetched again for the fifth row and the sixth; of more than WAYS heights there
    would be much code."""
    narrow = [tile for tile in panel_tiles(machine) if tile.width <= columns and tile.rows <= WAYS]
    fitting = [tile for tile in narrow if tile.rows >= FEW] or narrow

    def cost(tile: PanelTile) -> tuple[float, int]:
        heights = tile.heights(is_fetched=True)
        each = [min(low.cycles_over(rows) for low in heights if low.rows <= rows) / rows for rows in OPEN_ROWS]
        return tile.across(columns) * sum(each), -tile.vectors

    return choose(what, fitting, cost) if fitting else None


def _highest(apart: int | None) -> int:
    """The most rows of a tile whose rows are so many bytes apart."""
    return WAYS if apart and apart % PAGE == 0 else MANY
