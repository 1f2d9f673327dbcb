"""Attention without the matrix of all scores in memory.

A task is one head, or some rows of it. It lays the keys and the values out in panels (`panels.py`); then, for a block of rows
that a near cache holds, it makes the scores, with scale and mask worked in, their exponentials and sums, and the product with
the values, which is divided by the sums as it is written. All is read and written where it stands (`strides.py`): the products
before and after never see a transpose."""

from __future__ import annotations

import math

import attrs

from accelerators.tvm.bodies.body import Body, element_of, shape_of
from accelerators.tvm.kernels.attention.any_length import AnyLength
from accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Operand,
    Value,
    constant,
    float32,
    minimum,
    uint16,
)
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.functions import exp_of_negative
from accelerators.tvm.kernels.shared.heads import Head, Heads, found_in
from accelerators.tvm.kernels.shared.instructions import FMA, Instruction, instruction_for
from accelerators.tvm.kernels.shared.numbers import stored_bits, write
from accelerators.tvm.kernels.shared.operands import Matrix
from accelerators.tvm.kernels.shared.panels import MANY, Panel, PanelTile, best_tile
from accelerators.tvm.kernels.shared.row import Row, join_lanes
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.work import MOVES, VALUE_PRODUCTS
from accelerators.tvm.sizes.extent import Extent, is_multiple

BLOCK = 16_384
"""The number of scores that a near cache holds beside the panels."""

MOST_PARTS = 8
"""A head's rows are cut among so many tasks at most: each lays out the keys and values for itself."""

FEWEST_ROWS = 16
"""A part has so many rows at least."""


def attention(body: Body, machine: Machine) -> Draft | None:
    """A body that is one attention."""
    match = found_in(body, "Softmax", find_attention)
    if match is None:
        return None
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    if isinstance(rows, Extent) or isinstance(keys, Extent):
        return _of_any_length(body, match, machine)
    first, second = best_tile(rows, keys, machine, "scores"), best_tile(rows, columns, machine, "values")
    if first is None or second is None:
        return None
    heads = Heads.of(body, "attention", tuple(batch))
    instruction = _instruction(match, heads, depth, machine)
    _Writing(match, heads, machine, rows, keys, depth, columns, first, second, instruction).write()
    return heads.problem.draft(heads.kernel, "attention")


def _of_any_length(body: Body, match: Attention, machine: Machine) -> Draft | None:
    """The kernel where one of the lengths is not known."""
    *batch, rows, keys = shape_of(match.scores[0])
    columns, depth = shape_of(match.mix[0])[-1], shape_of(match.query.value)[-1]
    first, second = best_tile(MANY, MANY, machine, "scores"), best_tile(MANY, columns, machine, "values")
    if first is None or second is None:
        return None
    heads = Heads.of(body, "attention", tuple(batch))
    AnyLength(match, heads, machine, rows, keys, depth, columns, first, second).write()
    return heads.problem.draft(heads.kernel, "attention")


def _instruction(match: Attention, heads: Heads, depth: int, machine: Machine) -> Instruction:
    """The instruction for both products: one that takes pairs where all matrices are stored so that it can."""
    dtypes = {element_of(operand.source) for operand in match.operands}
    chosen = instruction_for(dtypes.pop(), machine) if len(dtypes) == 1 else FMA
    is_beside = heads.read(match.query).strides.steps[-1] == 1 and depth % chosen.group == 0
    return chosen if is_beside else FMA


@attrs.frozen(slots=True, eq=False)
class _Memory:
    """The memory that a task keeps for its head."""

    keys: Buffer
    """The keys in panels."""
    values: Buffer
    """The values in panels."""
    scores: Buffer
    """The scores of a block of rows, and then their exponentials."""
    powers: Buffer
    """The exponentials as the product with the values takes them: the scores themselves, or their bits in two bytes."""
    inverse: Buffer
    """For each row, one over the sum of the exponentials."""


