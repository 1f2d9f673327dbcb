"""Matrix products in panels: the code that kernels for matrix products and for attention share.

The right matrix is stored in panels of a few vectors' width, each one contiguous stream. A tile, some rows of the left matrix
times one panel, keeps its sums in registers: a step of the depth loads the panel's vectors, and broadcasts an element of each row
over the lanes. If the tile does not divide a size, the last tile overlaps the one before and recomputes the same elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import ClassVar

import attrs

from partita.accelerators.tvm.kernels.contraction.instruction_meanings import FMA, Instruction, Number
from partita.accelerators.tvm.kernels.contraction.tile_table import REGISTER_TILES
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    both_rows,
    float32,
    high_halves,
    int32,
    low_halves,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.loops import kept, pieces, start, starts
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent

LATENCY = 4.0
"""Latency of a product in cycles."""

PORTS = 2
"""Number of products, and of loads, that start in one cycle."""


def step_cycles(rows: int, vectors: int, addresses: float = 0.0) -> float:
    """Estimated cycles of a step of a tile: the slowest of products, loads (with the cycles of their addresses) and latency."""
    return max(rows * vectors / PORTS, (rows + vectors) / PORTS + addresses, LATENCY)


@attrs.frozen(slots=True)
class Tile:
    """A tile of sums in registers."""

    rows: int
    """Rows: elements of the left matrix that each vector is multiplied by."""
    vectors: int
    """Vectors per row."""
    lanes: int
    """Elements of a vector."""

    around: ClassVar[float] = 1.0
    """Loop overhead of a step in cycles."""

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def cycles(self) -> float:
        """Estimated cycles of a step, with the loop overhead."""
        return step_cycles(self.rows, self.vectors) + self.around

    def sums(self, kernel: Kernel) -> Registers:
        """The registers for the sums, set to zero."""
        acc = kernel.registers("acc", float32, (self.rows, self.vectors), self.lanes)
        with self.each(kernel) as (r, v):
            acc[r, v] = 0.0
        return acc

    def step(
        self,
        kernel: Kernel,
        acc: Registers,
        number: Callable[[Value], Value],
        vector: Callable[[Value], Value],
        instruction: Instruction = FMA,
    ) -> None:
        """Adds one product to each sum, or as many as the instruction makes: the element of row r times the vector that begins at
        a column of the tile."""
        kind = vector(as_index(0)).type
        read = kernel.registers("read", kind.element, (self.vectors,), kind.lanes)
        with kernel.unroll(self.vectors, "v") as v:
            read[v] = vector(v * self.lanes)
        with kernel.unroll(self.rows, "r") as r:
            spread = kernel.name_value("number", number(r).spread(self.lanes))
            with kernel.unroll(self.vectors, "v") as v:
                acc[r, v] = instruction.add(acc[r, v], spread, read[v])

    @contextmanager
    def each(self, kernel: Kernel) -> Iterator[tuple[Value, Value]]:
        """A block for each row and vector, unrolled."""
        with kernel.unroll(self.rows, "r") as r, kernel.unroll(self.vectors, "v") as v:
            yield r, v

    def spilled(self, kernel: Kernel, acc: Registers) -> Registers:
        """A copy of the sums in memory, to be read in a loop."""
        sums = kernel.registers("sums", float32, (self.rows, self.vectors), self.lanes)
        with self.each(kernel) as (r, v):
            sums[r, v] = acc[r, v]
        return sums


def tiles(machine: Machine) -> Iterator[Tile]:
    """The tiles for convolutions of plain images."""
    for rows, vectors in REGISTER_TILES["plain convolution of float32"].sizes(machine):
        yield Tile(rows, vectors, machine.lanes)


MANY = 840
"""A row count that every tile height divides: the tile with the fewest cycles for it has the fewest for many rows."""

OPEN_ROWS = tuple(round(4 * 2 ** (i / 4)) for i in range(33))
"""Row counts from 4 to 1024 on a logarithmic scale: the tile with the fewest cycles over them is used for dynamic row counts."""

WAYS = 9
"""Maximum number of rows of a tile whose rows are a multiple of PAGE apart: the nearest cache has 8 ways for such addresses, and
with more rows each step waits for some that were evicted."""

PAGE = 4096
"""Distance in bytes of addresses that share a set of the nearest cache."""

MOST_CYCLES = (1 << 31) - 1
"""An upper bound of the cycles of any number of rows."""

FEW = 4
"""A product of fewer rows is bound by loading the matrix, not by multiplying."""

SPARSE = 4
"""Beyond the rows of this many tiles, the cost of an overlap is negligible."""

WASTED = 1.25
"""Factor over the cycles of the best height from which on a tile of that height is added."""

FETCH = 2.0
"""Cycles to load a vector of the panel, which is not in the nearest cache."""

FAR = 4.0
"""Cycles to load a vector of the panel for the first tile that reads it: no cache of the core has it yet."""

FIRST_STEP = 10.5
"""Minimum cycles of a step of that tile: the processor looks some hundred instructions ahead, and so requests few cache lines
at a time if each vector meets many rows. With AVX2 eight rows by one vector took twice the time of four by three."""

UNROLLED = 4
"""Steps of the depth to unroll."""

PRODUCTS = 16
"""Vector products in a loop body at which the loop itself costs little."""


@attrs.frozen(slots=True)
class Panel:
    """A contiguous part of the right matrix: each step of the depth has as many elements as the tile is wide."""

    buffer: Buffer
    first: Operand
    """Start in the buffer."""
    apart: int
    """Distance from one step's elements to the next step's."""
    instruction: Instruction = FMA
    """The instruction that it is packed for."""

    def vector(self, lanes: int, step: Operand, column: Value) -> Value:
        """The instruction's right operand at a step, from a column on."""
        group = self.instruction.group
        at = self.first + step * self.apart + (column if group == 1 else column * group)
        return self.instruction.right(self.buffer, at, lanes)

    def first_of_group(self, lanes: int, step: Operand, column: Value) -> Value:
        """The first elements of a step's groups, from a column on, for a depth that ends inside a group."""
        return (self.vector(lanes, step, column) << 16).bits_as(float32)


