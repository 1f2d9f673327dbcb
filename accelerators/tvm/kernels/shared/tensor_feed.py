"""Loads of tensor-core operands: from memory to shared memory, and from there to the registers of a warp.

Contiguous elements are copied asynchronously, while the threads multiply. Otherwise each thread reads single elements before it
multiplies, and writes them afterwards; so it does with contiguous elements that are transformed in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    float32,
    if_inside,
    select,
)
from partita.accelerators.tvm.kernels.language.tensor_cores import (
    BITS,
    COPIES,
    LINE,
    MULTIPLY,
    PART,
    load_matrices,
    load_turned_matrices,
    round_to_tf32,
)
from partita.accelerators.tvm.kernels.language.values import as_index, constant
from partita.accelerators.tvm.kernels.shared.element_access import computed_as
from partita.accelerators.tvm.kernels.shared.gpu_product import Spot, spots
from partita.accelerators.tvm.kernels.shared.tensor_tile import TensorTile, pitch
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_multiple

WORD = 4
"""The bytes that a thread writes at once to fill elements outside the matrix."""


@attrs.frozen(slots=True, eq=False)
class Source:
    """The place in memory of a spot's elements."""

    position: tuple[Operand, ...]
    is_inside: Value | None = None
    """Condition that they are inside the matrix, else the side's `fill` is used. None: always inside."""


@attrs.frozen(slots=True, eq=False)
class TensorSide:
    """An operand of a tile, and its loads."""

    buffer: Buffer
    extent: int
    """Rows or columns of the tile."""
    depth: int
    """Depth of a step."""
    spots: tuple[Spot, ...]
    """The places that a thread fills in every step."""
    lanes: int
    """Number of elements of a spot."""
    source: Callable[[Value, Spot], Source]
    """The source in memory of a spot's elements in a step."""
    turned: bool
    """True if the elements of a spot are adjacent along the depth, in memory and in shared memory."""
    is_rounded: bool = False
    """True if the elements in memory are already rounded for the instruction."""
    fill: int = 0
    """The value of elements outside the matrix."""
    change: Callable[[Value, Source], Value] | None = None
    """Transforms the elements of a spot, in their type for computing, before they are multiplied; None leaves them."""

    @property
    def bytes(self) -> int:
        """Bytes per element."""
        return self.buffer.element.bits // 8

    @property
    def is_copied(self) -> bool:
        """True if the elements of a spot are copied asynchronously."""
        return self.change is None and self.lanes * self.bytes in COPIES

    @property
    def pitch(self) -> int:
        """Distance in shared memory from one line to the next."""
        return pitch(self.depth if self.turned else self.extent, self.bytes, self.turned)

    @property
    def size(self) -> int:
        """Elements of a step in shared memory."""
        return (self.extent if self.turned else self.depth) * self.pitch

    def at(self, k: Operand, position: Operand) -> Operand:
        """Position in shared memory of the element at a position along the depth and along the tile."""
        return position * self.pitch + k if self.turned else k * self.pitch + position


