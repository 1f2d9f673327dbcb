"""A register tile of sums of products: `rows` elements times `vectors` vectors at each step.

A step loads the vectors, and broadcasts each of the elements over the lanes in turn. The tile is as large as the registers allow,
so that enough products are in flight to hide the multiplication's latency, and there are more products than loads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import attrs

from partita.accelerators.tvm.kernels.language import (
    Kernel,
    Operand,
    Registers,
    Value,
    float32,
    int32,
    maximum,
    minimum,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.instructions import FMA, Instruction
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple, known_least

LATENCY = 4.0
"""Latency of a product in cycles."""

PORTS = 2
"""Number of products, and of loads, that start in one cycle."""


@attrs.frozen(slots=True)
class Tile:
    """A tile of sums in registers."""

    rows: int
    """Rows: elements of the left matrix that each vector is multiplied by."""
    vectors: int
    """Vectors per row."""
    lanes: int
    """Elements of a vector."""

    around: ClassVar[float] = 1.0
    """Loop overhead of a step in cycles."""

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def cycles(self) -> float:
        """Estimated cycles of a step: the slowest of products, loads and latency, plus the loop overhead."""
        return max(self.rows * self.vectors / PORTS, (self.rows + self.vectors) / PORTS, LATENCY) + self.around

    def sums(self, kernel: Kernel) -> Registers:
        """The registers for the sums, set to zero."""
        acc = kernel.registers("acc", float32, (self.rows, self.vectors), self.lanes)
        with self.each(kernel) as (r, v):
            acc[r, v] = 0.0
        return acc

    def step(
        self,
        kernel: Kernel,
        acc: Registers,
        number: Callable[[Value], Value],
        vector: Callable[[Value], Value],
        instruction: Instruction = FMA,
    ) -> None:
        """Adds one product to each sum, or as many as the instruction makes: the element of row r times the vector that begins at
        a column of the tile."""
        kind = vector(as_index(0)).type
        read = kernel.registers("read", kind.element, (self.vectors,), kind.lanes)
        with kernel.unroll(self.vectors, "v") as v:
            read[v] = vector(v * self.lanes)
        with kernel.unroll(self.rows, "r") as r:
            spread = kernel.name_value("number", number(r).spread(self.lanes))
            with kernel.unroll(self.vectors, "v") as v:
                acc[r, v] = instruction.add(acc[r, v], spread, read[v])

    @contextmanager
    def each(self, kernel: Kernel) -> Iterator[tuple[Value, Value]]:
        """A block for each row and vector, unrolled."""
        with kernel.unroll(self.rows, "r") as r, kernel.unroll(self.vectors, "v") as v:
            yield r, v

    def spilled(self, kernel: Kernel, acc: Registers) -> Registers:
        """A copy of the sums in memory, to be read in a loop."""
        sums = kernel.registers("sums", float32, (self.rows, self.vectors), self.lanes)
        with self.each(kernel) as (r, v):
            sums[r, v] = acc[r, v]
        return sums


def fitting(machine: Machine, beside: Callable[[int, int], int]) -> Iterator[tuple[int, int]]:
    """Rows and vectors of every tile whose sums fit the registers together with `beside(rows, vectors)` other registers.

    With more rows than half the registers LLVM broadcasts too many elements in advance, and spills."""
    for vectors in range(1, machine.registers):
        for rows in range(1, machine.registers // 2 + 1):
            if rows * vectors + beside(rows, vectors) <= machine.registers:
                yield rows, vectors


def tiles(machine: Machine) -> Iterator[Tile]:
    """Every tile that fits the registers: the sums, the vectors of a step, a broadcast element and a spare one."""
    for rows, vectors in fitting(machine, lambda rows, vectors: vectors + 2):
        yield Tile(rows, vectors, machine.lanes)


def starts(size: int, step: int) -> list[int]:
    """Starts of pieces of `step` that cover `size`; the last overlaps the one before if they do not divide."""
    return [min(i * step, size - step) for i in range(math.ceil(size / step))]


def start(piece: Value, step: int, size: int | Value) -> Operand:
    """Start of a piece."""
    is_whole = not isinstance(size, Value) and is_multiple(size, step)
    return piece * step if is_whole else minimum(piece * step, size - step)


def pieces(size: int | Value, step: int) -> Operand:
    """Number of pieces of `step` that cover the size; the last overlaps the one before if they do not divide."""
    return math.ceil(size / step) if isinstance(size, int) else (as_index(size) + (step - 1)) // step


def counted(count: Operand) -> int | Value:
    """A static count as an integer, a dynamic one as a value of the kernel."""
    return count if isinstance(count, int) else as_index(count)


def smaller(a: Operand, b: Operand) -> Operand:
    """The smaller of two counts: one of them, if it is known statically which."""
    if isinstance(a, (int, Extent)) and isinstance(b, (int, Extent)):
        if known_least(b - a) >= 0:
            return a
        if known_least(a - b) >= 0:
            return b
    return minimum(as_index(a), as_index(b))


def larger(a: Operand, b: Operand) -> Operand:
    """The larger of two counts: one of them, if it is known statically which."""
    if isinstance(a, (int, Extent)) and isinstance(b, (int, Extent)):
        if known_least(a - b) >= 0:
            return a
        if known_least(b - a) >= 0:
            return b
    return maximum(as_index(a), as_index(b))


def kept(kernel: Kernel, name: str, count: Operand, is_kept: bool = True) -> Value:
    """A count that is computed once, at this point. TVM inlines a named value at each use, but not one that is read from memory;
    divisions by dynamic sizes would grow with each use. With `is_kept` false the count is only named."""
    if not is_kept:
        return kernel.name_value(name, count)
    cell = kernel.stack(f"{name}_kept", int32, (1,))
    cell[0] = as_index(count).cast(int32)
    return kernel.name_value(name, cell[0].as_index())
