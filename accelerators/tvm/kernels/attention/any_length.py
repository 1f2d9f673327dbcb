"""Attention over any number of queries and keys.

As for lengths that are known (`attention.py`), with the lengths as values. Queries are copied beside one another block by block,
and rows beyond the last are the last again, so that any number fills whole tiles. The scores of a row are filled up to whole
vectors with such as weigh nothing. Of keys there may be fewer than a panel is wide: then narrower panels are taken, which is
decided when the length is known."""

from __future__ import annotations

import math

import attrs

from accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from accelerators.tvm.kernels.language import Buffer, Value, float32, maximum, minimum
from accelerators.tvm.kernels.language.values import as_index
from accelerators.tvm.kernels.shared.heads import Head
from accelerators.tvm.kernels.shared.numbers import write
from accelerators.tvm.kernels.shared.panels import Panel, PanelTile
from accelerators.tvm.kernels.shared.row import Row
from accelerators.tvm.kernels.shared.tile import kept, pieces
from accelerators.tvm.sizes.extent import known_least

BLOCK = 16_384
"""The number of scores that a near cache holds beside the panels."""

HIGHEST = 64
"""A block has so many rows at most: a head is cut into as many tasks as it has blocks."""


@attrs.frozen(slots=True, eq=False)
class AnyLength(Scoring):
    """Writes the kernel."""

    first: PanelTile
    """The tile for the product that makes the scores."""
    second: PanelTile
    """The tile for the product with the values."""

    def write(self) -> None:
        """The kernel: code for each width of panels, of which one runs."""
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

    @property
    def row(self) -> Row:
        """The scores of a query, filled up to whole vectors."""
        lanes = self.machine.lanes
        return Row(as_index(pieces(self.keys, lanes)) * lanes, lanes, is_whole=True)

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
            keys = kernel.memory("keys", float32, (as_index(panels) * (self.depth * first.width),))
            values = kernel.memory("values", float32, (as_index(self.keys) * (across * second.width),))
            queries = kernel.memory("queries", float32, (tallest, self.depth))
            scores = kernel.memory("scores", float32, (tallest, as_index(self.row.size)))
            memory = Scores(scores, scores, kernel.memory("inverse", float32, (tallest,)))
            with kernel.loop(panels, "j") as j:
                view, column = self.heads.read(self.match.key), first.column(j, self.keys)
                self.heads.pack(keys, j * (self.depth * first.width), view, head, first, self.depth, column)
            with kernel.loop(across, "j") as j:
                view, column = self.heads.read(self.match.value), second.column(j, self.columns)
                at = j * (as_index(self.keys) * second.width)
                self.heads.pack(values, at, view, head, second, self.keys, column)
            with kernel.loop(blocks, "block") as block:
                top = kept(kernel, "top", maximum(minimum(block * height, rows - height), 0))
                self._copy_queries(queries, head, top, height)
                self._scores(scores, queries, keys, head, top, height)
                self._fill_up(scores, height)
                self.make_powers(memory, height)
                self._mix(memory, values, head, top, height)

    def _row(self, row: Value) -> Value:
        """The row itself, or the last where there are fewer."""
        return minimum(row, as_index(self.rows) - 1)

    def _copy_queries(self, queries: Buffer, head: Head, top: Value, height: Value) -> None:
        kernel, view = self.heads.kernel, self.heads.read(self.match.query)
        with kernel.loop(height, "r") as r:
            row = kept(kernel, "row", self._row(top + r))
            with kernel.loop(self.depth, "k") as k:
                queries[r, k] = view.number(head, row, k)

    def _scores(self, scores: Buffer, queries: Buffer, keys: Buffer, head: Head, top: Value, height: Value) -> None:
        kernel, tile, score = self.heads.kernel, self.first, self.score()
        with kernel.loop(pieces(self.keys, tile.width), "j") as j:
            column = kept(kernel, "column", as_index(tile.column(j, self.keys)))
            panel = Panel(keys, j * (self.depth * tile.width), tile.width)
            with kernel.loop(self._tiles_down(tile, height), "i") as i:
                row = kept(kernel, "row", minimum(i * tile.rows, height - tile.rows))
                acc = tile.product(kernel, self.depth, lambda r, k: queries[row + r, k], panel)

                def store(total: Value, r: Value, c: Value) -> None:
                    scores[row + r, column + c] = score(total, head, self._row(top + row + r), column + c)

                tile.finish(kernel, acc, store)

    def _fill_up(self, scores: Buffer, height: Value) -> None:
        """What stands beyond the last key weighs nothing."""
        kernel, keys = self.heads.kernel, as_index(self.keys)
        with kernel.loop(height, "r") as r, kernel.loop(as_index(self.row.size) - keys, "e") as e:
            scores[r, keys + e] = -math.inf

    @staticmethod
    def _tiles_down(tile: PanelTile, height: Value) -> Value:
        return (height + (tile.rows - 1)) // tile.rows

    def _mix(self, memory: Scores, values: Buffer, head: Head, top: Value, height: Value) -> None:
        kernel, tile = self.heads.kernel, self.second
        result = self.heads.written(self.match.result, self.match.after)
        with kernel.loop(tile.across(self.columns), "j") as j:
            column = kept(kernel, "column", as_index(tile.column(j, self.columns)))
            panel = Panel(values, j * (as_index(self.keys) * tile.width), tile.width)
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