class Feed:
    """The loads of an operand: `begin` to fetch a step, `end` it after other work, and `load` parts of it."""

    def __init__(self, kernel: Kernel, name: str, side: TensorSide, steps: int) -> None:
        """Allocates shared memory for `steps` steps."""
        self.kernel, self.side = kernel, side
        self.bits = BITS[side.buffer.element.bits]
        self.memory = kernel.shared(name, self.bits, (steps * side.size,))
        self.read = None if side.is_copied else kernel.registers(f"next_{name}", self.bits, (len(side.spots),), side.lanes)

    @property
    def is_copied(self) -> bool:
        """True if it is copied asynchronously."""
        return self.side.is_copied

    def begin(self, step: Value, first: Operand) -> None:
        """Fetch a step: start its copies, to `first` on in shared memory, or read what threads will write."""
        for i, spot in enumerate(self.side.spots):
            with self._owned(spot):
                source = self.side.source(step, spot)
                if self.read is None:
                    self._copy(source, first + self.side.at(spot.k, spot.at))
                else:
                    self.read[i] = self._bits(source)

    def end(self, step: Value, first: Operand) -> None:
        """Write the elements of a step that threads have read."""
        for i, spot in enumerate(self.side.spots if self.read is not None else ()):
            with self._owned(spot):
                assert self.read is not None
                bits, change = self.read[i], self.side.change
                if change is not None:
                    bits = self._changed(bits, change, self.side.source(step, spot))
                self.memory[first + self.side.at(spot.k, spot.at)] = bits

    def load(self, into: Buffer, at: int, first: Operand, k: Operand, position: Operand, lane: Value, is_left: bool) -> None:
        """Load 16 rows or columns of 32 bytes each, as four matrices, to four words from `at` on. Those of a left operand are
        numbered along the rows first, those of a right one along the depth."""
        if not self.side.turned and self.side.bytes == 4:
            self._load_numbers(into, at, first, k, position, lane, is_left)
        else:
            line, half, far = lane % PART, lane // PART % 2, lane // (2 * PART)
            along, beside = (far, half) if is_left else (half, far)
            k, position = k + along * (LINE // self.side.bytes), position + beside * PART
            k, position = (k, position + line) if self.side.turned else (k + line, position)
            load = load_matrices if self.side.turned else load_turned_matrices
            self.kernel.do(load(into[at], self.memory[first + self.side.at(k, position)]))
        if self.side.buffer.element is float32 and not self.side.is_rounded:
            for word in range(4):
                into[at + word] = round_to_tf32(into[at + word])

    def _load_numbers(
        self, into: Buffer, at: int, first: Operand, k: Operand, position: Operand, lane: Value, is_left: bool
    ) -> None:
        """The same for elements of four bytes that are not adjacent along the depth: each thread reads its own."""
        for word in range(4):
            along, beside = (word // 2, word % 2) if is_left else (word % 2, word // 2)
            stands = self.side.at(k + lane % 4 + along * (LINE // 4), position + lane // 4 + beside * PART)
            into[at + word] = self.memory[first + stands]

    def _copy(self, source: Source, position: Operand) -> None:
        size = self.side.lanes * self.side.bytes
        if source.is_inside is not None and self.side.fill:
            with self.kernel.when(source.is_inside):
                self.kernel.do(COPIES[size](self.memory[position], self.side.buffer[source.position], as_index(size)))
            with self.kernel.otherwise():
                for first in range(0, self.side.lanes, WORD):
                    self.memory[position + first] = constant(self.side.fill, self.bits, WORD)
            return
        taken = as_index(size) if source.is_inside is None else select(source.is_inside, as_index(size), 0)
        self.kernel.do(COPIES[size](self.memory[position], self.side.buffer[source.position], taken))

    def _bits(self, source: Source) -> Value:
        """The bits of a spot's elements."""
        return self._or_fill(self.side.buffer.vector(self.side.lanes, *source.position).bits_as(self.bits), source)

    def _changed(self, bits: Value, change: Callable[[Value, Source], Value], source: Source) -> Value:
        """The bits of a spot's elements after `change`."""
        element = self.side.buffer.element
        numbers = change(bits.bits_as(element).cast(computed_as(element)), source)
        return self._or_fill(numbers.cast(element).bits_as(self.bits), source)

    def _or_fill(self, bits: Value, source: Source) -> Value:
        return bits if source.is_inside is None else if_inside(source.is_inside, bits, self.side.fill)

    def _owned(self, spot: Spot) -> ExitStack:
        stack = ExitStack()
        if spot.is_own is not None:
            stack.enter_context(self.kernel.when(spot.is_own))
        return stack


def has_tensor_cores(machine: Machine, *elements: Element) -> bool:
    """True if the machine's tensor cores multiply these two element types. They use fewer digits of float32, which has to be
    allowed."""
    if not machine.is_gpu or not machine.gpu.has_tensor_cores or elements not in MULTIPLY:
        return False
    return machine.rounds_products if elements[0] is float32 else True


def widest_copy(size: int, *counts: int) -> int:
    """The most adjacent elements that can be copied at once, for elements of `size` bytes at multiples of these counts."""
    return next((copied // size for copied in COPIES if all(is_multiple(count * size, copied) for count in counts)), 1)


def packed_tensor_side(tile: TensorTile, own: Value, extent: int, buffer: Buffer, first: Value) -> TensorSide:
    """The operand for a constant that is laid out as blocks read it: step after step, `depth` elements for each of `extent` rows
    or columns."""
    lanes = LINE // tile.bytes
    return TensorSide(
        buffer, extent, tile.depth, spots(tile, own, extent, lanes, turned=True), lanes,
        lambda step, spot: Source((first + step * (tile.depth * extent) + spot.at * tile.depth + spot.k,)), turned=True,
        is_rounded=True,
    )
