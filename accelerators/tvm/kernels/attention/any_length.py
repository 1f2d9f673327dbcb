"""Attention over any number of queries and keys.

As for lengths that are known (`attention.py`), with the lengths as values. Queries are copied beside one another block by block,
and rows beyond the last are the last again, so that any number fills whole tiles. Of keys there may be fewer than a panel is
wide: then narrower panels are taken, which is decided when the length is known."""

from __future__ import annotations

import attrs

from accelerators.errors import CompileError
from accelerators.tvm.bodies.body import element_of
from accelerators.tvm.kernels.attention.pattern import Attention
from accelerators.tvm.kernels.language import Buffer, Value, constant, float32, maximum, minimum
from accelerators.tvm.kernels.language.values import as_index
from accelerators.tvm.kernels.shared.functions import exp_of_negative
from accelerators.tvm.kernels.shared.heads import Head, Heads
from accelerators.tvm.kernels.shared.numbers import write
from accelerators.tvm.kernels.shared.panels import Panel, PanelTile
from accelerators.tvm.kernels.shared.row import Row, join_lanes
from accelerators.tvm.kernels.shared.tile import kept, pieces
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.sizes.extent import known_least

BLOCK = 16_384
"""The number of scores that a near cache holds beside the panels."""

HIGHEST = 64
"""A block has so many rows at most: a head is cut into as many tasks as it has blocks."""


@attrs.frozen(slots=True, eq=False)
class _Memory:
    """The memory that a task keeps for its block."""

    keys: Buffer
    """The keys in panels."""
    values: Buffer
    """The values in panels."""
    queries: Buffer
    """The block's queries."""
    scores: Buffer
    """The scores, and then their exponentials."""
    inverse: Buffer
    """For each row, one over the sum of the exponentials."""


