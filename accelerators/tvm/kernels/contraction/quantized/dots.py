"""Instructions that sum up products of bytes, as kernels use them.

Each adds to a vector of sums, one per column, the products of a group of elements, which all columns share, with as many signed
bytes of each column. The elements are four unsigned bytes, or two such bytes that were widened to 16 bits. The sums are exact, so
every instruction computes the same results, and so does the portable code that emulates an instruction on a processor without
it. Arm's usmmla takes two rows and two columns at once; for single rows such a processor has usdot."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Registers,
    Value,
    constant,
    int8,
    int16,
    int32,
    int64,
    sdot,
    uint8,
    uint32,
    uint64,
    usdot,
    usmmla,
    vpdpbusd,
    vpmaddwd,
)
from partita.accelerators.tvm.kernels.language.buffers import Index
from partita.accelerators.tvm.machine.instructions import BY_NAME, Used
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.types import Array

WORD = 32
"""Bits of the group of elements that all columns of a step share."""

Add = Callable[[Value, Value, Buffer, Value], Value]
"""Returns a vector of sums with a step's products added, given the sums, the elements of each column as 32 bits, the buffer of
the columns' bytes, and the start of the step in it."""


@attrs.frozen(slots=True)
class Dot:
    """One instruction for a step."""

    lanes: int
    """Sums of a vector."""
    is_by_columns: bool
    """True if the bytes of a column are adjacent; else those of all columns with the same place in the group are."""
    add: Add | None
    """The step with the processor's own instructions; None: in portable code."""
    beside: Callable[[int, int], int]
    """Number of registers of a tile besides its sums, given its rows and vectors."""
    element: Element = uint8
    """The element type in which the image is read; bytes are copied if it is another one."""
    column: Element = int8
    """The preferred element type of columns; a step takes bytes too."""
    rows: int = 1
    """Rows that are multiplied at once: two by words of 64 bits, or one."""
    less: Callable[[Value, Buffer, Value], Value] | None = None
    """Adds to sums what `add` adds too much, which is the same for all rows: they may sum it up once."""

    @property
    def group(self) -> int:
        """Elements of the depth per step."""
        return self.rows * WORD // self.element.bits

    @property
    def word(self) -> Element:
        """The integers by which the elements of a step are read."""
        return int32 if self.rows == 1 else int64

    @property
    def bytes(self) -> int:
        """Elements of columns that a step of one vector takes."""
        return self.lanes * self.group

    def pack(self, bytes_of_columns: Array) -> Array:
        """[..., column, byte] in the order of the instruction."""
        ordered = bytes_of_columns if self.is_by_columns else bytes_of_columns.swapaxes(-1, -2)
        return np.ascontiguousarray(ordered).reshape(*bytes_of_columns.shape[:-2], self.bytes)

    def position(self, column: Operand, byte: int) -> Operand:
        """Position of a byte of a column within its step."""
        return column * self.group + byte if self.is_by_columns else byte * self.lanes + column

    def step(self, kernel: Kernel, acc: Registers, at: Index, left: Value, right: Buffer, first: Value) -> None:
        """Adds a step's products to the vector of sums at a position of the tile. `left` is a word that all columns share, or a
        vector with 32 bits for each column."""
        if self.add is not None:
            total = acc[at] if self.less is None else acc[at] - self.less(constant(0, int32, self.lanes), right, first)
            acc[at] = self.add(total, left if left.type.lanes > 1 else left.spread(self.lanes), right, first)
            return
        numbers_of = self._numbers(kernel, left)
        with kernel.lanes(self.lanes) as lane:
            total = acc.lane(at, lane)
            for i, number in enumerate(numbers_of(lane)):
                total = total + number * right[first + self.position(lane, i)].cast(int32)
            acc.set_lane(at, lane, total)

    def _numbers(self, kernel: Kernel, left: Value) -> Callable[[Value], list[Value]]:
        """A function that splits the word of a column into elements."""

        def apart(word: Value) -> list[Value]:
            bits, size = word.bits_as(uint32 if self.word is int32 else uint64), self.element.bits
            return [((bits >> (size * i)) & ((1 << size) - 1)).cast(self.element).cast(int32) for i in range(self.group)]

        if left.type.lanes == 1:
            shared = apart(left)
            return lambda lane: shared
        words = kernel.registers("words", int32, (1,), self.lanes)
        words[0] = left
        return lambda lane: apart(words.lane(0, lane))


