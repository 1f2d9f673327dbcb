"""How the operands of tensor cores get from memory to shared memory, and from there to the registers of a warp.

Where neighbours stand together in memory they are copied without the threads, while these multiply. Else each thread reads single
numbers before it multiplies, and writes them after that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import attrs

from accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    if_inside,
    select,
    uint16,
)
from accelerators.tvm.kernels.language.tensor_cores import (
    COPIES,
    MULTIPLY,
    PART,
    load_matrices,
    load_turned_matrices,
)
from accelerators.tvm.kernels.language.values import as_index, constant
from accelerators.tvm.kernels.shared.gpu_product import Spot, spots
from accelerators.tvm.kernels.shared.gpu_sums import Tile
from accelerators.tvm.machine.machine import Machine


@attrs.frozen(slots=True, eq=False)
class Source:
    """Where the numbers of a spot stand in memory."""

    position: tuple[Operand, ...]
    is_inside: Value | None = None
    """Are they there? Zeros are taken for numbers beside the matrix. None: they always are."""


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

    @property
    def pitch(self) -> int:
        """The distance in shared memory from one line to the next; with 16 bytes between them no two rows of a matrix that is
        read at once are in one bank."""
        return (self.depth if self.turned else self.extent) + PART

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
        self.memory = kernel.shared(name, uint16, (steps * side.size,))
        self.is_copied = side.lanes > 1
        self.read = None if self.is_copied else kernel.stack(f"next_{name}", uint16, (len(side.spots),))

    def begin(self, step: Value, first: Operand) -> None:
        """Fetch a step: copies begin to where `first` is in shared memory, single numbers are read."""
        for i, spot in enumerate(self.side.spots):
            with self._owned(spot):
                source = self.side.source(step, spot)
                if self.read is None:
                    self._copy(source, first + self.side.at(spot.k, spot.at))
                else:
                    self.read[i] = self._bits(source)

    def end(self, first: Operand) -> None:
        """Write what was read number by number."""
        for i, spot in enumerate(self.side.spots if self.read is not None else ()):
            with self._owned(spot):
                assert self.read is not None
                self.memory[first + self.side.at(spot.k, spot.at)] = self.read[i]

    def load(self, into: Value, first: Operand, k: Operand, position: Operand, lane: Value, is_left: bool) -> None:
        """16 rows or columns of 16 numbers each, as four matrices. Those of a left operand are numbered along the rows first,
        those of a right one along the depth."""
        line, half, far = lane % PART, lane // PART % 2, lane // (2 * PART)
        along, beside = (far, half) if is_left else (half, far)
        k, position = k + along * PART, position + beside * PART
        k, position = (k, position + line) if self.side.turned else (k + line, position)
        load = load_matrices if self.side.turned else load_turned_matrices
        self.kernel.do(load(into, self.memory[first + self.side.at(k, position)]))

    def _copy(self, source: Source, position: Operand) -> None:
        whole = as_index(2 * self.side.lanes)
        taken = whole if source.is_inside is None else select(source.is_inside, whole, 0)
        self.kernel.do(COPIES[self.side.lanes](self.memory[position], self.side.buffer[source.position], taken))

    def _bits(self, source: Source) -> Value:
        """A single number's bits."""
        bits = self.side.buffer[source.position].bits_as(uint16)
        return bits if source.is_inside is None else if_inside(source.is_inside, bits, constant(0, uint16))

    def _owned(self, spot: Spot) -> ExitStack:
        stack = ExitStack()
        if spot.is_own is not None:
            stack.enter_context(self.kernel.when(spot.is_own))
        return stack


def has_tensor_cores(machine: Machine, *elements: Element) -> bool:
    """Do the machine's tensor cores multiply numbers of these element types, which have to be one?"""
    return machine.is_gpu and machine.gpu.has_tensor_cores and len(set(elements)) == 1 and elements[0] in MULTIPLY


def widest_copy(count: int) -> int:
    """The most neighbours that are copied at once where lines of so many numbers follow each other."""
    return next((lanes for lanes in COPIES if count % lanes == 0), 1)


def packed_tensor_side(tile: Tile, own: Value, extent: int, buffer: Buffer, first: Value) -> TensorSide:
    """The side of a constant that is laid out as blocks read it: step after step, for each of `extent` rows or columns `depth`
    numbers."""
    return TensorSide(
        buffer, extent, tile.depth, spots(tile, own, extent, PART, turned=True), PART,
        lambda step, spot: Source((first + step * (tile.depth * extent) + spot.at * tile.depth + spot.k,)), turned=True,
    )
