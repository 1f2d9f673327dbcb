"""What kernels of attention on processors share: from products of queries and keys to exponentials."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.attention.pattern import Attention
from partita.accelerators.tvm.kernels.language import Buffer, Operand, Value, constant, float32
from partita.accelerators.tvm.kernels.shared.functions import exp_of_negative
from partita.accelerators.tvm.kernels.shared.heads import Head, Heads
from partita.accelerators.tvm.kernels.shared.numbers import stored_bits
from partita.accelerators.tvm.kernels.shared.row import Row, join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import MOVES, VALUE_PRODUCTS


@attrs.frozen(slots=True, eq=False)
class Scores:
    """The memory that a task keeps for the scores of a block of rows."""

    scores: Buffer
    """The scores, and then their exponentials."""
    powers: Buffer
    """The exponentials as the product with the values takes them: the scores themselves, or their bits in two bytes."""
    inverse: Buffer
    """For each row, one over the sum of the exponentials."""


@attrs.frozen(slots=True, eq=False)
class Scoring:
    """One attention, and its sizes."""

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

    @property
    def threads(self) -> int:
        """How many threads share the work: each number of keys and values is fetched once, and multiplied for each row."""
        fetched = self.heads.count * self.keys * (self.depth + self.columns)
        return self.machine.threads_for(fetched * (self.rows + VALUE_PRODUCTS // MOVES), VALUE_PRODUCTS)

    def score(self) -> Callable[[Value, Head, Operand, Operand], Value]:
        """What scale and mask make of a product of a query and a key."""
        match = self.match
        wanted = match.softmax.inputs[0]
        assert wanted is not None
        factor = match.query.factor * match.key.factor
        return self.heads.chain(match.chain, match.scores[0], wanted, factor, self.rows, self.keys)

    @property
    def row(self) -> Row:
        """The scores of a query."""
        return Row(self.keys, self.machine.lanes)

    def make_powers(self, memory: Scores, height: Operand) -> None:
        """Turn the scores of each row into exponentials; `inverse` becomes one over their sum."""
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
        """One over the sum. Where rows of NaN are to become zeros, their scores become zeros here."""
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
