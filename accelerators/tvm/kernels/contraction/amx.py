"""AMX: sums of products of bfloat16, or of bytes, in the processor's tile registers, of 16 rows of 64 bytes each.

A tile product takes up to 16 rows of up to 64 bytes, and as many groups of four bytes of 16 columns. On a processor without the
unit portable code computes the same bits. Sums of bytes are exact. Of bfloat16, products of the even and of the odd elements are
summed up separately, each rounded to nearest even, then added together, then to the sums so far; subnormal numbers are flushed to
zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Registers,
    Value,
    bfloat16,
    constant,
    float32,
    int8,
    int32,
    maximum,
    named,
    select,
    tdpbf16ps,
    tdpbusd,
    tile_configure,
    tile_load,
    tile_release,
    tile_store,
    tile_zero,
    uint8,
    uint16,
    uint32,
)
from partita.accelerators.tvm.machine.machine import Machine

LANES = 16
"""Sums in a row of a tile."""

MOST_ROWS = 16
"""Maximum number of rows of a tile."""

WIDEST = 64
"""Maximum number of bytes in a row of a tile."""

WORD = 4
"""Bytes along the depth that are adjacent in a tile of columns."""

SUMS = 4
"""Number of tiles for sums, the first ones."""

LEFT, RIGHT = 4, 6
"""The first of two tiles for left operands, and of two for right ones."""

SMALLEST = 1.1754943508222875e-38
"""The smallest normal float32."""


@attrs.frozen(slots=True)
class Left:
    """Rows in memory."""

    buffer: Buffer
    position: tuple[Operand, ...]
    """Position of the first element of the first row."""
    apart: int
    """Distance in elements from one row to the next."""

    def number(self, row: Value, k: Operand) -> Value:
        """An element of a row. Rows of two-byte elements in several dimensions are counted in the last dimension but one."""
        *outer, last = self.position
        if outer and self.buffer.element is not uint8:
            return self.buffer[(*outer[:-1], outer[-1] + row, last + k)]
        return self.buffer[(*outer, last + row * self.apart + k)]


@attrs.frozen(slots=True)
class Right:
    """Words of the packed right matrix: those of 16 columns are adjacent."""

    buffer: Buffer
    position: Operand
    """Position of the first word."""
    apart: int
    """Distance in elements from one row of words to the next."""


@attrs.frozen(slots=True, eq=False)
class TileUnit:
    """Tiles of sums: `high` times `wide`, each of `rows` rows."""

    rows: int
    high: int
    wide: int
    depth: int
    """Elements of a left row per step, whole words."""
    is_emulated: bool
    element: Element = bfloat16
    """The element type of left rows: bfloat16, or uint8 for bytes, whose right operands are signed."""

    @property
    def is_rounded(self) -> bool:
        """True if sums are float32; those of bytes are exact."""
        return self.element is bfloat16

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.element.bits // 8

    @property
    def group(self) -> int:
        """Elements of a word."""
        return WORD // self.size

    def heights(self) -> list[TileUnit]:
        """This unit and lower ones of the same width, so that any number of rows is covered by tiles of one height with little
        overlap."""
        lower = [rows for rows in (1, 2, 4, 8, MOST_ROWS) if rows < self.high * self.rows]
        return [*[attrs.evolve(self, rows=rows, high=1) for rows in lower], self]

    @property
    def half_cycles(self) -> int:
        """Estimated cycles of a step, in halves: a cycle for each row of each product, or half a cycle for each row that is
        loaded."""
        loads = self.wide * MOST_ROWS + self.high * self.rows
        return max(loads, 2 * self.high * self.wide * self.rows)

    @contextmanager
    def configured(self, kernel: Kernel) -> Iterator[None]:
        """A block in which the thread has configured the unit; released at its end, so that the system need not save the tiles
        when the thread is interrupted."""
        if self.is_emulated:
            yield
            return
        config, written = kernel.stack("config" if self.is_rounded else "sizes", uint8, (64,)), self._configuration()
        if not self.is_rounded:
            config[0] = constant(0, uint8, 64)
        for i in range(64) if self.is_rounded else written:
            config[i] = written.get(i, 0)
        kernel.do(tile_configure(config[0]))
        yield
        kernel.do(tile_release())

    def _configuration(self) -> dict[int, int]:
        """The bytes of the configuration, palette 1: byte 16 + 2 t has the bytes per row of tile t, byte 48 + t its rows."""
        config = {0: 1}
        for tile in range(8):
            config[16 + 2 * tile] = self.size * self.depth if LEFT <= tile < RIGHT else WIDEST
            config[48 + tile] = self.depth // self.group if tile >= RIGHT else self.rows
        return config

    def begin(
        self, kernel: Kernel, sums: Registers | None = None, beginning: tuple[Buffer, Sequence[Value]] | None = None
    ) -> Registers | None:
        """Sets each row of sums to zero, or to the initial sums in a buffer from the positions of the tiles' columns on. Emulated
        sums are in the returned registers, those of `sums` if there are any."""
        if self.is_emulated:
            sums = sums or self._registers(kernel)
            with kernel.loop(self.high * self.rows, "r") as r:
                for v in range(self.wide):
                    sums[r, v] = 0 if beginning is None else beginning[0].vector(LANES, beginning[1][v])
            return sums
        for tile in range(self.high * self.wide):
            if beginning is None:
                kernel.do(tile_zero(constant(tile, int8)))
            else:
                self._load(kernel, tile, beginning[0][beginning[1][tile % self.wide]], 0)
        return sums

    def step(self, kernel: Kernel, sums: Registers | None, lefts: Sequence[Left], rights: Sequence[Right]) -> None:
        """Adds the products of each left and each right tile to their sums."""
        multiply = tdpbf16ps if self.is_rounded else tdpbusd
        for i, left in enumerate(lefts):
            if not self.is_emulated:
                self._load(kernel, LEFT + i, left.buffer[left.position], left.apart)
            for j, right in enumerate(rights):
                if self.is_emulated:
                    assert sums is not None
                    (self._emulated_pairs if self.is_rounded else self._emulated_bytes)(kernel, sums, left, right, i, j)
                    continue
                if i == 0:
                    self._load(kernel, RIGHT + j % 2, right.buffer[right.position], right.apart)
                kernel.do(multiply(*[constant(tile, int8) for tile in (self.wide * i + j, LEFT + i, RIGHT + j % 2)]))

    def _load(self, kernel: Kernel, tile: int, first: Value, apart: int) -> None:
        kernel.do(tile_load(constant(tile, int8), first, constant(self.size * apart, int32)))

    def end(self, kernel: Kernel, sums: Registers | None) -> Registers:
        """Stores all sums row by row, in `sums` if there are such registers, and returns them."""
        stored = sums or self._registers(kernel)
        for tile in range(0 if self.is_emulated else self.high * self.wide):
            i, j = divmod(tile, self.wide)
            to = stored.buffer[(i * self.rows * self.wide + j) * LANES]
            kernel.do(tile_store(constant(tile, int8), to, constant(4 * LANES * self.wide, int32)))
        return stored

    def _registers(self, kernel: Kernel) -> Registers:
        return kernel.registers("sums", float32 if self.is_rounded else int32, (self.high * self.rows, self.wide), LANES)

    def _emulated_pairs(self, kernel: Kernel, sums: Registers, left: Left, right: Right, i: int, j: int) -> None:
        with kernel.loop(self.rows, "row") as row:
            at = i * self.rows + row
            parts = kernel.registers("parts", float32, (2,), LANES)
            for u in range(2):
                parts[u] = 0.0
            with kernel.loop(self.depth // 2, "pair") as pair:
                packed = right.buffer.vector(2 * LANES, right.position + pair * right.apart).regrouped(uint32)
                for u, bits in enumerate((packed << 16, packed & 0xFFFF0000)):
                    number = _wide(left.number(row, pair * 2 + u))
                    product = _flushed(number).spread(LANES) * _flushed(bits.bits_as(float32))
                    parts[u] = _flushed(parts[u] + product)
            sums[at, j] = _flushed(sums[at, j] + _flushed(parts[0] + parts[1]))

    def _emulated_bytes(self, kernel: Kernel, sums: Registers, left: Left, right: Right, i: int, j: int) -> None:
        with kernel.loop(self.rows, "r") as row, kernel.loop(self.depth // WORD, "g") as group:
            numbers = [kernel.name_value(f"b{n}", left.number(row, group * WORD + n).cast(int32)) for n in range(WORD)]
            with kernel.lanes(LANES) as lane:
                total = sums.lane((i * self.rows + row, j), lane)
                for n, number in enumerate(numbers):
                    total = total + number * right.buffer[right.position + group * right.apart + lane * WORD + n].cast(int32)
                sums.set_lane((i * self.rows + row, j), lane, total)


def _wide(number: Value) -> Value:
    """A bfloat16 element, or its bits, as float32."""
    return (number.cast(uint32) << 16).bits_as(float32) if number.type.element is uint16 else number.cast(float32)


def _flushed(x: Value) -> Value:
    return named(x, lambda x: select(maximum(x, 0.0 - x) < SMALLEST, 0.0, x))


def unit_for(dtype: str, rows: int, columns: int, depth: int, machine: Machine) -> TileUnit | None:
    """The unit's tiles for a product of this size; None if the machine has no such unit, or the product does not fit it."""
    used, most = machine.instruction(dtype), WIDEST // 2
    least = -(-depth // most)
    steps = next((steps for steps in range(least, 2 * least + 1) if depth % (2 * steps) == 0), None)
    if used is None or not used.row.has_tiles or columns < LANES or steps is None:
        return None
    high = 1 if rows <= MOST_ROWS else 2
    wide = min(SUMS // high, columns // LANES)
    return TileUnit(min(MOST_ROWS, rows // high), high, wide, depth // steps, used.is_emulated)


def unit_for_bytes(pixels: int, reach: int, vectors: int, is_emulated: bool) -> TileUnit:
    """The unit's tiles for `pixels` pixels of `reach` bytes each, and `vectors` vectors of columns: equal steps, and tiles that
    leave few rows over."""
    high = min(2, pixels)
    tiles = -(-pixels // (high * MOST_ROWS))
    rows = max(1, -(-pixels // tiles) // high)
    step = max(size for size in range(WORD, WIDEST + 1, WORD) if reach % size == 0)
    return TileUnit(min(rows, MOST_ROWS), high, min(2, vectors), step, is_emulated, uint8)


Step = Callable[[Value], tuple[Sequence[Left], Sequence[Right]]]
"""The operands of a step."""


def product_of_tiles(unit: TileUnit, kernel: Kernel, steps: int, step: Step) -> Registers:
    """The sums of a tile over `steps` steps."""
    sums = unit.begin(kernel)
    with kernel.loop(steps, "k") as k:
        unit.step(kernel, sums, *step(k))
    return unit.end(kernel, sums)
