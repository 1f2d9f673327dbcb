"""Layouts of constant matrices for products: panels of a few vectors' width, each one contiguous stream.

Kernels that read a constant in the same layout share its memory. Columns of 8-bit or 4-bit integers form blocks of a vector's
width, and a few blocks a panel: each step of the depth has a vector of every block. A step of 4-bit integers is eight elements of
the depth, in 32 bits per column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.bodies.stored_types import as_stored
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import lookup_for
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    float32,
    int8,
    int32,
    minimum,
    uint8,
)
from partita.accelerators.tvm.kernels.shared.loops import starts
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.types import Array, numpy_dtype


@attrs.frozen(slots=True)
class PanelLayout:
    """The layout of one matrix, as a function of the constant in the model."""

    depth: int
    columns: int
    width: int
    """Columns of a panel; the last overlaps the one before if they do not divide the columns."""
    group: int
    """Number of neighbours along the depth that are adjacent in memory."""
    turned: bool
    """True if the constant is transposed, [columns, depth]."""
    dtype: str
    """The element type that it is stored in."""
    factor: float = 1.0
    """Factor by which all elements are multiplied."""

    @property
    def steps(self) -> int:
        """Groups of a column; the last is padded with zeros."""
        return math.ceil(self.depth / self.group)

    @property
    def panel_size(self) -> int:
        """Elements of a panel."""
        return self.steps * self.group * self.width

    @property
    def size(self) -> int:
        """Elements of the whole matrix."""
        return math.ceil(self.columns / self.width) * self.panel_size

    def __call__(self, array: Array) -> Array:
        """The constant in panels [panel, step, column, neighbour], flat."""
        matrix = array.T if self.turned else array
        firsts = starts(self.columns, self.width)
        panels = new_weight((len(firsts), self.steps * self.group, self.width), numpy_dtype(self.dtype))
        for panel, first in zip(panels, firsts, strict=True):
            group_into(panel, as_stored(matrix[:, first : first + self.width], self.dtype), self.group)
        return (panels if self.factor == 1.0 else panels * np.float32(self.factor)).reshape(-1)

    def column(self, number: Value) -> Operand:
        """Start of a column; its next group is `width * group` elements further."""
        panel = number // self.width
        first = minimum(panel * self.width, self.columns - self.width) if self.columns % self.width else panel * self.width
        return panel * self.panel_size + (number - first) * self.group


def group_into(panel: Array, columns: Array, group: int) -> None:
    """Fill a flat panel with columns [depth, column]: the neighbours of a group are adjacent, and the last group is padded with
    zeros."""
    grouped = panel.reshape(-1, columns.shape[1], group)
    for i in range(group):
        neighbours = columns[i::group]
        grouped[: len(neighbours), :, i] = neighbours
        grouped[len(neighbours) :, :, i] = 0


PANEL = 4
"""Blocks of a panel."""

STEP = 8
"""Elements of the depth that are read together."""

HALF_BITS = 4
"""Bits of a 4-bit integer."""

Half = Callable[[Value, int], Value]
"""The n-th 4-bit integers of vectors of 32-bit words, as float32."""


@attrs.frozen(slots=True)
class Packing:
    """The layout of one matrix."""

    bits: int
    """Bits per element: 8 or 4."""
    signed: bool
    """True if the elements are signed."""
    depth: int
    columns: int
    lanes: int
    """Columns of a block."""

    @classmethod
    def of(cls, attributes: Mapping[str, int]) -> Packing:
        """The layout given by an op's attributes."""
        return cls(attributes["bits"], bool(attributes["signed"]), *(attributes[key] for key in ("depth", "columns", "lanes")))

    @property
    def attributes(self) -> dict[str, int]:
        """The layout as attributes of an op."""
        return {key: int(value) for key, value in attrs.asdict(self).items()}

    @property
    def blocks(self) -> int:
        """Number of blocks. The last overlaps the one before if they do not divide the columns."""
        return math.ceil(self.columns / self.lanes)

    @property
    def stored(self) -> int:
        """Columns of a block that the matrix has."""
        return min(self.lanes, self.columns)

    @property
    def panels(self) -> int:
        return math.ceil(self.blocks / PANEL)

    @property
    def group(self) -> int:
        """Elements of a column per element of the buffer."""
        return STEP if self.bits == 4 else 1

    @property
    def steps(self) -> int:
        """Elements of the buffer per column."""
        return math.ceil(self.depth / self.group)

    @property
    def element(self) -> Element:
        """The element type of the buffer."""
        return int32 if self.bits == 4 else int8 if self.signed else uint8

    @property
    def size(self) -> int:
        """Number of elements of the buffer."""
        return self.blocks * self.steps * self.lanes

    def start(self, block: Operand) -> Operand:
        """The first column of a block."""
        first = block * self.lanes
        if isinstance(first, Value):
            return minimum(first, self.columns - self.stored) if self.columns % self.lanes else first
        return min(int(first), self.columns - self.stored)

    def pack(self, matrix: Array) -> Array:
        """A matrix [depth, columns] in this layout."""
        packed = new_weight((self.size,), np.dtype(self.element.name))
        for panel in range(0, self.blocks, PANEL):
            blocks = np.zeros((min(PANEL, self.blocks - panel), self.steps * self.group, self.lanes), np.uint8)
            for i, block in enumerate(blocks, panel):
                first = int(self.start(i))  # type: ignore[arg-type]
                block[: self.depth, : self.stored] = matrix[:, first : first + self.stored].astype(np.uint8)
            words = blocks if self.bits == 8 else _words(blocks.reshape(len(blocks), self.steps, self.group, self.lanes))
            flat = words.transpose(1, 0, 2).reshape(-1).view(packed.dtype)
            start = int(self.panel(panel // PANEL))  # type: ignore[arg-type]
            packed[start : start + flat.size] = flat
        return packed

    def by_block(self, rows: Array) -> Array:
        """A matrix [rows, columns], such as scales, padded to at least the columns of a block."""
        return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, max(0, self.lanes - self.columns)))))

    # -- in a kernel ---------------------------------------------------------------------------------------

    def panel(self, number: Operand) -> Operand:
        """Start of a panel."""
        return number * (PANEL * self.steps * self.lanes)

    def vectors(
        self, kernel: Kernel, buffer: Buffer, first: Operand, depth: Value, across: int, count: int, half: Half
    ) -> list[list[Value]]:
        """`count` elements of the depth from `depth` on: for each, a vector of every block of the panel that begins at `first`.

        4-bit integers are those of one word; if they are fewer than a word holds, the first may be anywhere in it."""
        if self.bits == 8:
            at = [first + (depth + j) * (across * self.lanes) for j in range(count)]
            return [[buffer.vector(self.lanes, a + v * self.lanes).cast(float32) for v in range(across)] for a in at]
        step = depth // STEP
        at = [first + (step * across + v) * self.lanes for v in range(across)]
        words = [buffer.vector(self.lanes, position) for position in at]
        if count < STEP:
            moved = kernel.name_value("moved", (depth % STEP).cast(int32) * HALF_BITS).spread(self.lanes)
            words = [word >> moved for word in words]
        words = [kernel.name_value(f"word{v}", word) for v, word in enumerate(words)]
        return [[half(word, j) for word in words] for j in range(count)]

    def number(self, buffer: Buffer, column: Value, k: Value) -> Value:
        """One element of the matrix."""
        block = column // self.lanes
        panel = block // PANEL
        across = minimum(self.blocks - panel * PANEL, PANEL)
        step = k // self.group
        element = buffer[
            self.panel(panel) + (step * across + block % PANEL) * self.lanes + (column - self.start(block))
        ]
        if self.bits == 8:
            return element.cast(float32)
        moved = (k % self.group).cast(int32) * 4
        bits = (element >> moved) & 15
        return (((bits ^ 8) - 8) if self.signed else bits).cast(float32)


def half_of(packing: Packing, kernel: Kernel, machine: Machine) -> Half:
    """The conversion of 4-bit integers to floats: a table lookup if the processor has an instruction for it, else arithmetic."""
    lookup = lookup_for(packing.lanes, machine) if packing.bits == 4 else None
    if lookup is None:
        return partial(_computed, packing.signed)
    table = kernel.stack("table", float32, (16,))
    for i in range(16):
        table[i] = float(i - 16 if packing.signed and i > 7 else i)
    return lambda word, j: lookup(table.vector(16, 0), word >> (4 * j) if j else word)


def _computed(signed: bool, word: Value, j: int) -> Value:
    if signed:
        return ((word << (28 - 4 * j)) >> 28).cast(float32)
    return ((word >> (4 * j)) & 15).cast(float32)


def _words(halves: Array) -> Array:
    """[..., eight elements of the depth, lanes] as words of 32 bits."""
    words = np.zeros((*halves.shape[:-2], halves.shape[-1]), np.uint32)
    for j in range(STEP):
        words |= (halves[..., j, :] & np.uint8(15)).astype(np.uint32) << np.uint32(4 * j)
    return words
