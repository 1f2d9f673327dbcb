"""Steps that attention kernels on CPUs share, from the scores to their exponentials."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.attention.pattern import Attention
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value, constant, float32
from partita.accelerators.tvm.kernels.shared.element_access import stored_bits
from partita.accelerators.tvm.kernels.shared.functions import exp_of_negative
from partita.accelerators.tvm.kernels.shared.row import Row, join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MOVES, VALUE_PRODUCTS


@attrs.frozen(slots=True, eq=False)
class Scores:
    """The buffers of a task for the scores of a block of rows."""

    scores: Buffer
    """The scores, later overwritten by their exponentials."""
    powers: Buffer
    """The exponentials as the product with the values reads them: `scores` itself, or a copy in two-byte elements."""
    inverse: Buffer
    """Per row, 1 / (sum of the exponentials)."""


@attrs.frozen(slots=True, eq=False)
class Scoring:
    """An attention and its sizes."""

    match: Attention
    heads: Heads
    machine: Machine
    rows: int
    """Number of queries."""
    keys: int
    """Number of keys, and of values."""
    depth: int
    """The depth of queries and keys."""
    columns: int
    """Number of columns of the values."""

    @property
    def threads(self) -> int:
        """Number of threads for the work: each element of keys and values is fetched once and multiplied once per row."""
        fetched = self.heads.count * self.keys * (self.depth + self.columns)
        return self.machine.threads_for(fetched * (self.rows + VALUE_PRODUCTS // MOVES), VALUE_PRODUCTS)

    def score(self) -> Callable[[Value, Head, Operand, Operand], Value]:
        """The function that applies scale and mask to a product of a query and a key."""
        return self.match.score(self.heads, self.rows, self.keys)

    @property
    def row(self) -> Row:
        """The scores of one query."""
        return Row(self.keys, self.machine.lanes)

    def make_powers(self, memory: Scores, height: Operand) -> None:
        """Replaces the scores of each row by their exponentials, and sets `inverse` to one over their sum."""
        kernel, lanes, scores = self.heads.kernel, self.machine.lanes, memory.scores
        row = self.row
        with kernel.loop(height, "r") as r:
            partial, numbers = row.partial_sums(kernel), kernel.stack("m", float32, (2,))
            row.reduce(kernel, "max", lambda column, count: scores.vector(count, r, column), partial, numbers, 0)
            sums = partial[0]

            def power(column: Operand, total: Buffer, at: Operand) -> None:
                scores[r, column] = exp_of_negative(scores[r, column] - numbers[0])
                total[at] = total[at] + scores[r, column]
                if memory.powers is not scores:
                    memory.powers[r, column] = stored_bits(scores[r, column], memory.powers.element)

            sums[0] = constant(0.0, float32, lanes)
            with kernel.loop(row.whole, "v") as v, kernel.lanes(lanes) as lane:
                power(v * lanes + lane, sums, lane)
            numbers[1] = join_lanes("sum", sums, lanes)
            with kernel.loop(row.left, "e") as e:
                power(row.whole * lanes + e, numbers, 1)
            if memory.powers is not scores and memory.powers.shape[1] > self.keys:
                memory.powers[r, self.keys] = 0
            self._invert(memory, row, r, numbers[1])

    def _invert(self, memory: Scores, row: Row, r: Value, total: Value) -> None:
        """Stores one over the sum. If rows of NaN have to become zeros, sets their exponentials to zero."""
        kernel = self.heads.kernel
        if not self.match.guard:
            memory.inverse[r] = 1.0 / total
            return

        def clear(column: Operand, count: int) -> None:
            memory.powers[r, column] = constant(0, memory.powers.element, count)

        with kernel.when(total >= 0.0):
            memory.inverse[r] = 1.0 / total
        with kernel.otherwise():
            row.each(kernel, clear)
            memory.inverse[r] = 1.0
