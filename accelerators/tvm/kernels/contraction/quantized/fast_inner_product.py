"""Sums of products with half of the multiplications, by Winograd's method for inner products; exact, since everything stays in
integers.

For each two elements x of a row and the two elements y of a column:

    x0 y0 + x1 y1 = (x0 + y1) (x1 + y0) - x0 x1 - y0 y1

Processors have more units that add 16-bit numbers than units that multiply them. The correction terms depend on the row alone, or
on the column alone: they are computed once for each row of a band and once for each column of a panel, not for each of their
sums. A step takes four elements of the depth, of which the first two are x0 and the others x1."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

import attrs

from partita.accelerators.tvm.kernels.contraction.instruction_meanings import Instruction, products_of_words
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Registers, Value, int16, int32, uint64

STEP = 4
"""Elements of the depth per step."""

NUMBERS = 16
"""Elements of a row that are processed at once."""


LARGEST = (255 + 128) ** 2 + 255**2 + 128**2
"""The most that two elements of the depth, bytes of an image and of weights, may add to a sum."""


def is_exact(depth: int) -> bool:
    """True if all sums over such a depth fit 32 bits."""
    return depth // 2 * LARGEST < 1 << 31


@attrs.frozen(slots=True, eq=False)
class Own:
    """The correction terms of sums."""

    rows: Buffer
    """For each row of the band, negated."""
    columns: Registers
    """For each column of the panel."""

    def taken_off(self, row: Value, column: int, lanes: int) -> Value:
        """The initial sums of a row of the band and a vector of columns of the panel."""
        return self.rows[row].spread(lanes) - self.columns[column]


@attrs.frozen(slots=True, eq=False)
class Crossed:
    """Writes such products with the instruction that adds pairs of products of 16-bit numbers."""

    kernel: Kernel
    dot: Instruction

    def step(self, acc: Registers, rows: Buffer, firsts: Sequence[Value], columns: Buffer, first: Value) -> None:
        """Adds a step's products to the sums of a tile: rows begin at the positions `firsts`, the panel's columns at `first`."""
        dot, vectors = self.dot, acc.shape[1]
        for r, at in enumerate(firsts):
            pairs = [self.kernel.name_value(f"left{r}", rows.vector(2, at + i).regrouped(int32)) for i in (0, 2)]
            x = [pair.spread(dot.lanes).regrouped(int16) for pair in pairs]
            for v in range(vectors):
                y = [columns.vector(dot.right_size, first + (i * vectors + v) * dot.right_size) for i in range(2)]
                acc[r, v] = acc[r, v] + products_of_words(self.dot, x[0] + y[1], x[1] + y[0])

    def own_of_columns(self, columns: Buffer, first: Value, depth: int, own: Registers) -> None:
        """Computes the correction terms of the columns of a panel of such a depth, which begins at `first`."""
        kernel, dot, (vectors,) = self.kernel, self.dot, own.shape
        acc = kernel.registers("acc", int32, (vectors,), dot.lanes)
        for v in range(vectors):
            acc[v] = 0
        with kernel.loop(depth // STEP, "k") as k:
            for v in range(vectors):
                y = [columns.vector(dot.right_size, first + ((2 * k + i) * vectors + v) * dot.right_size) for i in range(2)]
                acc[v] = acc[v] + products_of_words(self.dot, *y)
        for v in range(vectors):
            own[v] = acc[v]

    def own_of_row(self) -> OwnOfRow:
        """An empty sum for the correction term of a row."""
        sums = self.kernel.registers("own_sums", int32, (1,), NUMBERS // 2)
        rest = self.kernel.stack("own_rest", int32, (1,))
        sums[0] = 0
        rest[0] = 0
        return OwnOfRow(self, sums, rest)


@attrs.frozen(slots=True, eq=False)
class OwnOfRow:
    """The correction term of one row, as it is summed up."""

    crossed: Crossed
    sums: Registers
    """The sum of full vectors, lane by lane."""
    rest: Buffer
    """The sum of the remainder."""

    def add(self, row: Buffer, first: Value, count: int) -> None:
        """Adds `count` neighbours."""
        kernel, (whole, rest) = self.crossed.kernel, divmod(count, NUMBERS)
        with kernel.loop(whole, "k") as k:
            numbers = row.vector(NUMBERS, first + k * NUMBERS)
            others = (numbers.regrouped(uint64) >> 32).regrouped(int16)
            self.sums[0] = self.sums[0] + products_of_words(self.crossed.dot, numbers, others)
        with kernel.loop(rest // STEP, "k") as k:
            x = [row[first + whole * NUMBERS + k * STEP + i].cast(int32) for i in range(STEP)]
            self.rest[0] = self.rest[0] + x[0] * x[2] + x[1] * x[3]

    @property
    def below_zero(self) -> Value:
        """The negated sum."""
        return 0 - reduce(operator.add, [self.sums.lane(0, lane) for lane in range(NUMBERS // 2)], self.rest[0])
