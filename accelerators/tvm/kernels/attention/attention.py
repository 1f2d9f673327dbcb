"""Attention that never stores the full score matrix.

A task is one head, or some rows of it. It packs the keys and the values into panels (`contraction/panels.py`). Then, for each
block of rows that fits a near cache, it computes the scores, with scale and mask applied, their exponentials and sums, and the
product with the values, which is divided by the sums on writing. All operands are read and written in place (`strides.py`), so no
transpose is needed. Few rows have a kernel of their own (`in_place.py`).

With dynamic lengths the same loops have the lengths as values. Queries are copied block by block into contiguous memory; the last
row is repeated, so that any number fills whole tiles. The scores of a row are padded to whole vectors with -inf, which has no
weight. There may be fewer keys than a panel is wide: then narrower panels are used, chosen at run time. So is the code for a
single query, which packs no panels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.attention.in_place import FewRows
from partita.accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from partita.accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import FMA, Instruction, instruction_for
from partita.accelerators.tvm.kernels.contraction.operands import Matrix, found_in
from partita.accelerators.tvm.kernels.contraction.panels import MANY, Panel, PanelTile, best_tile
from partita.accelerators.tvm.kernels.language import Buffer, Element, Operand, Value, float32, maximum, minimum, uint16
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import kept, pieces, start
from partita.accelerators.tvm.kernels.shared.row import Row
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple, known_least

BLOCK = 16_384
"""Number of scores that a near cache holds beside the panels."""

MOST_PARTS = 8
"""Maximum number of tasks per head: each packs the keys and values for itself."""

FEWEST_ROWS = 16
"""Minimum number of rows of a part."""

HIGHEST = 128
"""Maximum number of rows of a block whose queries are copied, so that these stay in a near cache."""


@attrs.frozen(slots=True, eq=False)
class PanelAttention(Scoring):
    """Writes the kernel for enough rows that panels pay off."""

    first: PanelTile
    """The tile for the product of queries and keys."""
    second: PanelTile
    """The tile for the product with the values."""
    instruction: Instruction
    """The instruction that accumulates both products."""

    @property
    def element(self) -> Element:
        """The element type in which the right matrices and the exponentials are stored."""
        return float32 if self.instruction.group == 1 else uint16

    def filled(self, depth: int) -> int:
        """The depth of a product, rounded up to whole groups of the instruction."""
        group = self.instruction.group
        return depth if group == 1 else self.instruction.steps(depth) * group

    @property
    def value_rows(self) -> int | Value:
        """Rows of the packed values."""
        return self.filled(self.keys)

    # -- how the work is cut -----------------------------------------------------------------------------

    @property
    def parts(self) -> int:
        """Number of tasks per head, so that the threads have equal work."""
        count, threads = self.heads.count, self.threads
        even = [p for p in range(1, MOST_PARTS + 1) if is_multiple(count * p, threads) and p * FEWEST_ROWS <= self.rows]
        return even[0] if even else 1

    @property
    def blocks(self) -> int:
        """Number of blocks of a head's rows."""
        least = math.ceil(self.rows / max(BLOCK // self.keys, self.first.rows, self.second.rows))
        return math.ceil(least / self.parts) * self.parts

    @property
    def height(self) -> int:
        """Rows of a block; the last block overlaps the one before if they do not divide the rows."""
        step = max(self.first.rows, self.second.rows)
        return min(self.rows, math.ceil(math.ceil(self.rows / self.blocks) / step) * step)

    # -- the kernel --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Writes the whole kernel."""
        kernel, first, second, height = self.heads.kernel, self.first, self.second, self.height
        each = self.blocks // self.parts
        with kernel.tasks(self.heads.count * self.parts, "task", self.threads > 1) as task:
            head = self.heads.head(kernel.name_value("head", task // self.parts))
            keys = kernel.memory("keys", self.element, (first.across(self.keys) * self.depth * first.width,))
            filled = self.filled(self.keys)
            values = kernel.memory("values", self.element, (second.across(self.columns) * filled * second.width,))
            scores = kernel.memory("scores", float32, (height, self.keys))
            is_same = self.element is float32
            powers = scores if is_same else kernel.memory("powers", self.element, (height, filled))
            memory = Scores(scores, powers, kernel.memory("inverse", float32, (height,)))
            self._pack_keys(keys, head, first)
            self._pack_values(values, head)
            with kernel.loop(each, "b") as b:
                block = kernel.name_value("block", task % self.parts * each + b)
                row = kernel.name_value("row", minimum(block * height, self.rows - height))
                self._scores(first, scores, None, keys, head, row, height)
                self.make_powers(memory, height)
                self._mix(memory, values, head, row, height)

    def _pack_keys(self, into: Buffer, head: Head, tile: PanelTile) -> None:
        """Packs the keys into panels of the tile's width."""
        self._pack(into, self.match.key, head, tile, (self.depth, self.keys), self.filled(self.depth))

    def _pack_values(self, into: Buffer, head: Head) -> None:
        """Packs the values into panels."""
        self._pack(into, self.match.value, head, self.second, (self.keys, self.columns), self.value_rows)

    def _pack(
        self, into: Buffer, matrix: Matrix, head: Head, tile: PanelTile, sizes: tuple[int, int], filled: int | Value
    ) -> None:
        """Packs a matrix of these sizes into panels of `filled` rows."""
        view, pack = self.heads.read(matrix), self.heads.pack if self.instruction.group == 1 else self.heads.pack_pairs
        depth, columns = sizes
        with self.heads.kernel.loop(pieces(columns, tile.width), "j") as j:
            pack(into, j * (filled * tile.width), view, head, tile, depth, tile.column(j, columns))

    def _panel(self, buffer: Buffer, j: Value, filled: int | Value, tile: PanelTile) -> Panel:
        """Panel `j` of a packed matrix of `filled` rows."""
        return Panel(buffer, j * (filled * tile.width), tile.width * self.instruction.group, self.instruction)

    def _at(self, name: str, position: Operand) -> Operand:
        """A tile's first row or column, as an operand of all its positions."""
        return position

    def _row(self, row: Value) -> Value:
        """A row that exists, for a row of a block."""
        return row

    @contextmanager
    def _tiles(self, tile: PanelTile, columns: int, height: int | Value) -> Iterator[tuple[Operand, Operand, Value]]:
        """A loop over the tiles of a block: a tile's first row and column, and the number of its panel."""
        kernel = self.heads.kernel
        with kernel.loop(pieces(columns, tile.width), "j") as j:
            column = self._at("column", tile.column(j, columns))
            with kernel.loop(pieces(height, tile.rows), "i") as i:
                yield self._at("row", start(i, tile.rows, height)), column, j

    def _scores(
        self, tile: PanelTile, scores: Buffer, copied: Buffer | None, keys: Buffer, head: Head, top: Value, height: int | Value
    ) -> None:
        """Computes the scores of a block from row `top` on, whose queries may have been copied."""
        kernel, query, score = self.heads.kernel, self.heads.read(self.match.query), self.score()
        with self._tiles(tile, self.keys, height) as (row, column, j):

            def number(r: Value, k: Operand) -> Value:
                return query.number(head, top + row + r, k) if copied is None else copied[row + r, k]

            def group(r: Value, step: Operand) -> Value:
                return self.instruction.left(query.buffer, query.at(head, top + row + r, step * self.instruction.group))

            acc = tile.product(kernel, self.depth, number, self._panel(keys, j, self.filled(self.depth), tile), group)

            def store(total: Value, r: Value, c: Value) -> None:
                scores[row + r, column + c] = score(total, head, self._row(top + row + r), column + c)

            tile.finish(kernel, acc, store)

    def _mix(self, memory: Scores, values: Buffer, head: Head, top: Value, height: int | Value) -> None:
        """Computes the results of a block from row `top` on."""
        kernel, tile = self.heads.kernel, self.second
        result = self.heads.written(self.match.result, self.match.after)
        with self._tiles(tile, self.columns, height) as (row, column, j):

            def group(r: Value, step: Operand) -> Value:
                return self.instruction.left(memory.powers, row + r, step * self.instruction.group)

            panel = self._panel(values, j, self.value_rows, tile)
            acc = tile.product(kernel, self.filled(self.keys), lambda r, k: memory.scores[row + r, k], panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                position = (result.at(head, self._row(top + row + r), column + c),)
                write(result.buffer, position, total * memory.inverse[row + r])

            tile.finish(kernel, acc, store)


@attrs.frozen(slots=True, eq=False)
class OpenPanelAttention(PanelAttention):
    """Writes the kernel for a dynamic number of queries or keys."""

    def write(self) -> None:
        """Writes the whole kernel: code for one query, and for any number of them."""
        kernel, count = self.heads.kernel, self.rows if isinstance(self.rows, int) else 1
        few = FewRows(self.match, self.heads, self.machine, self.rows, self.keys, self.depth, self.columns, count)
        if known_least(self.rows) > count or not few.is_worth_it:
            self._in_panels()
        elif count == self.rows:
            few.write(self._is_shared)
        else:
            with kernel.when(as_index(self.rows) < 2):
                few.write(self._is_shared)
            with kernel.otherwise():
                self._in_panels()

    @property
    def _is_shared(self) -> bool:
        """True if threads share the heads."""
        return self.machine.threads_for(self.heads.count) > 1

    def _in_panels(self) -> None:
        """Writes code for any number of queries, with keys and values packed into panels."""
        kernel, second = self.heads.kernel, self.second
        tallest = self._tallest()
        height = kept(kernel, "height", tallest)
        blocks = kept(kernel, "blocks", (as_index(self.rows) + height - 1) // height)
        # A task is a head if there are enough of them, so that its keys are packed once for all its blocks.
        with kernel.tasks(self.heads.count, "task", self._is_shared) as task:
            head = self.heads.head(task)
            keys = kernel.memory("keys", float32, ((as_index(self.keys) + (self.first.width - 1)) * self.depth,))
            values = kernel.memory("values", float32, (as_index(self.keys) * (second.across(self.columns) * second.width),))
            queries = kernel.memory("queries", float32, (tallest, self.depth))
            scores = kernel.memory("scores", float32, (tallest, as_index(self.row.size)))
            memory = Scores(scores, scores, kernel.memory("inverse", float32, (tallest,)))
            for tile, is_taken in self._tiles_by_width():
                with kernel.when(is_taken):
                    self._pack_keys(keys, head, tile)
            self._pack_values(values, head)
            with kernel.loop(blocks, "block") as block:
                top = kept(kernel, "top", maximum(minimum(block * height, as_index(self.rows) - height), 0))
                self._copy_queries(queries, head, top, height)
                for tile, is_taken in self._tiles_by_width():
                    with kernel.when(is_taken):
                        self._scores(tile, scores, queries, keys, head, top, height)
                self._fill_up(scores, height)
                self.make_powers(memory, height)
                self._mix(memory, values, head, top, height)

    def _tiles_by_width(self) -> list[tuple[PanelTile, Value]]:
        """The tile for the scores and narrower ones for fewer keys, each with the condition under which a call uses it."""
        lanes, keys, least = self.first.lanes, as_index(self.keys), known_least(self.keys)
        narrow = [PanelTile(self.first.rows, 1, count) for count in (lanes, 1) if count < self.first.width]
        chosen, wider = list[tuple[PanelTile, Value]](), None
        for tile in [self.first, *narrow]:
            fits = None if least >= tile.width else keys >= tile.width
            below = None if wider is None else keys < wider
            chosen.append((tile, _both(fits, below, keys)))
            wider = tile.width
        return chosen

    @property
    def row(self) -> Row:
        """The scores of one query, padded to whole vectors."""
        lanes = self.machine.lanes
        return Row(as_index(pieces(self.keys, lanes)) * lanes, lanes, is_whole=True)

    def _tallest(self) -> Value:
        """Number of rows of a block: as few blocks as possible, of about equal height, so that few rows are in two."""
        rows, step = as_index(self.rows), max(self.first.rows, self.second.rows)
        most = maximum(minimum(BLOCK // maximum(as_index(self.keys), 1), HIGHEST), step)
        blocks = maximum((rows + most - 1) // most, 1)
        return maximum((rows + blocks - 1) // blocks, step)

    @property
    def value_rows(self) -> Value:
        """Rows of the packed values."""
        return as_index(self.keys)

    def _at(self, name: str, position: Operand) -> Value:
        """The position, computed once for a tile."""
        return kept(self.heads.kernel, name, as_index(position))

    def _row(self, row: Value) -> Value:
        """The row, or the last one if that is less."""
        return minimum(row, as_index(self.rows) - 1)

    def _copy_queries(self, queries: Buffer, head: Head, top: Value, height: Value) -> None:
        kernel, view = self.heads.kernel, self.heads.read(self.match.query)
        with kernel.loop(height, "r") as r:
            row = kept(kernel, "row", self._row(top + r))
            with kernel.loop(self.depth, "k") as k:
                queries[r, k] = view.number(head, row, k)

    def _fill_up(self, scores: Buffer, height: Value) -> None:
        """Sets the scores beyond the last key to -inf, so that they have no weight."""
        kernel, keys = self.heads.kernel, as_index(self.keys)
        with kernel.loop(height, "r") as r, kernel.loop(as_index(self.row.size) - keys, "e") as e:
            scores[r, keys + e] = -math.inf


def _both(fits: Value | None, below: Value | None, keys: Value) -> Value:
    """Conjunction of two conditions, each of which may be absent."""
    given = [condition for condition in (fits, below) if condition is not None]
    if not given:
        return keys >= 0
    return given[0] if len(given) == 1 else given[0] & given[1]


def attention(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one attention."""
    match = found_in(body, find_attention)
    if match is None:
        return None
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    heads = Heads.of(body, "attention", tuple(batch))
    sizes = match, heads, machine, rows, keys, depth, columns
    is_open = isinstance(rows, Extent) or isinstance(keys, Extent)
    first = best_tile(MANY if is_open else rows, MANY if is_open else keys, machine, "scores")
    second = best_tile(MANY if is_open else rows, columns, machine, "values")
    few = None if is_open else FewRows(*sizes, rows)
    if few is not None and few.is_worth_it:
        few.write(few.threads > 1)
    elif first is None or second is None:
        return None
    elif is_open:
        OpenPanelAttention(*sizes, first, second, FMA).write()
    else:
        PanelAttention(*sizes, first, second, _instruction(match, heads, depth, machine)).write()
    return heads.problem.draft(heads.kernel, "attention")


def _instruction(match: Attention, heads: Heads, depth: int, machine: Machine) -> Instruction:
    """The instruction for both products: one that takes pairs if the layout of all matrices allows it, else FMA."""
    dtypes = {element_of(operand.source) for operand in match.operands}
    chosen = instruction_for(dtypes.pop(), machine) if len(dtypes) == 1 else FMA
    is_beside = heads.read(match.query).strides.steps[-1] == 1 and depth % chosen.group == 0
    return chosen if is_beside else FMA
