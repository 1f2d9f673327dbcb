"""The text of loops over one row: in vectors, and number by number for what no vector divides."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from accelerators.tvm.templates.script import Lines, Vectors, local, loop, number

SUMS = 4
"""Vectors of partial sums: one addition need not wait for the one before."""


@attrs.frozen(slots=True)
class Place:
    """Where in a row an expression is computed: in a vector of places, or in one."""

    index: str
    """The first place, as text."""
    lanes: int
    """How many places; 1 for a single number."""

    def row(self, buffer: str) -> str:
        """The numbers of a two-dimensional buffer's current row."""
        return f"{buffer}[r, {self._span}]"

    def flat(self, buffer: str) -> str:
        """The numbers of a buffer that holds one row."""
        return f"{buffer}[{self._span}]"

    def all(self, scalar: str) -> str:
        """The scalar at every place."""
        return scalar if self.lanes == 1 else f"T.Broadcast({scalar}, {self.lanes})"

    def const(self, value: float) -> str:
        """The number at every place."""
        return self.all(f"T.float32({number(value)})")

    @property
    def _span(self) -> str:
        return self.index if self.lanes == 1 else f"T.ramp({self.index}, 1, {self.lanes})"


Step = Callable[[Place], str]
"""An expression at a place of the row."""

JOINS: dict[str, tuple[float, Callable[[str, str], str]]] = {
    "sum": (0.0, lambda a, b: f"({a} + {b})"),
    "max": (float("-inf"), lambda a, b: f"T.max({a}, {b})"),
    "min": (float("inf"), lambda a, b: f"T.min({a}, {b})"),
}
"""By name: where a reduction starts, what joins two partial results."""


def across(how: str, buffer: str, lanes: int, into: str, start: int = 0) -> Lines:
    """into = the lanes of a vector in a buffer, joined by halves: each step waits for half as many as the one before."""
    lines: Lines = []
    while lanes > 1:
        lanes //= 2
        halves = [Vectors(lanes).at(buffer, start + i * lanes) for i in (0, 1)] if lanes > 1 else []
        halves = halves or [f"{buffer}[{start}]", f"{buffer}[{start + 1}]"]
        lines.append(f"{halves[0]} = {JOINS[how][1](*halves)}")
    return [*lines, f"{into} = {buffer}[{start}]"]


@attrs.frozen(slots=True)
class Row:
    """A row of `size` numbers for a machine of so many lanes."""

    size: int
    """How many numbers it has."""
    lanes: int
    """How many of them a vector holds."""

    @property
    def buffers(self) -> Lines:
        """What the loops need on the stack."""
        return [*(local(f"s{i}", self.lanes) for i in range(SUMS)), local("t0", self.lanes), local("t1", self.lanes)]

    def each(self, vector: Callable[[Place], Lines], scalar: Callable[[Place], Lines] | None = None) -> Lines:
        """Lines for every place of the row."""
        return self.vectors(vector) + self.rest(scalar or vector)

    def vectors(self, lines: Callable[[Place], Lines]) -> Lines:
        """Lines for every whole vector of the row."""
        whole = self.size // self.lanes
        return loop("v", whole, lines(Place(f"v * {self.lanes}", self.lanes))) if whole else []

    def rest(self, lines: Callable[[Place], Lines]) -> Lines:
        """Lines for each number of the row that no vector holds."""
        left, whole = self.size % self.lanes, self.size // self.lanes * self.lanes
        return loop("e", left, lines(Place(f"({whole} + e)", 1))) if left else []

    def reduce(self, how: str, step: Step, into: str) -> Lines:
        """into = the sum, maximum or minimum of an expression over the row."""
        start, join = JOINS[how]
        count = next(n for n in (SUMS, 2, 1) if self.size // self.lanes % n == 0)
        text = Vectors(self.lanes)
        partial = [text.at(f"s{i}", 0) for i in range(count)]
        made = [f"{sums} = {text.const(start)}" for sums in partial]
        width = count * self.lanes
        steps = [
            f"{sums} = {join(sums, step(Place(f'v * {width} + {i * self.lanes}', self.lanes)))}" for i, sums in enumerate(partial)
        ]
        if self.size // width:
            made += loop("v", self.size // width, steps)
        made += [f"{partial[0]} = {join(partial[0], other)}" for other in partial[1:]]
        made += across(how, "s0", self.lanes, into)
        return made + self.rest(lambda place: [f"{into} = {join(into, step(place))}"])
