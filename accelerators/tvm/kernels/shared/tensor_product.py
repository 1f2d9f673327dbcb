"""A matrix product on a GPU's tensor cores, accumulated in float32, or in int32 for bytes.

Both operands of a block's tile are loaded into shared memory step by step. While one step is multiplied the next ones are being
copied. So there is one barrier per step."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, int32, uint32
from partita.accelerators.tvm.kernels.language.intrinsics import Intrinsic
from partita.accelerators.tvm.kernels.language.tensor_cores import (
    HIGH,
    MULTIPLY,
    PART,
    WAITS,
    WARP,
    WIDE,
    close_copies,
    sums_of,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.gpu_product import own_thread
from partita.accelerators.tvm.kernels.shared.gpu_sums import Line, Store, Sums
from partita.accelerators.tvm.kernels.shared.tensor_feed import Feed, TensorSide
from partita.accelerators.tvm.kernels.shared.tensor_tile import TensorTile


class TensorProduct:
    """Writes the loops of one tile."""

    def __init__(
        self, kernel: Kernel, tile: TensorTile, thread: Value, left: TensorSide, right: TensorSide, points: _Points = (None, None)
    ) -> None:
        """Bytes may have zero points: the results account for them, except for the term depth times both."""
        self.kernel, self.tile = kernel, tile
        self.multiply = MULTIPLY[left.buffer.element, right.buffer.element]
        self.slice = kernel.name_value("slice", thread // tile.slice_threads) if tile.slices > 1 else as_index(0)
        self.own = own_thread(tile, thread)
        self.lane = kernel.name_value("lane", thread % WARP)
        self.row = kernel.name_value("row", self.own // WARP // tile.across * tile.high)
        self.column = kernel.name_value("column", self.own // WARP % tile.across * tile.wide)
        self.left = Feed(kernel, "left", left, tile.stages * tile.slices)
        self.right = Feed(kernel, "right", right, tile.stages * tile.slices)
        self.has_copies = self.left.is_copied or self.right.is_copied
        self.sums = kernel.stack("sums", sums_of(left.buffer.element), (tile.sums,))
        has_points = any(point is not None for point in points)
        self.points = _PointSums(kernel, tile, self.multiply, points) if has_points else None

    def write(self, steps: Operand, store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        """Writes the whole loop: `steps` steps, perhaps dynamic, then stores each sum whose row and column in the tile are below
        the bounds. A bound of None is never reached."""
        kernel, ahead = self.kernel, self.tile.stages - 1
        for number in range(self.tile.sums):
            self.sums[number] = 0
        is_open = not isinstance(steps, int)
        for stage in range(ahead):
            if is_open:
                with kernel.when(as_index(stage) < steps):
                    self._begin(as_index(stage), as_index(stage))
                    self._end(as_index(stage), as_index(stage))
            elif stage < steps:
                self._begin(as_index(stage), as_index(stage))
                self._end(as_index(stage), as_index(stage))
            self._close()
        with kernel.loop(steps, "step") as step:
            if self.has_copies:
                kernel.do(WAITS[ahead - 1]())
            kernel.barrier()
            if is_open or steps > ahead:
                with kernel.when(step + ahead < steps):
                    self._begin(step + ahead, (step + ahead) % self.tile.stages)
            self._close()
            self._multiply(step % self.tile.stages)
            if (is_open or steps > ahead) and not (self.left.is_copied and self.right.is_copied):
                with kernel.when(step + ahead < steps):
                    self._end(step + ahead, (step + ahead) % self.tile.stages)
        if self.points is not None:
            for number in range(self.tile.sums):
                self.sums[number] = self.points.without(number, self.sums[number])
        get, put = self.sums.__getitem__, self.sums.__setitem__
        sums = Sums(kernel, self.tile, self.slice, self.own, get, put, self.tile.sums, self.sums.element)
        sums.store(self._lines(), store, bounds)

    def _begin(self, step: Value, stage: Value) -> None:
        for feed in (self.left, self.right):
            feed.begin(self._own_step(step), self._first(feed, stage))

    def _end(self, step: Value, stage: Value) -> None:
        for feed in (self.left, self.right):
            feed.end(self._own_step(step), self._first(feed, stage))

    def _own_step(self, step: Value) -> Value:
        """Number of the slice's step among those of all slices."""
        return step * self.tile.slices + self.slice if self.tile.slices > 1 else step

    def _close(self) -> None:
        if self.has_copies:
            self.kernel.do(close_copies())

    def _first(self, feed: Feed, stage: Value) -> Value:
        """Start of the slice's part of a stage in shared memory."""
        return (stage * self.tile.slices + self.slice) * feed.side.size

    def _multiply(self, stage: Value) -> None:
        """A step's products: for each depth of an instruction, a warp reads its rows and columns and multiplies all pairs."""
        kernel, tile = self.kernel, self.tile
        high, wide = tile.high // HIGH, tile.wide // WIDE
        first_left = kernel.name_value("first_left", self._first(self.left, stage))
        first_right = kernel.name_value("first_right", self._first(self.right, stage))
        left = kernel.stack("left_now", uint32, (4 * high,))
        right = kernel.stack("right_now", uint32, (2 * wide,))
        with kernel.loop(tile.depth // tile.deep, "part") as part:
            for i in range(high):
                self.left.load(left, 4 * i, first_left, part * tile.deep, self.row + i * HIGH, self.lane, is_left=True)
            for j in range(0, wide, 2):
                self.right.load(right, 2 * j, first_right, part * tile.deep, self.column + j * WIDE, self.lane, is_left=False)
            for i in range(high):
                for j in range(wide):
                    kernel.do(self.multiply(self.sums[4 * (i * wide + j)], left[4 * i], right[2 * j]))
            if self.points is not None:
                self.points.add(left, right)

    def _lines(self) -> list[Line]:
        """Positions of the thread's sums in the tile: rows g and g + 8 and two neighbouring columns of each product."""
        tile, wide = self.tile, self.tile.wide // WIDE
        columns = [self.column + (j * WIDE + c) + self.lane % 4 * 2 for j in range(wide) for c in range(2)]

        def numbers(i: int, half: int) -> list[int]:
            return [4 * (i * wide + j) + 2 * half + c for j in range(wide) for c in range(2)]

        return [
            Line(self.row + (i * HIGH + half * PART) + self.lane // 4, list(zip(columns, numbers(i, half), strict=True)))
            for i in range(tile.high // HIGH)
            for half in range(2)
        ]


_ONES = 0x01010101
"""Four bytes that are each 1."""

_Points = tuple[Value | None, Value | None]
"""The zero points of the left and of the right matrix; None: zero."""


class _PointSums:
    """A thread's sums of rows and columns, for zero points of bytes that tensor cores multiply as stored.

    The sum of (a - p)(b - q) is that of a b, minus p times the column's sum of b, minus q times the row's sum of a, plus depth p
    q. Rows and columns are summed up by products with ones, which leave their sums to the threads that hold the products'
    sums."""

    def __init__(self, kernel: Kernel, tile: TensorTile, multiply: Intrinsic, points: _Points) -> None:
        self.kernel, self.multiply = kernel, multiply
        self.left, self.right = points
        self.high, self.wide = tile.high // HIGH, tile.wide // WIDE
        self.ones = kernel.stack("ones", uint32, (4,))
        self.of_columns = kernel.stack("sums_of_columns", int32, (4 * self.wide,))
        self.of_rows = kernel.stack("sums_of_rows", int32, (4 * self.high,))
        for sums, number in ((self.ones, _ONES), (self.of_columns, 0), (self.of_rows, 0)):
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
