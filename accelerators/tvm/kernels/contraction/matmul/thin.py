"""Products whose result is narrower than a vector: a classifier of few classes, a single neuron.

Vectors run along the depth. The constant matrix is stored column by column. For some rows and columns at a time, each lane
accumulates its own sum, and the lanes are added at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import find_product, task_count
from partita.accelerators.tvm.kernels.contraction.tiles import at_most, share_out
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Registers, Value, float32
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import pieces, start
from partita.accelerators.tvm.kernels.shared.row import join_lanes
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent


@attrs.frozen(slots=True)
class ThinTile:
    """Some rows of the left matrix times some columns of the right one."""

    rows: int
    columns: int
    lanes: int
    """Number of elements of a vector."""

    def product(
        self, kernel: Kernel, depth: int, left: Callable[[Value, Operand], Value], right: Callable[[Value, Operand], Value]
    ) -> Registers:
        """The sums, each in the first lane of its vector; left(r, k) and right(c, k) are the elements of row r and column c."""
        steps, rest = divmod(depth, self.lanes)
        acc = kernel.registers("acc", float32, (self.rows, self.columns), self.lanes)
        with self.each(kernel) as (r, c), kernel.lanes(self.lanes) as lane:
            acc.set_lane((r, c), lane, 0.0)
        with kernel.loop(steps, "k") as k, self.each(kernel) as (r, c), kernel.lanes(self.lanes) as lane:
            at = k * self.lanes + lane
            acc.set_lane((r, c), lane, acc.lane((r, c), lane) + left(r, at) * right(c, at))
        for first in range(0, self.rows * self.columns * self.lanes, self.lanes):
            join_lanes("sum", acc.buffer, self.lanes, first)
        with kernel.loop(rest, "e") as e, self.each(kernel) as (r, c):
            at = depth - rest + e
            acc.set_lane((r, c), 0, acc.lane((r, c), 0) + left(r, at) * right(c, at))
        return acc

    @contextmanager
    def each(self, kernel: Kernel) -> Iterator[tuple[Value, Value]]:
        """A block for each row and column, unrolled."""
        with kernel.unroll(self.rows, "r") as r, kernel.unroll(self.columns, "c") as c:
            yield r, c


def thin_tile(rows: int, columns: int, machine: Machine) -> ThinTile:
    """The tile: up to four columns, and as many rows as the registers allow; one row if their number is dynamic."""
    wide = min(columns, 4)
    if isinstance(rows, Extent):
        return ThinTile(1, wide, machine.lanes)
    return ThinTile(max(1, min(rows, (machine.registers - wide - 1) // wide, 4)), wide, machine.lanes)


def thin(body: Body, machine: Machine) -> Draft | None:
    """The kernel for values times a constant matrix of few columns; None for any other body."""
    match = find_product(body)
    if match is None or match.columns >= machine.lanes:
        return None
    writing = match.kernel(body, match.columns * match.depth)
    kernel, tile = writing.kernel, thin_tile(match.rows, match.columns, machine)

    def work(pair: Value) -> Callable[[Value], None]:
        def each(t: Value) -> None:
            row, column = start(t, tile.rows, match.rows), start(pair, tile.columns, match.columns)
            left, right = writing.left, writing.right
            acc = tile.product(
                kernel,
                match.depth,
                lambda r, k: read(left, (row + r, k)),
                lambda c, k: read(right, ((column + c) * match.depth + k,)),
            )
            with tile.each(kernel) as (r, c):
                writing.writer.store(acc.lane((r, c), 0), (row + r, column + c))

        return each

    groups, heights = math.ceil(match.columns / tile.columns), pieces(match.rows, tile.rows)
    share_out(kernel, groups, heights, at_most(task_count(match, machine), groups * heights), work)
    return writing.problem.draft(kernel, "gemm", {match.right: lambda array: match.scaled(match.matrix(array).T)})
