"""How kernels say the instructions that sum up products of bytes.

Each adds to the sums of a vector, one for each column, the products of four unsigned bytes, which all columns share, with four
signed bytes of each column. The sums are exact, so that every way makes the same numbers, and so does the portable code that
stands for an instruction where the processor lacks it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    int16,
    int32,
    uint8,
    uint16,
    uint32,
    vpdpbusd,
    vpmaddwd,
)
from accelerators.tvm.kernels.shared.draft import Array
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.special import BY_NAME, Used

GROUP = 4
"""Bytes of the depth that one step takes."""

Add = Callable[[Value, Value, Buffer, Value], Value]
"""A vector of sums with a step's products added: of the sums, the four shared bytes as 32 bits, and the buffer of the columns'
bytes and where the step's begin in it."""


@attrs.frozen(slots=True)
class Dot:
    """One way to take a step."""

    lanes: int
    """How many sums a vector holds."""
    order: tuple[int, ...]
    """How the bytes of a step stand in memory: the axes of [column, byte / 2, byte % 2], the outermost first."""
    add: Add | None
    """The step in the processor's own instructions; None: in portable code."""
    beside: Callable[[int, int], int]
    """How many registers a tile of so many rows and vectors takes beside its sums."""

    @property
    def bytes(self) -> int:
        """How many bytes of columns a step of one vector takes."""
        return self.lanes * GROUP

    @property
    def is_by_columns(self) -> bool:
        """Do the four bytes of a column stand side by side?"""
        return self.order == _COLUMNS

    def pack(self, bytes_of_columns: Array) -> Array:
        """[..., column, byte] in the instruction's order."""
        whole = bytes_of_columns.reshape(*bytes_of_columns.shape[:-1], 2, 2)
        first = whole.ndim - 3
        axes = (*range(first), *[first + axis for axis in self.order])
        return np.ascontiguousarray(whole.transpose(axes)).reshape(*bytes_of_columns.shape[:-2], self.bytes)

    def position(self, column: Operand, byte: int) -> Operand:
        """Where a byte of a column stands within its step."""
        sizes, index = (self.lanes, 2, 2), (column, byte // 2, byte % 2)
        position: Operand = 0
        for axis in self.order:
            position = position * sizes[axis] + index[axis]
        return position

    def step(self, kernel: Kernel, acc: Registers, at: tuple[Operand, Operand], left: Value, right: Buffer, first: Value) -> None:
        """Add a step's products to the vector of sums at a position of the tile."""
        if self.add is not None:
            acc[at] = self.add(acc[at], left, right, first)
            return
        bits = left.bits_as(uint32)
        bytes_of_row = [((bits >> (8 * byte)) & 255).cast(int32) for byte in range(GROUP)]
        with kernel.lanes(self.lanes) as lane:
            total = acc.lane(at, lane)
            for byte, number in enumerate(bytes_of_row):
                total = total + number * right[first + self.position(lane, byte)].cast(int32)
            acc.set_lane(at, lane, total)


def _vnni(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    lanes = total.type.lanes
    return vpdpbusd(total, left.spread(lanes).regrouped(uint8), right.vector(lanes * GROUP, first))


def _pairs(total: Value, left: Value, right: Buffer, first: Value) -> Value:
    """By 16-bit numbers: bytes 0 and 2 of each column, then 1 and 3. Two products of such numbers fit 32 bits."""
    lanes = total.type.lanes
    shared = left.spread(lanes)
    even, odd = (shared & 0x00FF00FF).regrouped(int16), (shared.regrouped(uint16) >> 8).bits_as(int16)
    for half, numbers in enumerate((even, odd)):
        total = total + vpmaddwd(numbers, right.vector(lanes * 2, first + half * lanes * 2).cast(int16))
    return total


def has_tiles(machine: Machine) -> bool:
    """Does this machine sum up products of bytes in tiles? Where there are few rows it does so in vectors, as AVX-512 does."""
    used = machine.instruction("int8")
    return used is not None and used.name == "amx-int8"


def dot_of(machine: Machine) -> Dot:
    """The instruction by which this machine sums up products of bytes."""
    used = machine.instruction("int8") or Used("plain")
    dot = _DOTS[used.name](BY_NAME[used.name].lanes or machine.lanes)
    return attrs.evolve(dot, add=None) if used.is_emulated else dot


_COLUMNS, _EVEN_AND_ODD, _BYTES = (0, 1, 2), (2, 0, 1), (1, 2, 0)

_DOTS: dict[str, Callable[[int], Dot]] = {
    "amx-int8": lambda lanes: Dot(lanes, _COLUMNS, _vnni, lambda rows, vectors: vectors + 2),
    "avx512-vnni": lambda lanes: Dot(lanes, _COLUMNS, _vnni, lambda rows, vectors: vectors + 2),
    "avx-vnni": lambda lanes: Dot(lanes, _COLUMNS, _vnni, lambda rows, vectors: vectors + 2),
    "avx2": lambda lanes: Dot(lanes, _EVEN_AND_ODD, _pairs, lambda rows, vectors: 2 * vectors + 3),
    "plain": lambda lanes: Dot(lanes, _BYTES, None, lambda rows, vectors: vectors + 4),
}
