"""Loops over one row: in vectors, and element by element for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, constant, float32, maximum, minimum
from partita.accelerators.tvm.kernels.language.values import as_index

SUMS = 4
"""Number of vectors of partial sums: independent sums hide the latency of an addition."""

Step = Callable[[Operand, int], Value]
"""The value at a column of the row, or a vector from there on; the second argument is the number of lanes."""

Write = Callable[[Operand, int], None]
"""Work at a column of the row, or on a vector from there on; the second argument is the number of lanes."""


@attrs.frozen(slots=True)
class Join:
    """A reduction."""

    start: float
    """The initial value."""
    joined: Callable[[Value, Value], Value]
    """The function that joins two partial results."""


JOINS = {"sum": Join(0.0, lambda a, b: a + b), "max": Join(-math.inf, maximum), "min": Join(math.inf, minimum)}
"""The reductions by name."""


def join_lanes(how: str, buffer: Buffer, lanes: int, start: Operand = 0) -> Value:
    """The reduction of a vector's lanes, by halves: each step has half as many lanes as the one before."""
    while lanes > 1:
        lanes //= 2
        halves = (buffer.vector(lanes, start), buffer.vector(lanes, start + lanes))
        buffer[start] = JOINS[how].joined(*halves)
    return buffer[start]


@attrs.frozen(slots=True)
class Row:
    """A row of `size` elements for a machine with `lanes` lanes."""

    size: int | Value
    """Number of elements."""
    lanes: int
    """Elements of a vector."""
    is_whole: bool = False
    """True if `lanes` divides the size though it is dynamic."""

    @property
    def whole(self) -> int | Value:
        """Number of full vectors."""
        return self.size // self.lanes if isinstance(self.size, int) else as_index(self.size) // self.lanes

    @property
    def left(self) -> int | Value:
        """Number of elements after the full vectors."""
        if self.is_whole:
            return 0
        return self.size % self.lanes if isinstance(self.size, int) else as_index(self.size) % self.lanes

    def each(self, kernel: Kernel, work: Write) -> None:
        """Work for every position of the row."""
        self.vectors(kernel, work)
        self.rest(kernel, work)

    def vectors(self, kernel: Kernel, work: Write) -> None:
        """Work for every full vector of the row."""
        with kernel.loop(self.whole, "v") as v:
            work(v * self.lanes, self.lanes)

    def rest(self, kernel: Kernel, work: Write) -> None:
        """Work for each element after the full vectors."""
        left = self.left
        with kernel.loop(left, "e") as e:
            work(self.size - left + e, 1)

    def partial_sums(self, kernel: Kernel) -> list[Buffer]:
        """Vectors on the stack for the partial sums of `reduce`."""
        return [kernel.stack(f"s{i}", float32, (self.lanes,)) for i in range(SUMS)]

    def reduce(self, kernel: Kernel, how: str, step: Step, partial: list[Buffer], into: Buffer, at: int) -> None:
        """into[at] = the sum, maximum or minimum of `step` over the row."""
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
