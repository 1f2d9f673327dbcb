"""AMX: sums of products of bfloat16 in the processor's tile registers, of 16 rows of 64 bytes each.

A tile product takes up to 16 rows of up to 32 elements, and as many pairs of rows of 16 columns. On a processor without the unit
portable code computes the same bits: products of the even and of the odd elements are summed up separately, each rounded to
nearest even, then added together, then to the sums so far; subnormal numbers are flushed to zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    constant,
    float32,
    int8,
    int32,
    maximum,
    named,
    select,
    tdpbf16ps,
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

TILES = "amx-bf16"
"""The name of the instruction in `machine/instructions.py`."""

LANES = 16
"""Sums in a row of a tile."""

MOST_ROWS = 16
"""Most rows of a tile."""

MOST_DEPTH = 32
"""Most elements in a row of a left tile."""

SUMS = 4
"""Number of tiles for sums. Of the eight tiles two hold left operands, and two right ones."""

SMALLEST = 1.1754943508222875e-38
"""The smallest normal float32."""


@attrs.frozen(slots=True)
class Left:
    """Rows of bfloat16 in memory."""

    buffer: Buffer
    position: tuple[Operand, ...]
    """Position of the first element of the first row. Rows are counted in the last dimension but one, or, in a flat buffer, by
    `apart`."""
    apart: int
    """Distance in elements from one row to the next."""

    def number(self, row: Value, k: Operand) -> Value:
        """An element of a row."""
        *outer, last = self.position
        if not outer:
            return _wide(self.buffer[last + row * self.apart + k])
        return _wide(self.buffer[(*outer[:-1], outer[-1] + row, last + k)])


@attrs.frozen(slots=True)
class Right:
    """Pairs of rows of the packed right matrix: 16 columns of two elements each."""

    buffer: Buffer
    position: Operand
    """Position of the first pair."""
    apart: int
    """Distance in elements from one pair of rows to the next."""


@attrs.frozen(slots=True, eq=False)
class TileUnit:
    """Tiles of sums: `high` times `wide`, each of `rows` rows."""

    rows: int
    high: int
    wide: int
    depth: int
    """Elements of a left row per step, an even count."""
    is_emulated: bool

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
        """A block in which the thread has configured the unit; released at its end."""
        if self.is_emulated:
            yield
            return
        config = kernel.stack("config", uint8, (64,))
        for i, byte in enumerate(self._configuration()):
            config[i] = int(byte)
        kernel.do(tile_configure(config[0]))
        yield
        kernel.do(tile_release())

    def _configuration(self) -> np.ndarray:  # type: ignore[type-arg]
        """The configuration, palette 1: byte 16 + 2 t has the bytes per row of tile t, byte 48 + t its rows."""
        config = np.zeros(64, np.uint8)
        config[0] = 1
        for tile in range(8):
            config[16 + 2 * tile] = 2 * self.depth if tile in (4, 5) else 4 * LANES
            config[48 + tile] = self.depth // 2 if tile in (6, 7) else self.rows
        return config

    def begin(self, kernel: Kernel) -> Buffer | None:
        """Sets the sums to zero. In emulation they are in the returned buffer."""
        if not self.is_emulated:
            for tile in range(self.high * self.wide):
                kernel.do(tile_zero(constant(tile, int8)))
            return None
        sums = kernel.stack("tiles", float32, (self.high * self.rows * self.wide * LANES,))
        with kernel.loop(self.high * self.rows * self.wide, "v") as v:
            sums[v * LANES] = constant(0.0, float32, LANES)
        return sums

    def step(self, kernel: Kernel, sums: Buffer | None, lefts: Sequence[Left], rights: Sequence[Right]) -> None:
        """Adds the products of each left and each right tile to their sums."""
        if sums is not None:
            for i, left in enumerate(lefts):
                for j, right in enumerate(rights):
                    self._emulated(kernel, sums, left, right, i, j)
            return
        for i, left in enumerate(lefts):
            self._load(kernel, 4 + i, left.buffer[left.position], left.apart)
            for j, right in enumerate(rights):
                if i == 0:
                    self._load(kernel, 6 + j % 2, right.buffer[right.position], right.apart)
                tiles = (self.wide * i + j, 4 + i, 6 + j % 2)
                kernel.do(tdpbf16ps(*[constant(tile, int8) for tile in tiles]))

    def _load(self, kernel: Kernel, tile: int, first: Value, apart: int) -> None:
        kernel.do(tile_load(constant(tile, int8), first, constant(2 * apart, int32)))

    def end(self, kernel: Kernel, sums: Buffer | None) -> Registers:
        """All sums, row by row."""
        stored = kernel.registers("sums", float32, (self.high * self.rows, self.wide), LANES)
        if sums is not None:
            with kernel.loop(self.high * self.rows * self.wide, "v") as v:
                stored.buffer[v * LANES] = sums.vector(LANES, v * LANES)
            return stored
        for i in range(self.high):
            for j in range(self.wide):
                first = stored.buffer[(i * self.rows * self.wide + j) * LANES]
                apart = constant(4 * LANES * self.wide, int32)
                kernel.do(tile_store(constant(self.wide * i + j, int8), first, apart))
        return stored

    def _emulated(self, kernel: Kernel, sums: Buffer, left: Left, right: Right, i: int, j: int) -> None:
        with kernel.loop(self.rows, "row") as row:
            at = ((i * self.rows + row) * self.wide + j) * LANES
            parts = kernel.registers("parts", float32, (2,), LANES)
            for u in range(2):
                parts[u] = 0.0
            with kernel.loop(self.depth // 2, "pair") as pair:
                packed = right.buffer.vector(2 * LANES, right.position + pair * right.apart).regrouped(uint32)
                for u, bits in enumerate((packed << 16, packed & 0xFFFF0000)):
                    product = _flushed(left.number(row, pair * 2 + u)).spread(LANES) * _flushed(bits.bits_as(float32))
                    parts[u] = _flushed(parts[u] + product)
            sums[at] = _flushed(sums.vector(LANES, at) + _flushed(parts[0] + parts[1]))


def _wide(number: Value) -> Value:
    """A bfloat16 element, or its bits, as float32."""
    return (number.cast(uint32) << 16).bits_as(float32) if number.type.element is uint16 else number.cast(float32)


def _flushed(x: Value) -> Value:
    return named(x, lambda x: select(maximum(x, 0.0 - x) < SMALLEST, 0.0, x))


def unit_for(dtype: str, rows: int, columns: int, depth: int, machine: Machine) -> TileUnit | None:
    """The unit's tiles for a product of this size; None if the machine has no such unit, or the product does not fit it."""
    used = machine.instruction(dtype)
    least = -(-depth // MOST_DEPTH)
    steps = next((steps for steps in range(least, 2 * least + 1) if depth % (2 * steps) == 0), None)
    if used is None or used.name != TILES or columns < LANES or steps is None:
        return None
    high = 1 if rows <= MOST_ROWS else 2
    wide = min(SUMS // high, columns // LANES)
    return TileUnit(min(MOST_ROWS, rows // high), high, wide, depth // steps, used.is_emulated)


Step = Callable[[Value], tuple[Sequence[Left], Sequence[Right]]]
"""The operands of a step."""


def product_of_tiles(unit: TileUnit, kernel: Kernel, steps: int, step: Step) -> Registers:
    """The sums of a tile over `steps` steps."""
    sums = unit.begin(kernel)
    with kernel.loop(steps, "k") as k:
        unit.step(kernel, sums, *step(k))
    return unit.end(kernel, sums)
