"""A register tile: sums of products, `rows` numbers times `vectors` vectors at each step.

A step loads the vectors, and spreads each of the numbers over the lanes in turn. The tile is as large as the registers
allow, so that more products are under way than a multiplication takes cycles, and there are more products than loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

import attrs

from accelerators.tvm.machine import Machine
from accelerators.tvm.templates.script import Lines, Vectors, local, loop

LATENCY = 4.0
"""Cycles until a product is there."""

PORTS = 2
"""Products, and loads, that start in one cycle."""


@attrs.frozen(slots=True)
class Tile:
    """The sums that are kept in registers."""

    rows: int
    """How many numbers meet each vector."""
    vectors: int
    """How many vectors meet each number."""
    lanes: int
    """How many numbers a vector holds."""

    around: ClassVar[float] = 1.0
    """Cycles of a step that the loop around it takes."""

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def cycles(self) -> float:
        """About what a step takes: the slowest of products, loads and latency, and a little for the loop around it."""
        return max(self.rows * self.vectors / PORTS, (self.rows + self.vectors) / PORTS, LATENCY) + self.around

    @property
    def buffers(self) -> Lines:
        """The sums."""
        return [local("acc", self.rows * self.width)]

    def clear(self) -> Lines:
        """Sums of nothing."""
        text = Vectors(self.lanes)
        return self.each([f"{text.at('acc', self._place)} = {text.const(0.0)}"])

    def step(self, number: str, buffer: str, first: str) -> Lines:
        """One product for each sum: the number of row r, times the vectors that begin at `first` in the buffer."""
        text = Vectors(self.lanes)
        sums = text.at("acc", self._place)
        return self.each(
            [f"{sums} = {sums} + {text.every(number)} * {text.at(buffer, f'{first} + v * {self.lanes}')}"]
        )

    def each(self, lines: Lines) -> Lines:
        """The lines for each row r and vector v."""
        return loop("r", self.rows, loop("v", self.vectors, lines, "unroll"), "unroll")

    def lane_sums(self, lines: Lines) -> Lines:
        """The lines for each row r, vector v and lane l, a vector at a time."""
        return self.each(loop("l", self.lanes, lines, "vectorized"))

    def spilled(self) -> Lines:
        """Lines that take the sums out of their registers, into the buffer `sums`."""
        text = Vectors(self.lanes)
        moved = [f"{text.at('sums', self._place)} = {text.at('acc', self._place)}"]
        return [local("sums", self.rows * self.width), *self.each(moved)]

    def lane(self, buffer: str = "acc") -> str:
        """The sum of row r, vector v, lane l."""
        return f"{buffer}[{self._place} + l]"

    @property
    def _place(self) -> str:
        return f"r * {self.width} + v * {self.lanes}"


def fitting(machine: Machine, beside: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """Rows and vectors of every tile whose sums fit the registers with what else stands there, told by rows and vectors.

    With more rows than half the registers LLVM spreads too many numbers ahead, and spills."""
    for vectors in range(1, machine.registers):
        for rows in range(1, machine.registers // 2 + 1):
            if rows * vectors + beside(rows, vectors) <= machine.registers:
                yield rows, vectors


def tiles(machine: Machine) -> Iterator[Tile]:
    """Every tile that fits the registers: the sums, the vectors of a step, a spread number and one to spare."""
    for rows, vectors in fitting(machine, lambda rows, vectors: vectors + 2):
        yield Tile(rows, vectors, machine.lanes)


def starts(size: int, step: int) -> list[int]:
    """Where pieces of `step` begin that cover `size`; the last overlaps the one before where they do not divide."""
    return [min(i * step, size - step) for i in range(math.ceil(size / step))]


def start(piece: str, step: int, size: int) -> str:
    """Text of where a piece begins."""
    return f"T.min({piece} * {step}, {size - step})" if size % step else f"{piece} * {step}"
