"""Products whose result is narrower than a vector: a classifier of few classes, a single neuron.

Here the vectors run along the depth. The constant matrix stands column by column; for some rows and columns at a time, sums of
products are kept for each lane, and joined at the end."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import input_name
from accelerators.tvm.templates.gemm import Product, find_product, task_count
from accelerators.tvm.templates.panels import shared_out
from accelerators.tvm.templates.row_text import across
from accelerators.tvm.templates.script import Lines, local, loop
from accelerators.tvm.templates.tile import start


@attrs.frozen(slots=True)
class ThinTile:
    """Some rows of the left matrix times some columns of the right one."""

    rows: int
    columns: int
    lanes: int
    """How many numbers a vector holds."""

    def product(self, depth: int, left: Callable[[str], str], right: Callable[[str], str]) -> Lines:
        """The sums; left(k) and right(k) are the numbers of row r and column c."""
        steps, whole = depth // self.lanes, depth // self.lanes * self.lanes
        sums = f"{self.sum[:-1]} + l]"

        def step(total: str, k: str) -> str:
            return f"{total} = {total} + {left(k)} * {right(k)}"

        lines = [local("acc", self.rows * self.columns * self.lanes), *self._vectors(f"{sums} = T.float32(0.0)")]
        lines += loop("k", steps, self._vectors(step(sums, f"k * {self.lanes} + l"))) if steps else []
        for at in range(0, self.rows * self.columns * self.lanes, self.lanes):
            lines += across("sum", "acc", self.lanes, f"acc[{at}]", at)
        return lines + (loop("e", depth - whole, self.each([step(self.sum, f"{whole} + e")])) if whole < depth else [])

    @property
    def sum(self) -> str:
        """The sum of row r and column c."""
        return f"acc[(r * {self.columns} + c) * {self.lanes}]"

    def each(self, lines: Lines) -> Lines:
        """The lines for each row r and column c."""
        return loop("r", self.rows, loop("c", self.columns, lines, "unroll"), "unroll")

    def _vectors(self, line: str) -> Lines:
        return self.each(loop("l", self.lanes, [line], "vectorized"))


def thin_tile(rows: int, columns: int, machine: Machine) -> ThinTile:
    """Up to four columns, and as many rows as the registers allow."""
    wide = min(columns, 4)
    return ThinTile(max(1, min(rows, (machine.registers - wide - 1) // wide, 4)), wide, machine.lanes)


@template("cpu", ops=frozenset({"MatMul", "Gemm"}))
def thin(body: Body, machine: Machine) -> Draft | None:
    """Values times a constant matrix of few columns."""
    found = find_product(body)
    if found is None or found.columns >= machine.lanes:
        return None
    text = _text(found, thin_tile(found.rows, found.columns, machine), machine)
    return found.draft(body, found.columns * found.depth, text, lambda array: found.scaled(found.matrix(array).T))


def _text(found: Product, tile: ThinTile, machine: Machine) -> Lines:
    """The kernel's loops: tasks, then groups of columns, then of rows."""
    row, column = f"{start('t', tile.rows, found.rows)} + r", f"{start('pair', tile.columns, found.columns)} + c"
    left, right = input_name(found.left), input_name(found.right)
    work = tile.product(
        found.depth, lambda k: f"{left}[{row}, {k}]", lambda k: f"{right}[({column}) * {found.depth} + {k}]"
    )
    work += tile.each(found.after.store(tile.sum, [row, column]))
    groups, heights = math.ceil(found.columns / tile.columns), math.ceil(found.rows / tile.rows)
    return shared_out(groups, heights, min(task_count(found, machine), groups * heights), work)
