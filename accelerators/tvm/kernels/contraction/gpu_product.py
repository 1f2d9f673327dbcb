"""A matrix product on a GPU: each block computes a tile, whose operands are loaded into shared memory step by step.

While the threads multiply one step they prefetch the next one into registers, and then write it to the other half of the shared
memory. So there is one barrier per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import STAGES, WIDTH, BlockTile, TensorTile
from partita.accelerators.tvm.kernels.language import Buffer, Element, Kernel, Operand, Registers, Value, float32
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.graph.types import Array

Sum = Callable[[int], Value]
"""Returns a thread's sum by its number."""

Store = Callable[[Value, Value, Value], None]
"""Stores a sum at a row and a column of the tile."""


class SlicedTile(Protocol):
    """The interface of all kinds of tiles."""

    @property
    def slices(self) -> int:
        """Number of slices of the depth, and so of threads that share each sum."""

    @property
    def slice_threads(self) -> int:
        """Number of threads of a slice."""

    @property
    def depth(self) -> int:
        """Depth of one step."""


@attrs.frozen(slots=True, eq=False)
class Line:
    """Sums of a thread in one row of the tile."""

    row: Value
    columns: Sequence[tuple[Value, int]]
    """The column and the number of each sum."""


@attrs.frozen(slots=True, eq=False)
class SlicedSums:
    """The sums of each thread of a block."""

    kernel: Kernel
    tile: SlicedTile
    slice: Value
    """The thread's slice."""
    own: Value
    """The thread's number in its slice."""
    get: Sum
    put: Callable[[int, Value], None]
    """Sets a sum."""
    count: int
    """Number of sums of a thread."""
    element: Element = float32
    """The element type of the sums."""

    def store(self, lines: Sequence[Line], store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        """Adds up the slices, and stores each sum whose row and column in the tile are below the bounds. A bound of None is never
        reached."""
        if self.tile.slices == 1:
            self._store(lines, store, bounds)
            return
        kernel = self.kernel
        size = self.tile.slice_threads * self.count
        parts = kernel.shared("parts", self.element, ((self.tile.slices - 1) * size,))
        with kernel.when(self.slice > 0):
            for number in range(self.count):
                parts[(self.slice - 1) * size + self._position(number)] = self.get(number)
        kernel.barrier()
        with kernel.when(self.slice.equals(0)):
            for number in range(self.count):
                with kernel.loop(self.tile.slices - 1, "part") as part:
                    self.put(number, self.get(number) + parts[part * size + self._position(number)])
            self._store(lines, store, bounds)

    def _position(self, number: int) -> Value:
        """Position of the thread's sum among those of its slice."""
        return number * self.tile.slice_threads + self.own

    def _store(self, lines: Sequence[Line], store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        for line in lines:
            with self.kernel.when(None if bounds[0] is None else line.row < bounds[0]):
                for column, number in line.columns:
                    with self.kernel.when(None if bounds[1] is None else column < bounds[1]):
                        store(self.get(number), line.row, column)


@attrs.frozen(slots=True, eq=False)
class Spot:
    """A place in shared memory that a thread fills in every step: elements that are adjacent along the tile, or along the
    depth."""

    k: Operand
    """Its position along the depth."""
    at: Operand
    """Its position along the tile."""
    is_own: Value | None = None
    """Condition that the thread fills it; None if every thread does."""


@attrs.frozen(slots=True, eq=False)
class Side:
    """The left or the right operand of a tile, and its loads by threads."""

    extent: int
    """Rows or columns of the tile."""
    spots: tuple[Spot, ...]
    """The places that a thread fills."""
    lanes: int
    """Number of elements of a spot."""
    number: Callable[[Value, Spot], Value]
    """Reads the elements of a spot in a step, in the type in which they are multiplied."""
    turned: bool = False
    """True if the elements of a spot are adjacent along the depth."""

    @property
    def pitch(self) -> int:
        """Distance in shared memory from one step of the depth to the next; padded if threads write along the depth."""
        return self.extent + (WIDTH if self.turned else 0)


class TiledProduct:
    """Writes the loops of one tile."""

    def __init__(
        self, kernel: Kernel, tile: BlockTile, thread: Value, left: Side, right: Side, element: Element = float32
    ) -> None:
        """Both operands are multiplied and accumulated in this element type of four bytes."""
        self.kernel, self.tile, self.element = kernel, tile, element
        self.left, self.right = left, right
        self.slice = kernel.name_value("slice", thread // tile.slice_threads) if tile.slices > 1 else as_index(0)
        self.own = own_thread(tile, thread)
        self.row, self.column = self.own // tile.across, self.own % tile.across
        self.memory = {side: self._shared(name, side) for name, side in (("left", left), ("right", right))}
        self.fetched = {
            side: kernel.registers(f"next_{name}", element, (len(side.spots),), side.lanes)
            for name, side in (("left", left), ("right", right))
        }
        self.sums = kernel.registers("sums", element, (tile.high, tile.wide), 1)

    def _shared(self, name: str, side: Side) -> Buffer:
        return self.kernel.shared(name, self.element, (STAGES * self.tile.slices * self.tile.depth * side.pitch,))

    def write(self, steps: Operand, store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        """Writes the whole loop: `steps` steps, at least one and perhaps dynamic, then stores each sum whose row and column in
        the tile are below the bounds. A bound of None is never reached."""
        kernel, tile, is_single = self.kernel, self.tile, isinstance(steps, int) and steps == 1
        for row in range(tile.high):
            for column in range(tile.wide):
                self.sums[row, column] = 0
        self._fetch(self._step(as_index(0)))
        self._put(as_index(0))
        kernel.barrier()
        with kernel.loop(steps, "step") as step:
            if not is_single:
                with kernel.when(step + 1 < steps):
                    self._fetch(self._step(step + 1))
            self._multiply(step % STAGES)
            if not is_single:
                with kernel.when(step + 1 < steps):
                    self._put((step + 1) % STAGES)
                kernel.barrier()
        count = tile.high * tile.wide
        sums = SlicedSums(kernel, tile, self.slice, self.own, self._sum, self._set_sum, count, self.element)
        sums.store(self._lines(), store, bounds)

    def _sum(self, number: int) -> Value:
        return self.sums[divmod(number, self.tile.wide)]

    def _set_sum(self, number: int, value: Value) -> None:
        self.sums[divmod(number, self.tile.wide)] = value

    def _step(self, step: Value) -> Value:
        """Number of the slice's step among those of all slices."""
        return step * self.tile.slices + self.slice if self.tile.slices > 1 else step

    def _fetch(self, step: Value) -> None:
        for side, registers in self.fetched.items():
            for i, spot in enumerate(side.spots):
                with self.kernel.when(spot.is_own):
                    registers[i] = side.number(step, spot)

    def _put(self, stage: Value) -> None:
        for side, registers in self.fetched.items():
            for i, spot in enumerate(side.spots):
                with self.kernel.when(spot.is_own):
                    self._put_spot(side, self._first(side, stage), spot, registers, i)

    def _put_spot(self, side: Side, first: Value, spot: Spot, registers: Registers, i: int) -> None:
        memory = self.memory[side]
        if not side.turned or side.lanes == 1:
            memory[first + spot.k * side.pitch + spot.at] = registers[i]
            return
        for lane in range(side.lanes):
            memory[first + (spot.k + lane) * side.pitch + spot.at] = registers.lane(i, lane)

    def _first(self, side: Side, stage: Value) -> Value:
        """Start of the slice's part of a stage in shared memory."""
        return (stage * self.tile.slices + self.slice) * (self.tile.depth * side.pitch)

    def _multiply(self, stage: Value) -> None:
        kernel, tile = self.kernel, self.tile
        with kernel.loop(tile.depth, "k") as k:
            left = self._operand(self.left, "left_now", stage, k, self.row, tile.high)
            right = self._operand(self.right, "right_now", stage, k, self.column, tile.wide)
            for row in range(tile.high):
                for column in range(tile.wide):
                    self.sums[row, column] = self.sums[row, column] + left[row] * right[column]

    def _operand(self, side: Side, name: str, stage: Value, k: Value, thread: Value, count: int) -> Buffer:
        """A thread's elements of an operand at step `k`, in registers."""
        numbers = self.kernel.stack(name, self.element, (count,))
        width = min(WIDTH, count)
        for first in range(0, count, width):
            at = _place(thread, first, count, side.extent)
            numbers[first] = self.memory[side].vector(width, self._first(side, stage) + k * side.pitch + at)
        return numbers

    def _lines(self) -> list[Line]:
        """Positions of the thread's sums in the tile."""
        tile = self.tile
        columns = [_place(self.column, c, tile.wide, tile.columns) for c in range(tile.wide)]
        return [
            Line(_place(self.row, r, tile.high, tile.rows), [(column, r * tile.wide + c) for c, column in enumerate(columns)])
            for r in range(tile.high)
        ]


def own_thread(tile: SlicedTile, thread: Value) -> Value:
    """A thread's number in its slice."""
    return thread % tile.slice_threads if tile.slices > 1 else thread


def _place(thread: Value, number: int, count: int, extent: int) -> Value:
    """Position in the tile of a thread's element: neighbouring threads read neighbouring groups of `WIDTH`, so that no two
    threads of a warp read different rows of one bank."""
    width = min(WIDTH, count)
    return thread * width + (number // width * (extent // count) * width + number % width)


def packed_side(
    tile: BlockTile, own: Value, extent: int, buffer: Buffer, first: Value, element: Element = float32
) -> Side:
    """The operand for a constant that is laid out as blocks read it: step after step, each `depth` times `extent` elements."""
    lanes = WIDTH if extent % WIDTH == 0 else 1
    return Side(
        extent,
        spots(tile, own, extent, lanes, turned=False),
        lanes,
        lambda step, spot: buffer.vector(
            lanes, first + step * (tile.depth * extent) + spot.k * extent + spot.at
        ).cast(element),
    )


def spots(tile: SlicedTile, own: Value, extent: int, lanes: int, turned: bool) -> tuple[Spot, ...]:
    """The spots that each thread of a slice fills: neighbouring threads get neighbouring spots, along the depth if elements are
    contiguous that way in memory (`turned`), else along the tile."""
    line = (tile.depth if turned else extent) // lanes
    count = line * (extent if turned else tile.depth)
    listed = []
    for first in range(0, count, tile.slice_threads):
        if tile.slice_threads % line == 0:  # Then a thread stays at one position of its line.
            along, line_number = own % line, own // line + first // line
        else:
            along, line_number = (own + first) % line, (own + first) // line
        is_own = None if first + tile.slice_threads <= count else own + first < count
        along = along * lanes
        listed.append(Spot(along, line_number, is_own) if turned else Spot(line_number, along, is_own))
    return tuple(listed)


def new_tiles(tile: BlockTile | TensorTile, counts: tuple[int, ...], width: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Zeros for packed tiles [*counts, depth, position], of tensor cores [*counts, position, depth], and their view as the
    former."""
    is_turned = isinstance(tile, TensorTile)
    packed = new_weight((*counts, *((width, tile.depth) if is_turned else (tile.depth, width))), dtype)
    packed[...] = np.zeros((), dtype)
    return packed, packed.swapaxes(-1, -2) if is_turned else packed


def lay_steps(into: Array, matrix: Array) -> None:
    """Fill [step, depth, position] with a matrix of the full depth, from position 0 on; the rest is left unchanged."""
    deep, count = into.shape[1], matrix.shape[1]
    whole, rest = divmod(len(matrix), deep)
    into[:whole, :, :count] = matrix[: whole * deep].reshape(whole, deep, count)
    if rest:
        into[whole, :rest, :count] = matrix[whole * deep :]
