"""A matrix product on a GPU: each block computes a tile, whose operands are loaded into shared memory step by step.

While the threads multiply one step the next ones are fetched, so there is one barrier per step. Without tensor cores threads
prefetch the next step into registers, and then write it to the other half of the shared memory. For tensor cores, which sum in
float32, or in int32 for bytes, contiguous elements are copied asynchronously. Otherwise each thread reads single elements before
it multiplies, and writes them afterwards; so it does with contiguous elements that are transformed in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import attrs

from partita.accelerators.tvm.kernels.contraction.gpu_operands import Side, Source, Spot
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import STAGES, WIDTH, BlockTile, GpuTile, TensorTile
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    float32,
    if_inside,
    int32,
    select,
    uint32,
)
from partita.accelerators.tvm.kernels.language.intrinsics import Intrinsic
from partita.accelerators.tvm.kernels.language.values import as_index, constant
from partita.accelerators.tvm.kernels.language.warp_intrinsics import (
    BITS,
    COPIES,
    HIGH,
    LINE,
    MULTIPLY,
    PART,
    WAITS,
    WARP,
    WIDE,
    close_copies,
    load_matrices,
    load_turned_matrices,
    round_to_tf32,
    sums_of,
)
from partita.accelerators.tvm.kernels.shared.element_access import computed_as
from partita.accelerators.tvm.machine.machine import Machine

Store = Callable[[Value, Value, Value], None]
"""Stores a sum at a row and a column of the tile."""

Bounds = tuple[Value | None, Value | None]
"""The rows and columns of the tile that are results; None: all."""

Points = tuple[Value | None, Value | None]
"""The zero points of the left and of the right matrix; None: zero."""

WORD = 4
"""The bytes that a thread writes at once to fill elements outside the matrix."""


def has_tensor_cores(machine: Machine, *elements: Element) -> bool:
    """True if the machine's tensor cores multiply these two element types. They use fewer digits of float32, which has to be
    allowed."""
    if not machine.is_gpu or not machine.gpu.has_tensor_cores or elements not in MULTIPLY:
        return False
    return machine.rounds_products if elements[0] is float32 else True


def own_thread(tile: GpuTile, thread: Value) -> Value:
    """A thread's number in its slice."""
    return thread % tile.slice_threads if tile.slices > 1 else thread


def write_tile(
    kernel: Kernel,
    tile: GpuTile,
    thread: Value,
    sides: tuple[Side, Side],
    steps: Operand,
    store: Store,
    bounds: Bounds,
    element: Element = float32,
    points: Points = (None, None),
) -> None:
    """Writes the loops of one tile: `steps` steps, at least one and perhaps dynamic, then stores each sum whose row and column in
    the tile are below the bounds.

    Without tensor cores, both operands are multiplied and accumulated in `element`, of four bytes. With them, bytes may have zero
    points: the results account for these, except for the term depth times both."""
    if isinstance(tile, TensorTile):
        TensorProduct(kernel, tile, thread, sides, points).write(steps, store, bounds)
    elif isinstance(tile, BlockTile):
        TiledProduct(kernel, tile, thread, sides, element).write(steps, store, bounds)


@attrs.frozen(slots=True, eq=False)
class Line:
    """Sums of a thread in one row of the tile."""

    row: Value
    columns: Sequence[tuple[Value, int]]
    """The column and the number of each sum."""


