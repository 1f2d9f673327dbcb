"""How the operands of tensor cores get from memory to shared memory, and from there to the registers of a warp.

Where neighbours stand together in memory they are copied without the threads, while these multiply. Else each thread reads single
numbers before it multiplies, and writes them after that; so it does with neighbours that become other numbers in between."""

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
from partita.accelerators.tvm.kernels.shared.gpu_product import Spot, spots
from partita.accelerators.tvm.kernels.shared.numbers import computed_as
from partita.accelerators.tvm.kernels.shared.tensor_tile import TensorTile, pitch
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_multiple

WORD = 4
"""The bytes that a thread fills at once with what stands for numbers beside the matrix."""


@attrs.frozen(slots=True, eq=False)
class Source:
    """Where the numbers of a spot stand in memory."""

    position: tuple[Operand, ...]
    is_inside: Value | None = None
    """Are they there? The side's `fill` is taken for numbers beside the matrix. None: they always are."""


@attrs.frozen(slots=True, eq=False)
class TensorSide:
    """An operand of a tile, as it is fetched."""

    buffer: Buffer
    extent: int
    """The numbers of a step for each of its products: the tile's rows or columns."""
    depth: int
    """The products of a step in each sum."""
    spots: tuple[Spot, ...]
    """What a thread fetches in every step."""
    lanes: int
    """The numbers of a spot."""
    source: Callable[[Value, Spot], Source]
    """Where the numbers of a spot are in a step."""
    turned: bool
    """Are the numbers of a spot neighbours along the depth? So they are in shared memory then."""
    is_rounded: bool = False
    """Are the numbers in memory rounded as the instruction takes them?"""
    fill: int = 0
    """What stands for numbers beside the matrix."""
    change: Callable[[Value, Source], Value] | None = None
    """What becomes of the numbers of a spot, as they are computed with, before they are multiplied; None: nothing does."""

    @property
    def bytes(self) -> int:
        """What a number takes."""
        return self.buffer.element.bits // 8

    @property
    def is_copied(self) -> bool:
        """Are the numbers of a spot copied without the threads?"""
        return self.change is None and self.lanes * self.bytes in COPIES

    @property
    def pitch(self) -> int:
        """The distance in shared memory from one line to the next."""
        return pitch(self.depth if self.turned else self.extent, self.bytes, self.turned)

    @property
    def size(self) -> int:
        """The numbers of a step in shared memory."""
        return (self.extent if self.turned else self.depth) * self.pitch

    def at(self, k: Operand, position: Operand) -> Operand:
        """Where the number at a position of the depth and of the tile stands in shared memory."""
        return position * self.pitch + k if self.turned else k * self.pitch + position


class Feed:
    """An operand's way: `begin` to fetch a step, `end` it after other work, and `load` parts of it."""

    def __init__(self, kernel: Kernel, name: str, side: TensorSide, steps: int) -> None:
        """So many steps find room in shared memory."""
        self.kernel, self.side = kernel, side
        self.bits = BITS[side.buffer.element.bits]
        self.memory = kernel.shared(name, self.bits, (steps * side.size,))
        self.read = None if side.is_copied else kernel.registers(f"next_{name}", self.bits, (len(side.spots),), side.lanes)

    @property
    def is_copied(self) -> bool:
        """Does it fetch without the threads?"""
        return self.side.is_copied

    def begin(self, step: Value, first: Operand) -> None:
        """Fetch a step: copies begin to where `first` is in shared memory, what threads write is read."""
        for i, spot in enumerate(self.side.spots):
            with self._owned(spot):
                source = self.side.source(step, spot)
                if self.read is None:
                    self._copy(source, first + self.side.at(spot.k, spot.at))
                else:
                    self.read[i] = self._bits(source)

    def end(self, step: Value, first: Operand) -> None:
        """Write what was read of a step."""
        for i, spot in enumerate(self.side.spots if self.read is not None else ()):
            with self._owned(spot):
                assert self.read is not None
                bits, change = self.read[i], self.side.change
                if change is not None:
                    bits = self._changed(bits, change, self.side.source(step, spot))
                self.memory[first + self.side.at(spot.k, spot.at)] = bits

    def load(self, into: Buffer, at: int, first: Operand, k: Operand, position: Operand, lane: Value, is_left: bool) -> None:
        """16 rows or columns of 32 bytes each, as four matrices, to four words from `at` on. Those of a left operand are numbered
        along the rows first, those of a right one along the depth."""
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
        """The same for numbers of four bytes that are no neighbours along the depth: each thread reads its own."""
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
        """The bits of a spot's numbers."""
        return self._or_fill(self.side.buffer.vector(self.side.lanes, *source.position).bits_as(self.bits), source)

    def _changed(self, bits: Value, change: Callable[[Value, Source], Value], source: Source) -> Value:
        """The bits of what becomes of a spot's numbers."""
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
    """Do the machine's tensor cores multiply numbers of these two element types? Of float32 they take fewer digits, which has to
    be allowed."""
    if not machine.is_gpu or not machine.gpu.has_tensor_cores or elements not in MULTIPLY:
        return False
    return machine.rounds_products if elements[0] is float32 else True


def widest_copy(size: int, *counts: int) -> int:
    """The most neighbours that are copied at once where numbers of this size stand at multiples of these counts."""
    return next((copied // size for copied in COPIES if all(is_multiple(count * size, copied) for count in counts)), 1)


def packed_tensor_side(tile: TensorTile, own: Value, extent: int, buffer: Buffer, first: Value) -> TensorSide:
    """The side of a constant that is laid out as blocks read it: step after step, for each of `extent` rows or columns `depth`
    numbers."""
    lanes = LINE // tile.bytes
    return TensorSide(
        buffer, extent, tile.depth, spots(tile, own, extent, lanes, turned=True), lanes,
        lambda step, spot: Source((first + step * (tile.depth * extent) + spot.at * tile.depth + spot.k,)), turned=True,
        is_rounded=True,
    )
