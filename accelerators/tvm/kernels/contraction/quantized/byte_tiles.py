"""Sums of products of bytes in tile registers, which hold whole matrices of sums, as in AMX.

An instruction multiplies 16 rows of up to 64 bytes by as many bytes of 16 columns. Two tiles of rows are multiplied by two tiles
of columns. If the processor has no such tiles, loops over a buffer compute the same sums."""

from __future__ import annotations

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    constant,
    int8,
    int32,
    tdpbusd,
    tile_configure,
    tile_load,
    tile_release,
    tile_store,
    uint8,
)
from partita.accelerators.tvm.kernels.language.values import as_index

TALL = 16
"""Rows, and columns, of a tile."""

WIDEST = 64
"""Bytes in a row of a tile."""

GROUP = 4
"""Neighbours along the depth that are adjacent in a tile of columns."""

LEFT, RIGHT = 4, 6
"""The first tile registers of the left and of the right operands; those before them hold sums."""


@attrs.frozen(slots=True)
class Tiling:
    """The division of a product's tile into the processor's tiles."""

    rows: int
    """Rows of one of the processor's tiles."""
    high: int
    """Number of processor tiles stacked vertically: 1 or 2."""
    bytes: int
    """Bytes of the depth per step."""
    is_emulated: bool

    @classmethod
    def of(cls, pixels: int, reach: int, is_emulated: bool) -> Tiling:
        """For `pixels` pixels of `reach` bytes each: equal steps, and tiles that leave few rows over."""
        high = min(2, pixels)
        tiles = -(-pixels // (high * TALL))
        rows = max(1, -(-pixels // tiles) // high)
        step = max(size for size in range(GROUP, WIDEST + 1, GROUP) if reach % size == 0)
        return cls(min(rows, TALL), high, step, is_emulated)


@attrs.frozen(slots=True, eq=False)
class ByteRows:
    """Rows of bytes for a step, at a uniform distance."""

    buffer: Buffer
    before: tuple[Operand, ...]
    """The buffer's indices except the last."""
    first: Value
    """Start of the first row."""
    apart: int
    """Distance from one row to the next."""

    def at(self, row: Operand, byte: Operand) -> tuple[Operand, ...]:
        """The position of a byte of a row."""
        return (*self.before, self.first + as_index(row) * self.apart + byte)


@attrs.frozen(slots=True, eq=False)
class Tiles:
    """Writes the sums of one tile of a product: `rows` times `high` rows, and one or two vectors of columns."""

    tiling: Tiling
    kernel: Kernel
    vectors: int
    sums: Registers
    """The destination of the sums, row by row."""

    def begin(self, beginning: Buffer, columns: list[Value]) -> None:
        """Sets each row of sums to the initial sums of its columns."""
        kernel, tiling = self.kernel, self.tiling
        if tiling.is_emulated:
            with kernel.loop(tiling.high * tiling.rows, "r") as r:
                for v, column in enumerate(columns):
                    self.sums[r, v] = beginning.vector(TALL, column)
            return
        for i in range(tiling.high):
            for v, column in enumerate(columns):
                kernel.do(tile_load(_number(i * self.vectors + v), beginning[column], _bytes(0)))

    def step(self, left: ByteRows, right: Buffer, first: Value) -> None:
        """Adds the products of a step's bytes; those of the columns begin at `first`, four of each column adjacent."""
        kernel, tiling = self.kernel, self.tiling
        if tiling.is_emulated:
            self._emulate(left, right, first)
            return
        for i in range(tiling.high):
            rows = left.buffer[left.at(i * tiling.rows, 0)]
            kernel.do(tile_load(_number(LEFT + i), rows, _bytes(left.apart)))
            for v in range(self.vectors):
                if i == 0:
                    kernel.do(tile_load(_number(RIGHT + v), right[first + v * WIDEST], _bytes(self.vectors * WIDEST)))
                kernel.do(tdpbusd(_number(i * self.vectors + v), _number(LEFT + i), _number(RIGHT + v)))

    def end(self) -> None:
        """Stores the sums in `sums`."""
        kernel, tiling = self.kernel, self.tiling
        if tiling.is_emulated:
            return
        for i in range(tiling.high):
            for v in range(self.vectors):
                to = self.sums.lane((i * tiling.rows, v), 0)
                kernel.do(tile_store(_number(i * self.vectors + v), to, _bytes(self.vectors * TALL * 4)))

    def _emulate(self, left: ByteRows, right: Buffer, first: Value) -> None:
        kernel, tiling = self.kernel, self.tiling
        with kernel.loop(tiling.high * tiling.rows, "r") as r, kernel.loop(tiling.bytes // GROUP, "g") as group:
            numbers = [
                kernel.name_value(f"b{i}", left.buffer[left.at(r, group * GROUP + i)].cast(int32)) for i in range(GROUP)
            ]
            for v in range(self.vectors):
                at = first + group * (self.vectors * WIDEST) + v * WIDEST
                with kernel.lanes(TALL) as lane:
                    total = self.sums.lane((r, v), lane)
                    for i, number in enumerate(numbers):
                        total = total + number * right[at + lane * GROUP + i].cast(int32)
                    self.sums.set_lane((r, v), lane, total)


def configure(kernel: Kernel, tiling: Tiling) -> None:
    """Configures the sizes of the tiles; the configuration belongs to the thread, so each task does it."""
    if tiling.is_emulated:
        return
    sizes = kernel.stack("sizes", uint8, (WIDEST,))
    sizes[0] = constant(0, uint8, WIDEST)
    sizes[0] = 1
    for tile in range(RIGHT + 2):
        is_left, is_right = LEFT <= tile < RIGHT, tile >= RIGHT
        sizes[16 + 2 * tile] = tiling.bytes if is_left else WIDEST
        sizes[48 + tile] = tiling.bytes // GROUP if is_right else tiling.rows
    kernel.do(tile_configure(sizes[0]))


def release(kernel: Kernel, tiling: Tiling) -> None:
    """Releases the tiles, so that the system need not save them when the thread is interrupted."""
    if not tiling.is_emulated:
        kernel.do(tile_release())


def _number(tile: int) -> Value:
    return constant(tile, int8)


def _bytes(count: int) -> Value:
    return constant(count, int32)