def _vnni(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    lanes = total.type.lanes
    return vpdpbusd(total, left.regrouped(uint8), right.vector(lanes * 4, first))


def _usdot(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    return usdot(total, left.regrouped(uint8), right.vector(total.type.lanes * 4, first))


def _sdot(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    """The products of signed bytes, which are 128 less than the unsigned ones."""
    return sdot(total, (left ^ _SIGNS).regrouped(int8), right.vector(total.type.lanes * 4, first))


def _sdot_less(total: Value, right: Buffer, first: Value) -> Value:
    """The products of -128."""
    size = total.type.lanes * 4
    return sdot(total, constant(-128, int8, size), right.vector(size, first))


_SIGNS = 0x80808080 - (1 << 32)
"""The highest bits of four bytes."""


def _usmmla(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    return usmmla(total, left.regrouped(uint8), right.vector(total.type.lanes * 4, first))


def _pairs(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    """The products in 16-bit integers, two products of which fit 32 bits."""
    lanes = total.type.lanes
    return total + vpmaddwd(left.regrouped(int16), right.vector(lanes * 2, first).cast(int16))


def has_tiles(machine: Machine) -> bool:
    """True if this machine sums up products of bytes in tiles. For few rows it does so in vectors, as AVX-512 does."""
    used = machine.instruction("int8")
    return used is not None and used.name == "amx-int8"


def dot_of_rows(machine: Machine) -> Dot | None:
    """The instruction that takes two rows at once; None if this machine has none. Emulated, it takes one like all others."""
    used = machine.instruction("int8")
    if used is None or used.name != "usmmla":
        return None
    dot = Dot(BY_NAME[used.name].lanes, True, _usmmla, lambda rows, vectors: 2 * vectors + 2, rows=2)
    return attrs.evolve(dot, add=None) if used.is_emulated else dot


def plain_dot(lanes: int) -> Dot:
    """The step in portable code, for `lanes` columns."""
    return _DOTS["plain"](lanes)


def dot_of(machine: Machine) -> Dot:
    """The instruction by which this machine sums up products of bytes."""
    used = machine.instruction("int8") or Used("plain")
    dot = _DOTS[used.name](BY_NAME[used.name].lanes or machine.lanes)
    return attrs.evolve(dot, add=None, less=None) if used.is_emulated else dot


_DOTS: dict[str, Callable[[int], Dot]] = {
    "amx-int8": lambda lanes: Dot(lanes, True, _vnni, lambda rows, vectors: vectors + 2),
    "avx512-vnni": lambda lanes: Dot(lanes, True, _vnni, lambda rows, vectors: vectors + 2),
    "avx-vnni": lambda lanes: Dot(lanes, True, _vnni, lambda rows, vectors: vectors + 2),
    "avx2": lambda lanes: Dot(lanes, True, _pairs, lambda rows, vectors: vectors + 2, int16, int16),
    "usmmla": lambda lanes: Dot(lanes, True, _usdot, lambda rows, vectors: vectors + 2),
    "usdot": lambda lanes: Dot(lanes, True, _usdot, lambda rows, vectors: vectors + 2),
    "sdot": lambda lanes: Dot(lanes, True, _sdot, lambda rows, vectors: 2 * vectors + 3, less=_sdot_less),
    "plain": lambda lanes: Dot(lanes, False, None, lambda rows, vectors: vectors + 4),
}
