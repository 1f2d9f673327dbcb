"""Loops over one row: in vectors, and number by number for what no vector divides."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    constant,
    float32,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import as_index

SUMS = 4
"""Vectors of partial sums: one addition need not wait for the one before."""

Step = Callable[[Operand, int], Value]
"""The value at a column of the row, or at as many columns from there on as the second argument says."""

Write = Callable[[Operand, int], None]
"""What is done at a column of the row, or at as many columns from there on."""


@attrs.frozen(slots=True)
class Join:
    """A reduction."""

    start: float
    """The number that the reduction begins with."""
    joined: Callable[[Value, Value], Value]
    """The function that joins two partial results."""


JOINS = {"sum": Join(0.0, lambda a, b: a + b), "max": Join(-math.inf, maximum), "min": Join(math.inf, minimum)}
"""The reductions by name."""


def join_lanes(how: str, buffer: Buffer, lanes: int, start: Operand = 0) -> Value:
    """The lanes of a vector in a buffer, joined by halves: each step waits for half as many as the one before."""
    while lanes > 1:
        lanes //= 2
        halves = (buffer.vector(lanes, start), buffer.vector(lanes, start + lanes))
        buffer[start] = JOINS[how].joined(*halves)
    return buffer[start]


@attrs.frozen(slots=True)
class Row:
    """A row of `size` numbers for a machine of so many lanes."""

    size: int | Value
    """How many numbers it has."""
    lanes: int
    """How many of them a vector holds."""
    is_whole: bool = False
    """Is it known that vectors divide it, though its size is not?"""

    @property
    def whole(self) -> int | Value:
        """How many whole vectors it has."""
        return self.size // self.lanes if isinstance(self.size, int) else as_index(self.size) // self.lanes

    @property
    def left(self) -> int | Value:
        """How many numbers no vector holds."""
        if self.is_whole:
            return 0
        return self.size % self.lanes if isinstance(self.size, int) else as_index(self.size) % self.lanes

    def each(self, kernel: Kernel, work: Write) -> None:
        """Work for every position of the row."""
        self.vectors(kernel, work)
        self.rest(kernel, work)

    def vectors(self, kernel: Kernel, work: Write) -> None:
        """Work for every whole vector of the row."""
        with kernel.loop(self.whole, "v") as v:
            work(v * self.lanes, self.lanes)

    def rest(self, kernel: Kernel, work: Write) -> None:
        """Work for each number of the row that no vector holds."""
        left = self.left
        with kernel.loop(left, "e") as e:
            work(self.size - left + e, 1)

    def partial_sums(self, kernel: Kernel) -> list[Buffer]:
        """Vectors on the stack for `reduce`."""
        return [kernel.stack(f"s{i}", float32, (self.lanes,)) for i in range(SUMS)]

    def reduce(self, kernel: Kernel, how: str, step: Step, partial: list[Buffer], into: Buffer, at: int) -> None:
        """into[at] = the sum, maximum or minimum of an expression over the row."""
        join = JOINS[how]
        whole = self.whole
        count = next(n for n in (SUMS, 2, 1) if whole % n == 0) if isinstance(whole, int) else SUMS
        sums = partial[:count]
        for vector in sums:
            vector[0] = constant(join.start, float32, self.lanes)
        with kernel.loop(whole // count, "v") as v:
            for i, vector in enumerate(sums):
                value = step(v * (count * self.lanes) + i * self.lanes, self.lanes)
                vector[0] = join.joined(vector.vector(self.lanes, 0), value)
        if not isinstance(whole, int):
            with kernel.loop(whole % count, "v") as v:
                value = step((whole - whole % count + v) * self.lanes, self.lanes)
                sums[0][0] = join.joined(sums[0].vector(self.lanes, 0), value)
        for other in sums[1:]:
            sums[0][0] = join.joined(sums[0].vector(self.lanes, 0), other.vector(self.lanes, 0))
        into[at] = join_lanes(how, sums[0], self.lanes)

        def single(column: Operand, lanes: int) -> None:
            into[at] = join.joined(into[at], step(column, lanes))

        self.rest(kernel, single)
