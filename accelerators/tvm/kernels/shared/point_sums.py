"""Zero points of bytes that tensor cores multiply as stored.

The sum of (a - p)(b - q) is that of a b, minus p times the column's sum of b, minus q times the row's sum of a, plus depth p q.
Rows and columns are summed up by products with ones, which leave their sums to the threads that hold the products' sums."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, int32, uint32
from partita.accelerators.tvm.kernels.language.intrinsics import Intrinsic
from partita.accelerators.tvm.kernels.language.tensor_cores import HIGH, WIDE
from partita.accelerators.tvm.kernels.shared.tensor_tile import TensorTile

ONES = 0x01010101
"""Four bytes that are each 1."""

Points = tuple[Value | None, Value | None]
"""The zero points of the left and of the right matrix; None: zero."""


class PointSums:
    """A thread's sums of rows and columns."""

    def __init__(self, kernel: Kernel, tile: TensorTile, multiply: Intrinsic, points: Points) -> None:
        self.kernel, self.multiply = kernel, multiply
        self.left, self.right = points
        self.high, self.wide = tile.high // HIGH, tile.wide // WIDE
        self.ones = kernel.stack("ones", uint32, (4,))
        self.of_columns = kernel.stack("sums_of_columns", int32, (4 * self.wide,))
        self.of_rows = kernel.stack("sums_of_rows", int32, (4 * self.high,))
        for sums, number in ((self.ones, ONES), (self.of_columns, 0), (self.of_rows, 0)):
            for i in range(sums.sizes[0]):
                sums[i] = number

    def add(self, left: Buffer, right: Buffer) -> None:
        """Add up the parts of both matrices that a warp has in registers, each if the other matrix has a zero point."""
        for i in range(self.high if self.right is not None else 0):
            self.kernel.do(self.multiply(self.of_rows[4 * i], left[4 * i], self.ones[0]))
        for j in range(self.wide if self.left is not None else 0):
            self.kernel.do(self.multiply(self.of_columns[4 * j], self.ones[0], right[2 * j]))

    def without(self, number: int, total: Value) -> Value:
        """A thread's sum of this number, minus the terms of both zero points, but without the term depth p q. No intermediate
        value exceeds the depth times the square of a byte."""
        at, part = divmod(number, 4)
        row, column = divmod(at, self.wide)
        if self.right is not None:
            total = total - self.of_rows[4 * row + part] * self.right
        return total if self.left is None else total - self.of_columns[4 * column + part] * self.left
