"""A matrix product on a GPU's tensor cores, accumulated in float32, or in int32 for bytes.

Both operands of a block's tile are loaded into shared memory step by step. While one step is multiplied the next ones are being
copied. So there is one barrier per step. Contiguous elements are copied asynchronously. Otherwise each thread reads single
elements before it multiplies, and writes them afterwards; so it does with contiguous elements that are transformed in between.
Matrices of several heads are read in place in any orientation."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.contraction.gpu_product import Line, SlicedSums, SlicedTile, Spot, Store, own_thread, spots
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import TensorTile, pitch
from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads, View
from partita.accelerators.tvm.kernels.contraction.operands import TwoSided
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    all_of,
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
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

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


class TensorProduct:
    """Writes the loops of one tile."""

    def __init__(
        self, kernel: Kernel, tile: TensorTile, thread: Value, left: TensorSide, right: TensorSide, points: Points = (None, None)
    ) -> None:
        """Bytes may have zero points: the results account for them, except for the term depth times both."""
        self.kernel, self.tile = kernel, tile
        self.multiply = MULTIPLY[left.buffer.element, right.buffer.element]
        self.slice = kernel.name_value("slice", thread // tile.slice_threads) if tile.slices > 1 else as_index(0)
        self.own = own_thread(tile, thread)
        self.lane = kernel.name_value("lane", thread % WARP)
        self.row = kernel.name_value("row", self.own // WARP // tile.across * tile.high)
        self.column = kernel.name_value("column", self.own // WARP % tile.across * tile.wide)
        self.left = Feed(kernel, "left", left, tile.stages * tile.slices)
        self.right = Feed(kernel, "right", right, tile.stages * tile.slices)
        self.has_copies = self.left.is_copied or self.right.is_copied
        self.sums = kernel.stack("sums", sums_of(left.buffer.element), (tile.sums,))
        has_points = any(point is not None for point in points)
        self.points = _PointSums(kernel, tile, self.multiply, points) if has_points else None

    def write(self, steps: Operand, store: Store, bounds: tuple[Value | None, Value | None]) -> None:
        """Writes the whole loop: `steps` steps, perhaps dynamic, then stores each sum whose row and column in the tile are below
        the bounds. A bound of None is never reached."""
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
        get, put = self.sums.__getitem__, self.sums.__setitem__
        sums = SlicedSums(kernel, self.tile, self.slice, self.own, get, put, self.tile.sums, self.sums.element)
        sums.store(self._lines(), store, bounds)

    def _begin(self, step: Value, stage: Value) -> None:
        for feed in (self.left, self.right):
            feed.begin(self._own_step(step), self._first(feed, stage))

    def _end(self, step: Value, stage: Value) -> None:
        for feed in (self.left, self.right):
            feed.end(self._own_step(step), self._first(feed, stage))

    def _own_step(self, step: Value) -> Value:
        """Number of the slice's step among those of all slices."""
        return step * self.tile.slices + self.slice if self.tile.slices > 1 else step

    def _close(self) -> None:
        if self.has_copies:
            self.kernel.do(close_copies())

    def _first(self, feed: Feed, stage: Value) -> Value:
        """Start of the slice's part of a stage in shared memory."""
        return (stage * self.tile.slices + self.slice) * feed.side.size

    def _multiply(self, stage: Value) -> None:
        """A step's products: for each depth of an instruction, a warp reads its rows and columns and multiplies all pairs."""
        kernel, tile = self.kernel, self.tile
        high, wide = tile.high // HIGH, tile.wide // WIDE
        first_left = kernel.name_value("first_left", self._first(self.left, stage))
        first_right = kernel.name_value("first_right", self._first(self.right, stage))
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
        """Positions of the thread's sums in the tile: rows g and g + 8 and two neighbouring columns of each product."""
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

Points = tuple[Value | None, Value | None]
"""The zero points of the left and of the right matrix; None: zero."""


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


PositionOf = Callable[[Value, Spot], tuple[Operand, Operand]]
"""The position of a spot of a step in the matrix: along the depth, and along the rows or columns."""


def both_sides(
    match: TwoSided,
    heads: Heads,
    head: Head,
    tile: TensorTile,
    own: Value,
    corner: tuple[Value, Value],
    sizes: tuple[int, int, int],
) -> tuple[TensorSide, TensorSide]:
    """A head's two matrices, for a tile whose first row and column are `corner`. The sizes are rows, columns and depth; each may
    be dynamic."""
    (top, first), (rows, columns, depth) = corner, sizes
    deep = covered_by(depth, tile.slices * tile.depth)
    left = viewed_side(
        heads.read(match.left), head, tile, own, tile.rows, (depth, rows), (deep, covered_by(rows, tile.rows)),
        lambda step, spot: (step * tile.depth + spot.k, top + spot.at), is_left=True,
    )
    right = viewed_side(
        heads.read(match.right), head, tile, own, tile.columns, (depth, columns), (deep, covered_by(columns, tile.columns)),
        lambda step, spot: (step * tile.depth + spot.k, first + spot.at),
    )
    return left, right


def covered_by(size: int, each: int) -> int | None:
    """The size, rounded up to a multiple of `each`; None if it is dynamic."""
    return None if isinstance(size, Extent) else -(-size // each) * each


def viewed_side(
    view: View,
    head: Head,
    tile: SlicedTile,
    own: Value,
    extent: int,
    sizes: tuple[int, int],
    covered: tuple[int | None, int | None],
    position_of: PositionOf,
    is_left: bool = False,
) -> TensorSide:
    """A head's matrix, with `extent` rows or columns of the tile's depth per step. `sizes` are its depth and the number of its
    rows or columns, `covered` what all steps of all tiles cover of both (None if dynamic); elements outside the matrix count as
    zero. In shared memory bytes are adjacent along the depth; if they are not in memory they are read one by one."""
    deep, beside = (-1, -2) if is_left else (-2, -1)
    is_along, is_bytes = view.strides.steps[deep] == 1, view.buffer.element.bits == 8
    axis, size = (deep, sizes[0]) if is_along else (beside, sizes[1])
    lanes = neighbours(view, axis, size) if is_along or not is_bytes else 1
    listed = spots(tile, own, extent, lanes, is_along)

    source = source_in(view, head, sizes, covered, position_of, is_left)
    return TensorSide(view.buffer, extent, tile.depth, listed, lanes, source, is_along or is_bytes)


def source_in(
    view: View,
    head: Head,
    sizes: tuple[int, int],
    covered: tuple[int | None, int | None],
    position_of: PositionOf,
    is_left: bool,
) -> Callable[[Value, Spot], Source]:
    """The source of a spot's elements in a head's matrix, by its depth and number of rows or columns, and by what all steps
    of all tiles cover of both."""

    def source(step: Value, spot: Spot) -> Source:
        k, at = position_of(step, spot)
        tests = [as_index(i) < size for i, size, most in zip((k, at), sizes, covered, strict=True) if most != size]
        position = view.at(head, at, k) if is_left else view.at(head, k, at)
        return Source((position,), all_of(tests) if tests else None)

    return source


def neighbours(view: View, axis: int, size: int) -> int:
    """The most adjacent elements along an axis of `size` that can be copied at once: aligned for any head and any line."""
    steps = view.strides.steps
    if steps[axis] != 1:
        return 1
    others = [step for i, step in enumerate(steps) if i != len(steps) + axis]
    return widest_copy(view.buffer.element.bits // 8, size, view.strides.offset, *others)