@attrs.frozen(slots=True, eq=False)
class AnyLength:
    """Writes the kernel."""

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

    def write(self) -> None:
        """The kernel: code for each width of panels, of which one runs."""
        if any(element_of(operand.source) != "float32" for operand in self.match.operands):
            raise CompileError("there is no attention of narrow numbers for any length")
        kernel, keys = self.heads.kernel, as_index(self.keys)
        least = known_least(self.keys)
        wider: int | None = None
        for tile in self._tiles():
            fits = None if least >= tile.width else keys >= tile.width
            below = None if wider is None else keys < wider
            with kernel.when(_both(fits, below, keys)):
                attrs.evolve(self, first=tile).whole()
            wider = tile.width

    def _tiles(self) -> list[PanelTile]:
        """The tile, and narrower ones for fewer keys."""
        lanes = self.first.lanes
        narrow = [PanelTile(self.first.rows, 1, count) for count in (lanes, 1) if count < self.first.width]
        return [self.first, *narrow]

    def whole(self) -> None:
        """All heads, with panels of one width."""
        kernel, first, second = self.heads.kernel, self.first, self.second
        rows, step = as_index(self.rows), max(first.rows, second.rows)
        most = maximum(minimum(BLOCK // maximum(as_index(self.keys), 1) // step * step, HIGHEST // step * step), step)
        tallest = minimum(most, (rows + (step - 1)) // step * step)
        height = kept(kernel, "height", tallest)
        blocks = kept(kernel, "blocks", (rows + height - 1) // height)
        panels, across = pieces(self.keys, first.width), second.across(self.columns)
        # A task is a head where there are enough of them: then its keys are laid out once for all its blocks.
        many = self.machine.threads_for(self.heads.count) > 1
        with kernel.tasks(self.heads.count, "task", many) as task:
            head = self.heads.head(task)
            memory = _Memory(
                kernel.memory("keys", float32, (as_index(panels) * (self.depth * first.width),)),
                kernel.memory("values", float32, (as_index(self.keys) * (across * second.width),)),
                kernel.memory("queries", float32, (tallest, self.depth)),
                kernel.memory("scores", float32, (tallest, as_index(self.keys))),
                kernel.memory("inverse", float32, (tallest,)),
            )
            with kernel.loop(panels, "j") as j:
                view, column = self.heads.read(self.match.key), first.column(j, self.keys)
                self.heads.pack(memory.keys, j * (self.depth * first.width), view, head, first, self.depth, column)
            with kernel.loop(across, "j") as j:
                view, column = self.heads.read(self.match.value), second.column(j, self.columns)
                at = j * (as_index(self.keys) * second.width)
                self.heads.pack(memory.values, at, view, head, second, self.keys, column)
            with kernel.loop(blocks, "block") as block:
                top = kept(kernel, "top", maximum(minimum(block * height, rows - height), 0))
                self._queries(memory, head, top, height)
                self._scores(memory, head, top, height)
                self._softmax(memory, height)
                self._mix(memory, head, top, height)

    def _row(self, row: Value) -> Value:
        """The row itself, or the last where there are fewer."""
        return minimum(row, as_index(self.rows) - 1)

    def _queries(self, memory: _Memory, head: Head, top: Value, height: Value) -> None:
        kernel, view = self.heads.kernel, self.heads.read(self.match.query)
        with kernel.loop(height, "r") as r:
            row = kept(kernel, "row", self._row(top + r))
            with kernel.loop(self.depth, "k") as k:
                memory.queries[r, k] = view.number(head, row, k)

    def _scores(self, memory: _Memory, head: Head, top: Value, height: Value) -> None:
        kernel, tile, match = self.heads.kernel, self.first, self.match
        wanted = match.softmax.inputs[0]
        assert wanted is not None
        factor = match.query.factor * match.key.factor
        score = self.heads.chain(match.chain, match.scores[0], wanted, factor, self.rows, self.keys)
        with kernel.loop(pieces(self.keys, tile.width), "j") as j:
            column = kept(kernel, "column", as_index(tile.column(j, self.keys)))
            panel = Panel(memory.keys, j * (self.depth * tile.width), tile.width)
            with kernel.loop(self._tiles_down(tile, height), "i") as i:
                row = kept(kernel, "row", minimum(i * tile.rows, height - tile.rows))
                acc = tile.product(kernel, self.depth, lambda r, k: memory.queries[row + r, k], panel)

                def store(total: Value, r: Value, c: Value) -> None:
                    memory.scores[row + r, column + c] = score(total, head, self._row(top + row + r), column + c)

                tile.finish(kernel, acc, store)

    @staticmethod
    def _tiles_down(tile: PanelTile, height: Value) -> Value:
        return (height + (tile.rows - 1)) // tile.rows

    def _softmax(self, memory: _Memory, height: Value) -> None:
        """Turn the scores of each row into exponentials; `inverse` becomes one over their sum."""
        kernel, lanes, scores = self.heads.kernel, self.machine.lanes, memory.scores
        row = Row(self.keys, lanes)
        with kernel.loop(height, "r") as r:
            partial, numbers = row.partial_sums(kernel), kernel.stack("m", float32, (2,))
            row.reduce(kernel, "max", lambda column, count: scores.vector(count, r, column), partial, numbers, 0)
            sums = partial[0]
            sums[0] = constant(0.0, float32, lanes)
            with kernel.loop(row.whole, "v") as v, kernel.lanes(lanes) as lane:
                scores[r, v * lanes + lane] = exp_of_negative(scores[r, v * lanes + lane] - numbers[0])
                sums[lane] = sums[lane] + scores[r, v * lanes + lane]
            numbers[1] = join_lanes("sum", sums, lanes)
            with kernel.loop(row.left, "e") as e:
                at = row.whole * lanes + e
                scores[r, at] = exp_of_negative(scores[r, at] - numbers[0])
                numbers[1] = numbers[1] + scores[r, at]
            self._invert(memory, row, r, numbers[1])

    def _invert(self, memory: _Memory, row: Row, r: Value, total: Value) -> None:
        """One over the sum; where rows that are no numbers become zeros, their scores do."""
        kernel = self.heads.kernel
        if not self.match.guard:
            memory.inverse[r] = 1.0 / total
            return

        def clear(column: Value, count: int) -> None:
            memory.scores[r, column] = constant(0, float32, count)

        with kernel.when(total >= 0.0):
            memory.inverse[r] = 1.0 / total
        with kernel.otherwise():
            row.each(kernel, clear)  # type: ignore[arg-type]
            memory.inverse[r] = 1.0

    def _mix(self, memory: _Memory, head: Head, top: Value, height: Value) -> None:
        kernel, tile = self.heads.kernel, self.second
        result = self.heads.written(self.match.result, self.match.after)
        with kernel.loop(tile.across(self.columns), "j") as j:
            column = kept(kernel, "column", as_index(tile.column(j, self.columns)))
            panel = Panel(memory.values, j * (as_index(self.keys) * tile.width), tile.width)
            with kernel.loop(self._tiles_down(tile, height), "i") as i:
                row = kept(kernel, "row", minimum(i * tile.rows, height - tile.rows))
                acc = tile.product(kernel, self.keys, lambda r, k: memory.scores[row + r, k], panel)

                def store(total: Value, r: Value, c: Value) -> None:
                    position = (result.at(head, self._row(top + row + r), column + c),)
                    write(result.buffer, position, total * memory.inverse[row + r])

                tile.finish(kernel, acc, store)


def _both(fits: Value | None, below: Value | None, keys: Value) -> Value:
    """Do both conditions hold, of which either may be missing?"""
    given = [condition for condition in (fits, below) if condition is not None]
    if not given:
        return keys >= 0
    return given[0] if len(given) == 1 else given[0] & given[1]
