"""Attention that never stores the full score matrix.

A task is one head, or some rows of it. It packs the keys and the values into panels (`tiles.py`). Then, for each block of rows
that fits a near cache, it computes the scores, with scale and mask applied, their exponentials and sums, and the product with the
values, which is divided by the sums on writing. All operands are read and written in place (`strides.py`), so no transpose is
needed. Few rows and dynamic lengths have kernels of their own."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.attention.any_length import AnyLength
from partita.accelerators.tvm.kernels.attention.few_rows import FewRows
from partita.accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from partita.accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads
from partita.accelerators.tvm.kernels.contraction.instructions import FMA, Instruction, instruction_for
from partita.accelerators.tvm.kernels.contraction.operands import Matrix, found_in
from partita.accelerators.tvm.kernels.contraction.tiles import MANY, Panel, PanelTile, best_tile
from partita.accelerators.tvm.kernels.language import Buffer, Element, Operand, Value, float32, minimum, uint16
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

BLOCK = 16_384
"""Number of scores that a near cache holds beside the panels."""

MOST_PARTS = 8
"""Maximum number of tasks per head: each packs the keys and values for itself."""

FEWEST_ROWS = 16
"""Minimum number of rows of a part."""


@attrs.frozen(slots=True, eq=False)
class FixedLength(Scoring):
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

    @property
    def filled(self) -> int:
        """Number of keys, rounded up to whole groups of the instruction."""
        return self.instruction.steps(self.keys) * self.instruction.group

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
            values = kernel.memory("values", self.element, (second.across(self.columns) * self.filled * second.width,))
            scores = kernel.memory("scores", float32, (height, self.keys))
            is_same = self.element is float32
            powers = scores if is_same else kernel.memory("powers", self.element, (height, self.filled))
            memory = Scores(scores, powers, kernel.memory("inverse", float32, (height,)))
            self._pack(keys, self.match.key, head, first, self.depth, self.keys)
            self._pack(values, self.match.value, head, second, self.keys, self.columns)
            with kernel.loop(each, "b") as b:
                block = kernel.name_value("block", task % self.parts * each + b)
                row = kernel.name_value("row", minimum(block * height, self.rows - height))
                self._scores(scores, keys, head, row)
                self.make_powers(memory, height)
                self._mix(memory, values, head, row)

    def _pack(self, into: Buffer, matrix: Matrix, head: Head, tile: PanelTile, depth: int, columns: int) -> None:
        """Packs a matrix of `depth` rows into panels."""
        view, group = self.heads.read(matrix), self.instruction.group
        pack = self.heads.pack if group == 1 else self.heads.pack_pairs
        filled = self.instruction.steps(depth) * group
        with self.heads.kernel.loop(tile.across(columns), "j") as j:
            pack(into, j * (filled * tile.width), view, head, tile, depth, tile.column(j, columns))

    def _scores(self, scores: Buffer, keys: Buffer, head: Head, top: Value) -> None:
        kernel, tile = self.heads.kernel, self.first
        query, score = self.heads.read(self.match.query), self.score()
        with kernel.loop(tile.across(self.keys), "j") as j, kernel.loop(tile.down(self.height), "i") as i:
            row, column = tile.row(i, self.height), tile.column(j, self.keys)
            panel = self._panel(keys, j * (self.depth * tile.width), tile)

            def group(r: Value, step: Operand) -> Value:
                return self.instruction.left(query.buffer, query.at(head, top + row + r, step * self.instruction.group))

            acc = tile.product(kernel, self.depth, lambda r, k: query.number(head, top + row + r, k), panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                scores[row + r, column + c] = score(total, head, top + row + r, column + c)

            tile.finish(kernel, acc, store)

    def _panel(self, buffer: Buffer, first: Operand, tile: PanelTile) -> Panel:
        """A panel that was packed for the instruction."""
        return Panel(buffer, first, tile.width * self.instruction.group, self.instruction)

    def _mix(self, memory: Scores, values: Buffer, head: Head, top: Value) -> None:
        kernel, tile = self.heads.kernel, self.second
        result = self.heads.written(self.match.result, self.match.after)
        with kernel.loop(tile.across(self.columns), "j") as j, kernel.loop(tile.down(self.height), "i") as i:
            row, column = tile.row(i, self.height), tile.column(j, self.columns)
            panel = self._panel(values, j * (self.filled * tile.width), tile)

            def group(r: Value, step: Operand) -> Value:
                return self.instruction.left(memory.powers, row + r, step * self.instruction.group)

            acc = tile.product(kernel, self.filled, lambda r, k: memory.scores[row + r, k], panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                position = (result.at(head, top + row + r, column + c),)
                write(result.buffer, position, total * memory.inverse[row + r])

            tile.finish(kernel, acc, store)


def attention(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body that is one attention."""
    match = found_in(body, find_attention)
    if match is None:
        return None
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    if isinstance(rows, Extent) or isinstance(keys, Extent):
        return _of_any_length(body, match, machine)
    heads = Heads.of(body, "attention", tuple(batch))
    few = FewRows(match, heads, machine, rows, keys, depth, columns, rows)
    first, second = best_tile(rows, keys, machine, "scores"), best_tile(rows, columns, machine, "values")
    if few.is_worth_it:
        few.write(few.threads > 1)
    elif first is not None and second is not None:
        instruction = _instruction(match, heads, depth, machine)
        FixedLength(match, heads, machine, rows, keys, depth, columns, first, second, instruction).write()
    else:
        return None
    return heads.problem.draft(heads.kernel, "attention")


def _of_any_length(body: Body, match: Attention, machine: Machine) -> Draft | None:
    """The kernel for a dynamic number of queries or keys."""
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    first, second = best_tile(MANY, MANY, machine, "scores"), best_tile(MANY, columns, machine, "values")
    if first is None or second is None:
        return None
    heads = Heads.of(body, "attention", tuple(batch))
    AnyLength(match, heads, machine, rows, keys, depth, columns, first, second).write()
    return heads.problem.draft(heads.kernel, "attention")


def _instruction(match: Attention, heads: Heads, depth: int, machine: Machine) -> Instruction:
    """The instruction for both products: one that takes pairs if the layout of all matrices allows it, else FMA."""
    dtypes = {element_of(operand.source) for operand in match.operands}
    chosen = instruction_for(dtypes.pop(), machine) if len(dtypes) == 1 else FMA
    is_beside = heads.read(match.query).strides.steps[-1] == 1 and depth % chosen.group == 0
    return chosen if is_beside else FMA