@attrs.frozen(slots=True)
class PanelTile(Tile):
    """Rows of the left matrix times one panel of the right one, which is as wide as the tile."""

    around: ClassVar[float] = 0.5

    @property
    def half_cycles(self) -> int:
        """Cycles of a step, in halves."""
        return round(self.cycles * 2)

    @property
    def few_steps(self) -> int:
        """Steps to unroll if there is code for tiles of several heights: enough to make the loop's cost negligible, and no more,
        since LLVM's time grows with the code."""
        return min(UNROLLED, math.ceil(PRODUCTS / (self.rows * self.vectors)))

    @property
    def fetched_cycles(self) -> float:
        """Cycles of a step if the panel comes from a farther cache, which may be the bottleneck."""
        return max(self.cycles, self.vectors * FETCH + self.around)

    @property
    def first_cycles(self) -> float:
        """Cycles of a step of the first tile that reads a panel and waits for it."""
        return max(self.fetched_cycles, self.vectors * FAR)

    def cycles_over(self, rows: int) -> float:
        """Cycles of a step of all tiles that cover `rows`."""
        return self.first_cycles + (self.down(rows) - 1) * self.fetched_cycles

    def heights(self, is_fetched: bool = False) -> list[PanelTile]:
        """This tile and lower ones of its width, chosen so that any number of rows takes about as few cycles as with a tile of
        each height. The lowest has one row. If the panel is fetched from a farther cache there is one of each height, so that any
        number of rows up to this tile's is covered by one tile: a second one would wait for the panel again."""
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
        """Number of tiles that cover `rows`."""
        return math.ceil(rows / self.rows)

    def across(self, columns: int) -> int:
        """Number of panels that cover `columns`."""
        return math.ceil(columns / self.width)

    def starts(self, columns: int) -> list[int]:
        """First columns of the panels."""
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
        """The sums of a tile; number(r, k) is the left matrix's element, group(r, step) the left operand of an instruction that
        takes more than one element. `unrolled` steps are written out one after another."""
        acc, taken = self.sums(kernel), panel.instruction.group
        given = number if group is None or panel.instruction.widens else group

        def step(k: Operand) -> None:
            instruction = panel.instruction
            one, lanes = self.step if instruction.rows == 1 else self.step_of_rows, self.lanes // instruction.rows
            one(kernel, acc, lambda r: given(r, k), lambda c: panel.vector(lanes, k, c), instruction)

        if isinstance(depth, Extent):
            self._any_depth(kernel, as_index(depth), step)
            return acc
        whole, left = divmod(depth // taken, unrolled)
        with kernel.loop(whole, "k") as k, kernel.unroll(unrolled, "u") as u:
            step(k * unrolled + u)
        with kernel.unroll(left, "u") as u:
            step(whole * unrolled + u)
        if panel.instruction.rows > 1:
            with kernel.unroll(self.rows // 2, "r") as r, kernel.unroll(self.vectors, "v") as v:
                rows = [kernel.name_value(f"row{i}", acc[r * 2 + i, v]) for i in range(2)]
                acc[r * 2, v], acc[r * 2 + 1, v] = low_halves(*rows), high_halves(*rows)
        if depth % taken:
            last = depth // taken
            self.step(kernel, acc, lambda r: number(r, depth - 1), lambda c: panel.first_of_group(self.lanes, last, c))
        return acc

    def step_of_rows(
        self,
        kernel: Kernel,
        acc: Registers,
        number: Callable[[Value], Value],
        vector: Callable[[Value], Value],
        instruction: Instruction,
    ) -> None:
        """The same for an instruction that takes two rows and two columns at once. The sums of two rows and four columns are in
        two vectors, one for each two columns."""
        kind = vector(as_index(0)).type
        read = kernel.registers("read", kind.element, (self.vectors, 2), kind.lanes)
        with kernel.unroll(self.vectors, "v") as v, kernel.unroll(2, "i") as i:
            read[v, i] = vector(v * self.lanes + i * 2)
        with kernel.unroll(self.rows // 2, "r") as r:
            rows = kernel.name_value("rows", both_rows(number(r * 2), number(r * 2 + 1)))
            with kernel.unroll(self.vectors, "v") as v, kernel.unroll(2, "i") as i:
                acc[r * 2 + i, v] = instruction.add(acc[r * 2 + i, v], rows, read[v, i])

    def for_rows(self, registers: int) -> PanelTile | None:
        """The tile with an even number of rows, whose panel's vectors take twice as many registers; None if no two rows fit."""
        highest = min(self.rows, (registers - 2) // self.vectors - 2) // 2 * 2
        return attrs.evolve(self, rows=highest) if highest > 0 else None

    def _any_depth(self, kernel: Kernel, depth: Value, step: Callable[[Operand], None]) -> None:
        """All steps of a dynamic depth."""
        whole = kernel.name_value("whole", depth // UNROLLED)
        with kernel.loop(whole, "k") as k, kernel.unroll(UNROLLED, "u") as u:
            step(k * UNROLLED + u)
        with kernel.loop(depth - whole * UNROLLED, "k") as k:
            step(whole * UNROLLED + k)

    def finish(
        self, kernel: Kernel, acc: Registers, store: Callable[[Value, Value, Value], None], is_long: bool = False
    ) -> None:
        """Calls `store` with each sum, a vector at a time, and its row and column in the tile.

        A long epilogue is written once, in a loop, for which the sums are spilled from their registers."""
        if not is_long:
            with self.each(kernel) as (r, v), kernel.lanes(self.lanes) as lane:
                store(acc.lane((r, v), lane), r, v * self.lanes + lane)
            return
        sums = self.spilled(kernel, acc)
        with kernel.loop(self.rows, "r") as r, kernel.loop(self.vectors, "v") as v, kernel.lanes(self.lanes) as lane:
            store(sums.lane((r, v), lane), r, v * self.lanes + lane)


def panel_tiles(machine: Machine) -> Iterator[PanelTile]:
    """The tiles for products by panels."""
    for rows, vectors in REGISTER_TILES["product of float32"].sizes(machine):
        yield PanelTile(rows, vectors, machine.lanes)


def share_out(
    kernel: Kernel,
    pairs: Operand,
    tiles: Operand,
    tasks: int,
    work: Callable[[Value], Callable[[Value], None]],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """The work for each tile of each pair, divided among `tasks` equal ranges.

    `work` writes what is done once for a pair, and returns the function that writes the work of one of its tiles; `around` writes
    what encloses a task."""
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
    """Code for tiles of several heights; at run time the height that covers the rows in the fewest cycles is used. For a static
    number of rows there is only the highest."""
    if isinstance(rows, int):
        write(tiles[-1])
        return
    by_rows = {tile.rows: tile for tile in tiles}
    by_size(kernel, rows, {tile.rows: tile.half_cycles for tile in tiles}, lambda height: write(by_rows[height]))


def by_size(kernel: Kernel, whole: Operand, cycles_of: Mapping[int, int], write: Callable[[int], None]) -> None:
    """Code for pieces of several sizes, each with its cycles per piece; at run time the size that covers the whole in the fewest
    cycles is used, the last one of ties."""
    for_each_size(kernel, chosen_size(kernel, whole, cycles_of), cycles_of, write)


def chosen_size(kernel: Kernel, whole: Operand, cycles_of: Mapping[int, int]) -> Buffer:
    """The size that covers the whole in the fewest cycles, computed once, at this point."""
    count = as_index(whole)
    # In memory, since TVM inlines named values.
    height, cycles = (kernel.stack(name, int32, (1,)) for name in ("height", "cycles"))
    height[0], cycles[0] = 0, MOST_CYCLES
    for size, each in cycles_of.items():
        taken = (as_index(pieces(count, size)) * each).cast(int32)
        with kernel.when((count >= size) & (taken <= cycles[0])):
            height[0], cycles[0] = size, taken
    return height


def for_each_size(kernel: Kernel, chosen: Buffer, sizes: Iterable[int], write: Callable[[int], None]) -> None:
    """Code for each of these sizes; the chosen one's is executed."""
    for size in sizes:
        with kernel.when(chosen[0].equals(size)):
            write(size)


def at_most(tasks: int, count: Operand) -> int:
    """The number of tasks, at most one per piece of work if their count is static."""
    return min(tasks, count) if isinstance(count, int) else tasks


def best_tile(
    rows: int, columns: int, machine: Machine, what: str = "tile", threads: int = 1, apart: int | None = None
) -> PanelTile | None:
    """The tile with the fewest cycles until the last thread is done; None for fewer columns than a vector has.

    `apart` is given for a constant matrix, whose panels come from a farther cache: the distance in bytes between the left
    matrix's rows. The first tile that reads a panel waits for it."""
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


def open_tile(columns: int, machine: Machine) -> PanelTile | None:
    """The tile for a dynamic number of rows: the one that, with the lower ones of its width, takes the fewest cycles. A wide one
    would have few heights, so that a panel was fetched again for the fifth row and the sixth; more than WAYS heights would be
    much code."""
    narrow = [tile for tile in panel_tiles(machine) if tile.width <= columns and tile.rows <= WAYS]
    fitting = [tile for tile in narrow if tile.rows >= FEW] or narrow

    def cost(tile: PanelTile) -> tuple[float, int]:
        heights = tile.heights(is_fetched=True)
        each = [min(low.cycles_over(rows) for low in heights if low.rows <= rows) / rows for rows in OPEN_ROWS]
        return tile.across(columns) * sum(each), -tile.vectors

    return choose("tile", fitting, cost) if fitting else None


def _highest(apart: int | None) -> int:
    """Maximum number of rows of a tile whose rows are `apart` bytes from one another."""
    return WAYS if apart and apart % PAGE == 0 else MANY
