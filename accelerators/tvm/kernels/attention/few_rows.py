"""Attention for a few queries, as in token-by-token decoding.

Keys and values are read once, in place: packing them into panels would take longer than the products. A task is one head. It
computes the scores key by key, with scale and mask applied, then the exponentials, then the sums of the values. The number of
keys may be dynamic; the number of queries that the code handles is static."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.kernels.attention.scoring import Scores, Scoring
from partita.accelerators.tvm.kernels.contraction.heads import Head, View
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value, float32
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.row import Row, join_lanes

FEW = 8
"""Maximum number of queries; for more, panels pay off."""

MOST_VECTORS = 64
"""Maximum number of vectors of a key and a value together: code is unrolled over them, and LLVM is slow on long code."""

CHAINS = 8
"""Independent sums at a time, so that one addition need not wait for the one before."""


@attrs.frozen(slots=True, eq=False)
class FewRows(Scoring):
    """Writes the kernel."""

    count: int
    """Number of queries that the code handles: `rows` if that is static."""

    @property
    def is_worth_it(self) -> bool:
        """True if there are few queries, and all matrices are float32 and contiguous in whole vectors."""
        match, lanes = self.match, self.machine.lanes
        if self.count > FEW or self.depth % lanes or self.columns % lanes or self.depth + self.columns > MOST_VECTORS * lanes:
            return False
        if {element_of(operand.source) for operand in match.operands} != {"float32"}:
            return False
        query, key, value = (self.heads.read(matrix).strides.steps for matrix in match.operands)
        return query[-1] == key[-2] == value[-1] == 1

    @property
    def row(self) -> Row:
        """The scores of one query."""
        return Row(self.length, self.machine.lanes)

    @property
    def length(self) -> int | Value:
        """Number of keys, and of values, as an operand of loops."""
        return self.keys if isinstance(self.keys, int) else as_index(self.keys)

    def write(self, is_shared: bool) -> None:
        """Writes the whole kernel; threads share its heads if `is_shared`."""
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
        """Computes the products of queries and keys."""
        kernel, step = self.heads.kernel, max(1, CHAINS // self.count)
        whole = self.length // step
        with kernel.loop(whole, "j") as j:
            self._dots_of(scores, head, j * step, step)
        with kernel.loop(self.length % step, "e") as e:
            self._dots_of(scores, head, e + whole * step, 1)

    def _dots_of(self, scores: Buffer, head: Head, key: Value, count: int) -> None:
        """Computes the products of all queries and `count` neighbouring keys."""
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
        """Applies scale and mask to the scores."""
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
        """Computes the sums of the values, for as many vectors at a time as keep their sums in registers."""
        lanes, across = self.machine.lanes, max(1, CHAINS // self.count)
        columns = range(0, self.columns, lanes)
        for first in range(0, len(columns), across):
            self._columns(memory, head, columns[first : first + across])

    def _columns(self, memory: Scores, head: Head, columns: range) -> None:
        """Computes the sums of some vectors of columns. If these are few, neighbouring keys have separate sums."""
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
        """Writes an element of the result."""
        result: View = self.heads.written(self.match.result, self.match.after)
        write(result.buffer, (result.at(head, row, column),), total)