class _TileProduct(ABC):
    """The sums of each thread of a block, one of several that share the depth of a tile in slices."""

    def __init__(self, kernel: Kernel, tile: GpuTile, thread: Value, count: int, element: Element) -> None:
        """`count` sums of a type."""
        self.kernel, self.count, self.element = kernel, count, element
        self.slices, self.slice_threads = tile.slices, tile.slice_threads
        self.slice = kernel.name_value("slice", thread // tile.slice_threads) if tile.slices > 1 else as_index(0)
        self.own = own_thread(tile, thread)

    @abstractmethod
    def _sum(self, number: int) -> Value:
        """The thread's sum of this number."""

    @abstractmethod
    def _set_sum(self, number: int, value: Value) -> None:
        """Sets a sum."""

    @abstractmethod
    def _lines(self) -> list[Line]:
        """Positions of the thread's sums in the tile."""

    def _own_step(self, step: Value) -> Value:
        """Number of the slice's step among those of all slices."""
        return step * self.slices + self.slice if self.slices > 1 else step

    def _part(self, stage: Value, size: int) -> Value:
        """Start of the slice's part, of this size, of a stage in shared memory."""
        return (stage * self.slices + self.slice) * size

    def _finish(self, store: Store, bounds: Bounds) -> None:
        """Adds up the slices, and stores each sum whose row and column in the tile are below the bounds."""
        lines = self._lines()
        if self.slices == 1:
            self._store(lines, store, bounds)
            return
        kernel, size = self.kernel, self.slice_threads * self.count
        parts = kernel.shared("parts", self.element, ((self.slices - 1) * size,))
        at = [number * self.slice_threads + self.own for number in range(self.count)]
        with kernel.when(self.slice > 0):
            for number, position in enumerate(at):
                parts[(self.slice - 1) * size + position] = self._sum(number)
        kernel.barrier()
        with kernel.when(self.slice.equals(0)):
            for number, position in enumerate(at):
                with kernel.loop(self.slices - 1, "part") as part:
                    self._set_sum(number, self._sum(number) + parts[part * size + position])
            self._store(lines, store, bounds)

    def _store(self, lines: Sequence[Line], store: Store, bounds: Bounds) -> None:
        for line in lines:
            with self.kernel.when(None if bounds[0] is None else line.row < bounds[0]):
                for column, number in line.columns:
                    with self.kernel.when(None if bounds[1] is None else column < bounds[1]):
                        store(self._sum(number), line.row, column)


class TiledProduct(_TileProduct):
    """Writes the loops of a tile without tensor cores."""

    def __init__(self, kernel: Kernel, tile: BlockTile, thread: Value, sides: tuple[Side, Side], element: Element) -> None:
        super().__init__(kernel, tile, thread, tile.high * tile.wide, element)
        self.tile, self.sides = tile, dict(zip(("left", "right"), sides, strict=True))
        self.row, self.column = self.own // tile.across, self.own % tile.across
        self.memory = {
            name: kernel.shared(name, element, (STAGES * tile.slices * self._size(side),)) for name, side in self.sides.items()
        }
        self.fetched = {
            name: kernel.registers(f"next_{name}", element, (len(side.spots),), side.lanes) for name, side in self.sides.items()
        }
        self.sums = kernel.registers("sums", element, (tile.high, tile.wide), 1)

    def _pitch(self, side: Side) -> int:
        """Distance in shared memory from one step of the depth to the next; padded if threads write along the depth."""
        return side.extent + (WIDTH if side.turned else 0)

    def _size(self, side: Side) -> int:
        """Elements of a step of a slice in shared memory."""
        return self.tile.depth * self._pitch(side)

    def write(self, steps: Operand, store: Store, bounds: Bounds) -> None:
        """Writes the whole loop, as `write_tile` does."""
        kernel, tile, is_single = self.kernel, self.tile, isinstance(steps, int) and steps == 1
        for row in range(tile.high):
            for column in range(tile.wide):
                self.sums[row, column] = 0
        self._fetch(self._own_step(as_index(0)))
        self._put(as_index(0))
        kernel.barrier()
        with kernel.loop(steps, "step") as step:
            if not is_single:
                with kernel.when(step + 1 < steps):
                    self._fetch(self._own_step(step + 1))
            self._multiply(step % STAGES)
            if not is_single:
                with kernel.when(step + 1 < steps):
                    self._put((step + 1) % STAGES)
                kernel.barrier()
        self._finish(store, bounds)

    def _sum(self, number: int) -> Value:
        return self.sums[divmod(number, self.tile.wide)]

    def _set_sum(self, number: int, value: Value) -> None:
        self.sums[divmod(number, self.tile.wide)] = value

    def _fetch(self, step: Value) -> None:
        for name, side in self.sides.items():
            for i, spot in enumerate(side.spots):
                with self.kernel.when(spot.is_own):
                    self.fetched[name][i] = self._number(side, side.source(step, spot))

    def _number(self, side: Side, source: Source) -> Value:
        """The elements of a spot, in the type in which they are multiplied."""
        numbers = side.buffer.vector(side.lanes, *source.position).cast(self.element)
        numbers = numbers if side.change is None else side.change(numbers, source)
        return numbers if source.is_inside is None else if_inside(source.is_inside, numbers, side.fill)

    def _put(self, stage: Value) -> None:
        for name, side in self.sides.items():
            for i, spot in enumerate(side.spots):
                with self.kernel.when(spot.is_own):
                    self._put_spot(name, side, self._part(stage, self._size(side)), spot, i)

    def _put_spot(self, name: str, side: Side, first: Value, spot: Spot, i: int) -> None:
        memory, registers, pitch = self.memory[name], self.fetched[name], self._pitch(side)
        if not side.turned or side.lanes == 1:
            memory[first + spot.k * pitch + spot.at] = registers[i]
            return
        for lane in range(side.lanes):
            memory[first + (spot.k + lane) * pitch + spot.at] = registers.lane(i, lane)

    def _multiply(self, stage: Value) -> None:
        kernel, tile = self.kernel, self.tile
        with kernel.loop(tile.depth, "k") as k:
            left = self._operand("left", stage, k, self.row, tile.high)
            right = self._operand("right", stage, k, self.column, tile.wide)
            for row in range(tile.high):
                for column in range(tile.wide):
                    self.sums[row, column] = self.sums[row, column] + left[row] * right[column]

    def _operand(self, name: str, stage: Value, k: Value, thread: Value, count: int) -> Buffer:
        """A thread's elements of an operand at step `k`, in registers."""
        numbers, side = self.kernel.stack(f"{name}_now", self.element, (count,)), self.sides[name]
        width = min(WIDTH, count)
        for first in range(0, count, width):
            at = _place(thread, first, count, side.extent)
            numbers[first] = self.memory[name].vector(width, self._part(stage, self._size(side)) + k * self._pitch(side) + at)
        return numbers

    def _lines(self) -> list[Line]:
        tile = self.tile
        columns = [_place(self.column, c, tile.wide, tile.columns) for c in range(tile.wide)]
        return [
            Line(_place(self.row, r, tile.high, tile.rows), [(column, r * tile.wide + c) for c, column in enumerate(columns)])
            for r in range(tile.high)
        ]


def _place(thread: Value, number: int, count: int, extent: int) -> Value:
    """Position in the tile of a thread's element: neighbouring threads read neighbouring groups of `WIDTH`, so that no two
    threads of a warp read different rows of one bank."""
    width = min(WIDTH, count)
    return thread * width + (number // width * (extent // count) * width + number % width)


class Feed:
    """The loads of an operand: `begin` to fetch a step, `end` it after other work, and `load` parts of it."""

    def __init__(self, kernel: Kernel, name: str, side: Side, steps: int) -> None:
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
            with self.kernel.when(spot.is_own):
                source = self.side.source(step, spot)
                if self.read is None:
                    self._copy(source, first + self.side.at(spot.k, spot.at))
                else:
                    self.read[i] = self._bits(source)

    def end(self, step: Value, first: Operand) -> None:
        """Write the elements of a step that threads have read."""
        for i, spot in enumerate(self.side.spots if self.read is not None else ()):
            with self.kernel.when(spot.is_own):
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


class TensorProduct(_TileProduct):
    """Writes the loops of a tile on tensor cores."""

    def __init__(self, kernel: Kernel, tile: TensorTile, thread: Value, sides: tuple[Side, Side], points: Points) -> None:
        super().__init__(kernel, tile, thread, tile.sums, sums_of(sides[0].buffer.element))
        self.tile = tile
        self.multiply = MULTIPLY[sides[0].buffer.element, sides[1].buffer.element]
        self.lane = kernel.name_value("lane", thread % WARP)
        self.row = kernel.name_value("row", self.own // WARP // tile.across * tile.high)
        self.column = kernel.name_value("column", self.own // WARP % tile.across * tile.wide)
        self.left = Feed(kernel, "left", sides[0], tile.stages * tile.slices)
        self.right = Feed(kernel, "right", sides[1], tile.stages * tile.slices)
        self.has_copies = self.left.is_copied or self.right.is_copied
        self.sums = kernel.stack("sums", self.element, (tile.sums,))
        has_points = any(point is not None for point in points)
        self.points = _PointSums(kernel, tile, self.multiply, points) if has_points else None

    def write(self, steps: Operand, store: Store, bounds: Bounds) -> None:
        """Writes the whole loop, as `write_tile` does."""
        kernel, ahead = self.kernel, self.tile.stages - 1
        for number in range(self.tile.sums):
            self.sums[number] = 0
        is_open = not isinstance(steps, int)
        for stage in range(ahead):
            if is_open:
                with kernel.when(as_index(stage) < steps):
                    self._begin(as_index(stage), as_index(stage))
                    self._end(as_index(stage), as_index(stage))
            elif stage < steps:
                self._begin(as_index(stage), as_index(stage))
                self._end(as_index(stage), as_index(stage))
            self._close()
        with kernel.loop(steps, "step") as step:
            if self.has_copies:
                kernel.do(WAITS[ahead - 1]())
            kernel.barrier()
            if is_open or steps > ahead:
                with kernel.when(step + ahead < steps):
                    self._begin(step + ahead, (step + ahead) % self.tile.stages)
            self._close()
            self._multiply(step % self.tile.stages)
            if (is_open or steps > ahead) and not (self.left.is_copied and self.right.is_copied):
                with kernel.when(step + ahead < steps):
                    self._end(step + ahead, (step + ahead) % self.tile.stages)
        if self.points is not None:
            for number in range(self.tile.sums):
                self.sums[number] = self.points.without(number, self.sums[number])
        self._finish(store, bounds)

    def _sum(self, number: int) -> Value:
        return self.sums[number]

    def _set_sum(self, number: int, value: Value) -> None:
        self.sums[number] = value

    def _begin(self, step: Value, stage: Value) -> None:
        for feed in (self.left, self.right):
            feed.begin(self._own_step(step), self._part(stage, feed.side.size))

    def _end(self, step: Value, stage: Value) -> None:
        for feed in (self.left, self.right):
            feed.end(self._own_step(step), self._part(stage, feed.side.size))

    def _close(self) -> None:
        if self.has_copies:
            self.kernel.do(close_copies())

    def _multiply(self, stage: Value) -> None:
        """A step's products: for each depth of an instruction, a warp reads its rows and columns and multiplies all pairs."""
        kernel, tile = self.kernel, self.tile
        high, wide = tile.high // HIGH, tile.wide // WIDE
        first_left = kernel.name_value("first_left", self._part(stage, self.left.side.size))
        first_right = kernel.name_value("first_right", self._part(stage, self.right.side.size))
        left = kernel.stack("left_now", uint32, (4 * high,))
        right = kernel.stack("right_now", uint32, (2 * wide,))
        with kernel.loop(tile.depth // tile.deep, "part") as part:
            for i in range(high):
                self.left.load(left, 4 * i, first_left, part * tile.deep, self.row + i * HIGH, self.lane, is_left=True)
            for j in range(0, wide, 2):
                self.right.load(right, 2 * j, first_right, part * tile.deep, self.column + j * WIDE, self.lane, is_left=False)
            for i in range(high):
                for j in range(wide):
                    kernel.do(self.multiply(self.sums[4 * (i * wide + j)], left[4 * i], right[2 * j]))
            if self.points is not None:
                self.points.add(left, right)

    def _lines(self) -> list[Line]:
        """Rows g and g + 8 and two neighbouring columns of each product."""
        tile, wide = self.tile, self.tile.wide // WIDE
        columns = [self.column + (j * WIDE + c) + self.lane % 4 * 2 for j in range(wide) for c in range(2)]

        def numbers(i: int, half: int) -> list[int]:
            return [4 * (i * wide + j) + 2 * half + c for j in range(wide) for c in range(2)]

        return [
            Line(self.row + (i * HIGH + half * PART) + self.lane // 4, list(zip(columns, numbers(i, half), strict=True)))
            for i in range(tile.high // HIGH)
            for half in range(2)
        ]


_ONES = 0x01010101
"""Four bytes that are each 1."""


class _PointSums:
    """A thread's sums of rows and columns, for zero points of bytes that tensor cores multiply as stored.

    The sum of (a - p)(b - q) is that of a b, minus p times the column's sum of b, minus q times the row's sum of a, plus depth p
    q. Rows and columns are summed up by products with ones, which leave their sums to the threads that hold the products'
    sums."""

    def __init__(self, kernel: Kernel, tile: TensorTile, multiply: Intrinsic, points: Points) -> None:
        self.kernel, self.multiply = kernel, multiply
        self.left, self.right = points
        self.high, self.wide = tile.high // HIGH, tile.wide // WIDE
        self.ones = kernel.stack("ones", uint32, (4,))
        self.of_columns = kernel.stack("sums_of_columns", int32, (4 * self.wide,))
        self.of_rows = kernel.stack("sums_of_rows", int32, (4 * self.high,))
        for sums, number in ((self.ones, _ONES), (self.of_columns, 0), (self.of_rows, 0)):
            for i in range(sums.sizes[0]):
                sums[i] = number

    def add(self, left: Buffer, right: Buffer) -> None:
        """Add up the parts of both matrices that a warp has in registers, each if the other matrix has a zero point."""
        for i in range(self.high if self.right is not None else 0):
            self.kernel.do(self.multiply(self.of_rows[4 * i], left[4 * i], self.ones[0]))
        for j in range(self.wide if self.left is not None else 0):
            self.kernel.do(self.multiply(self.of_columns[4 * j], self.ones[0], right[2 * j]))

    def without(self, number: int, total: Value) -> Value:
        """A thread's sum of this number, minus the terms of both zero points, but without the term depth p q. No intermediate
        value exceeds the depth times the square of a byte."""
        at, part = divmod(number, 4)
        row, column = divmod(at, self.wide)
        if self.right is not None:
            total = total - self.of_rows[4 * row + part] * self.right
        return total if self.left is None else total - self.of_columns[4 * column + part] * self.left