@attrs.frozen(slots=True, eq=False)
class _Writing:
    match: Attention
    heads: Heads
    machine: Machine
    rows: int
    """How many queries there are."""
    keys: int
    """How many keys and values there are."""
    depth: int
    """The depth of queries and keys."""
    columns: int
    """The number of columns of the values."""
    first: PanelTile
    """The tile for the product that makes the scores."""
    second: PanelTile
    """The tile for the product with the values."""
    instruction: Instruction
    """How the sums of both take up products."""

    @property
    def element(self) -> Element:
        """How the right matrices and the exponentials are stored."""
        return float32 if self.instruction.group == 1 else uint16

    @property
    def filled(self) -> int:
        """The number of keys in whole groups."""
        return self.instruction.steps(self.keys) * self.instruction.group

    # -- how the work is cut -----------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """How many threads share the work."""
        laid_out = self.heads.count * self.keys * (self.depth + self.columns)
        return self.machine.threads_for(laid_out * (self.rows + VALUE_PRODUCTS // MOVES), VALUE_PRODUCTS)

    @property
    def parts(self) -> int:
        """Into how many tasks a head is cut, for the threads to have equal work."""
        count, threads = self.heads.count, self.threads
        even = [p for p in range(1, MOST_PARTS + 1) if is_multiple(count * p, threads) and p * FEWEST_ROWS <= self.rows]
        return even[0] if even else 1

    @property
    def blocks(self) -> int:
        """Into how many blocks the rows of a head are cut."""
        least = math.ceil(self.rows / max(BLOCK // self.keys, self.first.rows, self.second.rows))
        return math.ceil(least / self.parts) * self.parts

    @property
    def height(self) -> int:
        """Rows of a block; the last overlaps the one before where they do not divide."""
        step = max(self.first.rows, self.second.rows)
        return min(self.rows, math.ceil(math.ceil(self.rows / self.blocks) / step) * step)

    # -- the kernel --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the whole kernel."""
        kernel, first, second, height = self.heads.kernel, self.first, self.second, self.height
        each = self.blocks // self.parts
        with kernel.tasks(self.heads.count * self.parts, "task", self.threads > 1) as task:
            head = self.heads.head(kernel.name_value("head", task // self.parts))
            keys = kernel.memory("keys", self.element, (first.across(self.keys) * self.depth * first.width,))
            values = kernel.memory("values", self.element, (second.across(self.columns) * self.filled * second.width,))
            scores = kernel.memory("scores", float32, (height, self.keys))
            is_same = self.element is float32
            powers = scores if is_same else kernel.memory("powers", self.element, (height, self.filled))
            memory = _Memory(keys, values, scores, powers, kernel.memory("inverse", float32, (height,)))
            self._pack(memory.keys, self.match.key, head, first, self.depth, self.keys)
            self._pack(memory.values, self.match.value, head, second, self.keys, self.columns)
            with kernel.loop(each, "b") as b:
                block = kernel.name_value("block", task % self.parts * each + b)
                row = kernel.name_value("row", minimum(block * height, self.rows - height))
                self._scores(memory, head, row)
                self._softmax(memory)
                self._mix(memory, head, row)

    def _pack(self, into: Buffer, matrix: Matrix, head: Head, tile: PanelTile, depth: int, columns: int) -> None:
        """Panels of the matrix, which has so many rows and columns."""
        view, group = self.heads.read(matrix), self.instruction.group
        pack = self.heads.pack if group == 1 else self.heads.pack_pairs
        filled = self.instruction.steps(depth) * group
        with self.heads.kernel.loop(tile.across(columns), "j") as j:
            pack(into, j * (filled * tile.width), view, head, tile, depth, tile.column(j, columns))

    def _scores(self, memory: _Memory, head: Head, top: Value) -> None:
        kernel, tile, match = self.heads.kernel, self.first, self.match
        query, wanted = self.heads.read(match.query), match.softmax.inputs[0]
        assert wanted is not None
        factor = match.query.factor * match.key.factor
        score = self.heads.chain(match.chain, match.scores[0], wanted, factor, self.rows, self.keys)
        with kernel.loop(tile.across(self.keys), "j") as j, kernel.loop(tile.down(self.height), "i") as i:
            row, column = tile.row(i, self.height), tile.column(j, self.keys)
            panel = self._panel(memory.keys, j * (self.depth * tile.width), tile)

            def group(r: Value, step: Operand) -> Value:
                return self.instruction.left(query.buffer, query.at(head, top + row + r, step * self.instruction.group))

            acc = tile.product(kernel, self.depth, lambda r, k: query.number(head, top + row + r, k), panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                memory.scores[row + r, column + c] = score(total, head, top + row + r, column + c)

            tile.finish(kernel, acc, store)

    def _softmax(self, memory: _Memory) -> None:
        """Turn the scores of each row into exponentials; `inverse` becomes one over their sum."""
        kernel, lanes, scores = self.heads.kernel, self.machine.lanes, memory.scores
        row, whole = Row(self.keys, lanes), self.keys // lanes
        with kernel.loop(self.height, "r") as r:
            partial, numbers = row.partial_sums(kernel), kernel.stack("m", float32, (2,))
            row.reduce(kernel, "max", lambda column, count: scores.vector(count, r, column), partial, numbers, 0)
            sums = partial[0]

            def power(column: Operand, total: Buffer, at: Operand) -> None:
                scores[r, column] = exp_of_negative(scores[r, column] - numbers[0])
                total[at] = total[at] + scores[r, column]
                if memory.powers is not scores:
                    memory.powers[r, column] = stored_bits(scores[r, column], self.element)

            sums[0] = constant(0.0, float32, lanes)
            with kernel.loop(whole, "v") as v, kernel.lanes(lanes) as lane:
                power(v * lanes + lane, sums, lane)
            numbers[1] = join_lanes("sum", sums, lanes)
            with kernel.loop(self.keys % lanes, "e") as e:
                power(whole * lanes + e, numbers, 1)
            if self.filled > self.keys:
                memory.powers[r, self.keys] = 0
            self._invert(memory, row, r, numbers[1])

    def _panel(self, buffer: Buffer, first: Operand, tile: PanelTile) -> Panel:
        """A panel that was laid out for the instruction."""
        return Panel(buffer, first, tile.width * self.instruction.group, self.instruction)

    def _invert(self, memory: _Memory, row: Row, r: Value, total: Value) -> None:
        """One over the sum. Where rows of NaN are to become zeros, their scores become zeros here."""
        kernel = self.heads.kernel
        if not self.match.guard:
            memory.inverse[r] = 1.0 / total
            return

        def clear(column: Operand, count: int) -> None:
            memory.powers[r, column] = constant(0, self.element, count)

        with kernel.when(total >= 0.0):
            memory.inverse[r] = 1.0 / total
        with kernel.otherwise():
            row.each(kernel, clear)
            memory.inverse[r] = 1.0

    def _mix(self, memory: _Memory, head: Head, top: Value) -> None:
        kernel, tile = self.heads.kernel, self.second
        result = self.heads.written(self.match.result, self.match.after)
        with kernel.loop(tile.across(self.columns), "j") as j, kernel.loop(tile.down(self.height), "i") as i:
            row, column = tile.row(i, self.height), tile.column(j, self.columns)
            panel = self._panel(memory.values, j * (self.filled * tile.width), tile)

            def group(r: Value, step: Operand) -> Value:
                return self.instruction.left(memory.powers, row + r, step * self.instruction.group)

            acc = tile.product(kernel, self.filled, lambda r, k: memory.scores[row + r, k], panel, group)

            def store(total: Value, r: Value, c: Value) -> None:
                position = (result.at(head, top + row + r, column + c),)
                write(result.buffer, position, total * memory.inverse[row + r])

            tile.finish(kernel, acc, store)
