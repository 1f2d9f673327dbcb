"""Attention with dynamic numbers of queries and keys.

As for static lengths (`attention.py`), with the lengths as values. Queries are copied block by block into contiguous memory;
the last row is repeated, so that any number fills whole tiles. The scores of a row are padded to whole vectors with -inf, which
has no weight. There may be fewer keys than a panel is wide: then narrower panels are used, chosen at run time. So is the code for
a single query, which packs no panels."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.kernels.attention.few_rows import FewRows
from partita.accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from partita.accelerators.tvm.kernels.contraction.heads import Head
from partita.accelerators.tvm.kernels.contraction.tiles import Panel, PanelTile
from partita.accelerators.tvm.kernels.language import Buffer, Value, float32, maximum, minimum
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.loops import kept, pieces
from partita.accelerators.tvm.kernels.shared.row import Row
from partita.accelerators.tvm.sizes.extent import known_least

BLOCK = 16_384
"""Number of scores that a near cache holds beside the panels."""

HIGHEST = 128
"""Maximum number of rows of a block: its queries, which are copied, stay in a near cache."""


@attrs.frozen(slots=True, eq=False)
class AnyLength(Scoring):
    """Writes the kernel."""

    first: PanelTile
    """The tile for the product of queries and keys."""
    second: PanelTile
    """The tile for the product with the values."""

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
        across = second.across(self.columns)
        # A task is a head if there are enough of them, so that its keys are packed once for all its blocks.
        with kernel.tasks(self.heads.count, "task", self._is_shared) as task:
            head = self.heads.head(task)
            keys = kernel.memory("keys", float32, ((as_index(self.keys) + (self.first.width - 1)) * self.depth,))
            values = kernel.memory("values", float32, (as_index(self.keys) * (across * second.width),))
            queries = kernel.memory("queries", float32, (tallest, self.depth))
            scores = kernel.memory("scores", float32, (tallest, as_index(self.row.size)))
            memory = Scores(scores, scores, kernel.memory("inverse", float32, (tallest,)))
            for tile, is_taken in self._tiles():
                with kernel.when(is_taken):
                    self._pack_keys(keys, tile, head)
            with kernel.loop(across, "j") as j:
                view, column = self.heads.read(self.match.value), second.column(j, self.columns)
                at = j * (as_index(self.keys) * second.width)
                self.heads.pack(values, at, view, head, second, self.keys, column)
            with kernel.loop(blocks, "block") as block:
                top = kept(kernel, "top", maximum(minimum(block * height, as_index(self.rows) - height), 0))
                self._copy_queries(queries, head, top, height)
                for tile, is_taken in self._tiles():
                    with kernel.when(is_taken):
                        self._scores(tile, scores, queries, keys, head, top, height)
                self._fill_up(scores, height)
                self.make_powers(memory, height)
                self._mix(memory, values, head, top, height)

    def _tiles(self) -> list[tuple[PanelTile, Value]]:
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

    def _row(self, row: Value) -> Value:
        """The row, or the last one if that is less."""
        return minimum(row, as_index(self.rows) - 1)

    def _pack_keys(self, keys: Buffer, tile: PanelTile, head: Head) -> None:
        """Packs the keys into panels of the tile's width."""
        with self.heads.kernel.loop(pieces(self.keys, tile.width), "j") as j:
            view, column = self.heads.read(self.match.key), tile.column(j, self.keys)
            self.heads.pack(keys, j * (self.depth * tile.width), view, head, tile, self.depth, column)

    def _copy_queries(self, queries: Buffer, head: Head, top: Value, height: Value) -> None:
        kernel, view = self.heads.kernel, self.heads.read(self.match.query)
        with kernel.loop(height, "r") as r:
            row = kept(kernel, "row", self._row(top + r))
            with kernel.loop(self.depth, "k") as k:
                queries[r, k] = view.number(head, row, k)

    def _scores(
        self, tile: PanelTile, scores: Buffer, queries: Buffer, keys: Buffer, head: Head, top: Value, height: Value
    ) -> None:
        kernel, score = self.heads.kernel, self.score()
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
        """Sets the scores beyond the last key to -inf, so that they have no weight."""
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
    """Conjunction of two conditions, each of which may be absent."""
    given = [condition for condition in (fits, below) if condition is not None]
    if not given:
        return keys >= 0
    return given[0] if len(given) == 1 else given[0] & given[1]
