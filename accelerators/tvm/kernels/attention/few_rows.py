"""Attention of a few queries, as where one token after another is decoded.

Keys and values are read once, where they stand: laying them out in panels would take longer than what is done with them. A task
is one head. It makes the scores key by key, with scale and mask worked in, then exponentials, and then the sums of the values.
How many keys there are may be known only while the kernel runs; for how many queries there is code is known here."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value, float32
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.heads import Head, View
from partita.accelerators.tvm.kernels.shared.numbers import write
from partita.accelerators.tvm.kernels.shared.row import Row, join_lanes

FEW = 8
"""For more rows, panels are worth it."""

MOST_VECTORS = 64
"""A key and a value together have so many vectors at most: there is code for each of them, and LLVM takes long for much code."""

CHAINS = 8
"""So many sums are under way at once: one addition need not wait for the one before."""


@attrs.frozen(slots=True, eq=False)
class FewRows(Scoring):
    """Writes the kernel."""

    count: int
    """For how many queries there is code: `rows`, where these are known."""

    @property
    def is_worth_it(self) -> bool:
        """Are there few queries, and do all matrices stand in memory as some vectors of float32 numbers?"""
        match, lanes = self.match, self.machine.lanes
        if self.count > FEW or self.depth % lanes or self.columns % lanes or self.depth + self.columns > MOST_VECTORS * lanes:
            return False
        if {element_of(operand.source) for operand in match.operands} != {"float32"}:
            return False
        query, key, value = (self.heads.read(matrix).strides.steps for matrix in match.operands)
        return query[-1] == key[-2] == value[-1] == 1

    @property
    def row(self) -> Row:
        """The scores of a query."""
        return Row(self.length, self.machine.lanes)

    @property
    def length(self) -> int | Value:
        """How many keys and values there are, as loops count them."""
        return self.keys if isinstance(self.keys, int) else as_index(self.keys)

    def write(self, is_shared: bool) -> None:
        """Write the whole kernel, whose heads threads share or do not."""
        kernel = self.heads.kernel
        with kernel.tasks(self.heads.count, "task", is_shared) as task:
            head = self.heads.head(task)
            scores = kernel.memory("scores", float32, (self.count, self.length))
            memory = Scores(scores, scores, kernel.memory("inverse", float32, (self.count,)))
            self._dots(scores, head)
            self._finish(scores, head)
            self.make_powers(memory, self.count)
            self._mix(memory, head)

    # -- scores ------------------------------------------------------------------------------------------

    def _dots(self, scores: Buffer, head: Head) -> None:
        """The products of queries and keys."""
        kernel, step = self.heads.kernel, max(1, CHAINS // self.count)
        whole = self.length // step
        with kernel.loop(whole, "j") as j:
            self._dots_of(scores, head, j * step, step)
        with kernel.loop(self.length % step, "e") as e:
            self._dots_of(scores, head, e + whole * step, 1)

    def _dots_of(self, scores: Buffer, head: Head, key: Value, count: int) -> None:
        """The products of all queries and some neighbouring keys."""
        kernel, lanes = self.heads.kernel, self.machine.lanes
        queries, keys = self.heads.read(self.match.query), self.heads.read(self.match.key)
        sums = kernel.registers("sums", float32, (count, self.count), lanes)
        for t in range(count):
            for r in range(self.count):
                sums[t, r] = 0.0
        with kernel.unroll(self.depth // lanes, "c") as c:
            for t in range(count):
                vector = kernel.name_value("key", keys.buffer.vector(lanes, keys.at(head, c * lanes, key + t)))
                for r in range(self.count):
                    query = queries.buffer.vector(lanes, queries.at(head, r, c * lanes))
                    sums[t, r] = sums[t, r] + vector * query
        lane_sums = kernel.stack("lane_sums", float32, (lanes,))
        for t in range(count):
            for r in range(self.count):
                lane_sums[0] = sums[t, r]
                scores[r, key + t] = join_lanes("sum", lane_sums, lanes)

    def _finish(self, scores: Buffer, head: Head) -> None:
        """Scale and mask."""
        kernel, score, lanes = self.heads.kernel, self.score(), self.machine.lanes
        whole = self.length // lanes

        def put(row: Value, column: Value) -> None:
            scores[row, column] = score(scores[row, column], head, row, column)

        with kernel.loop(self.count, "r") as r:
            with kernel.loop(whole, "v") as v, kernel.lanes(lanes) as lane:
                put(r, v * lanes + lane)
            with kernel.loop(self.length % lanes, "e") as e:
                put(r, e + whole * lanes)

    # -- values ------------------------------------------------------------------------------------------

    def _mix(self, memory: Scores, head: Head) -> None:
        """The sums of the values, so many vectors at a time that their sums stay in registers."""
        lanes, across = self.machine.lanes, max(1, CHAINS // self.count)
        columns = range(0, self.columns, lanes)
        for first in range(0, len(columns), across):
            self._columns(memory, head, columns[first : first + across])

    def _columns(self, memory: Scores, head: Head, columns: range) -> None:
        """The sums of some vectors of columns. Of few vectors, several keys have sums of their own."""
        kernel, lanes, rows = self.heads.kernel, self.machine.lanes, self.count
        values = self.heads.read(self.match.value)
        chains = max(1, CHAINS // (rows * len(columns)))
        sums = kernel.registers("mixed", float32, (chains, rows, len(columns)), lanes)
        for c in range(chains):
            for r in range(rows):
                for i in range(len(columns)):
                    sums[c, r, i] = 0.0

        def add(key: Value, chain: int) -> None:
            for i, column in enumerate(columns):
                vector = kernel.name_value("value", values.buffer.vector(lanes, values.at(head, key, column)))
                for r in range(rows):
                    sums[chain, r, i] = sums[chain, r, i] + memory.powers[r, key].spread(lanes) * vector

        whole = self.length // chains
        with kernel.loop(whole, "j") as j:
            for c in range(chains):
                add(j * chains + c, c)
        with kernel.loop(self.length % chains, "e") as e:
            add(e + whole * chains, 0)
        for r in range(rows):
            for i, column in enumerate(columns):
                for c in range(1, chains):
                    sums[0, r, i] = sums[0, r, i] + sums[c, r, i]
                with kernel.lanes(lanes) as lane:
                    total = sums.lane((0, r, i), lane) * memory.inverse[r]
                    self._store(head, r, column + lane, total)

    def _store(self, head: Head, row: int, column: Operand, total: Value) -> None:
        """Write a number of the result."""
        result: View = self.heads.written(self.match.result, self.match.after)
        write(result.buffer, (result.at(head, row, column),), total)
