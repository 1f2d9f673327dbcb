"""How a product is cut for the tensor cores of a GPU: a tile for each block, a part of it for each warp, and slices of its depth
among the warps, as `gpu_tile.py` has them for single numbers."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from partita.accelerators.tvm.kernels.language.tensor_cores import HIGH, LINE, PART, WARP, WIDE
from partita.accelerators.tvm.kernels.shared.gpu_cost import Demand
from partita.accelerators.tvm.kernels.shared.gpu_tile import Work
from partita.accelerators.tvm.machine.gpu import Gpu


@attrs.frozen(slots=True)
class TensorTile:
    """The tile of a block: rows x columns of the result, and so many products at a time."""

    rows: int
    columns: int
    high: int
    """The rows of one warp."""
    wide: int
    """The columns of one warp."""
    depth: int
    """The products of one step in each sum."""
    slices: int
    """The warps that share each sum."""
    stages: int
    """The steps that shared memory holds: one that is multiplied, and those that are on their way."""
    bytes: int = 2
    """What a number takes."""

    @property
    def deep(self) -> int:
        """The depth of one instruction."""
        return 2 * LINE // self.bytes

    @property
    def across(self) -> int:
        """The warps of a slice along the columns."""
        return self.columns // self.wide

    @property
    def slice_threads(self) -> int:
        """The threads of a slice."""
        return self.rows // self.high * self.across * WARP

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.slice_threads * self.slices

    @property
    def sums(self) -> int:
        """The sums of a thread."""
        return self.high * self.wide // WARP

    @property
    def shared(self) -> int:
        """The bytes of shared memory that it takes."""
        turned = self.columns * pitch(self.depth, self.bytes, turned=True)
        across = max(turned, self.depth * pitch(self.columns, self.bytes, turned=False))
        step = self.slices * (self.rows * pitch(self.depth, self.bytes, turned=True) + across)
        return self.bytes * self.stages * step + 4 * (self.slices - 1) * self.rows * self.columns

    def steps(self, depth: int) -> int:
        """The number of steps of each slice that cover this depth."""
        return -(-depth // (self.depth * self.slices))


def pitch(count: int, size: int, turned: bool) -> int:
    """The distance in shared memory from one line of so many numbers of this size to the next. With 16 bytes between them no two
    rows of a matrix that is read at once are in one bank. Of numbers of four bytes that are no neighbours along the depth, each
    thread reads its own, and 32 bytes keep them apart."""
    return count + (LINE // size if turned or size == 2 else PART)


_WARPS = (64, 32), (32, 64), (32, 32), (32, 16), (16, 32), (16, 16)
"""Rows and columns of a warp."""

_SIDES = 128, 96, 64, 48, 32, 16
"""The rows of a block, and its columns, where they are a multiple of a warp's."""

_MOST_WARPS = 8
"""The most warps of a slice."""

_DEPTHS = 32, 64, 128
"""The bytes along the depth of a step."""

_SLICES = 1, 2, 4, 8
_STAGES = 3, 2
_MOST_THREADS = 512


def tensor_tiles(gpu: Gpu, size: int = 2) -> Iterator[TensorTile]:
    """All cuts of numbers of so many bytes whose blocks the GPU runs."""
    shapes = [
        (rows, columns, high, wide) for high, wide in _WARPS for rows in _SIDES for columns in _SIDES
        if rows % high == 0 and columns % wide == 0 and rows // high * (columns // wide) <= _MOST_WARPS
    ]
    for rows, columns, high, wide in shapes:
        for depth in _DEPTHS:
            for slices in _SLICES:
                for stages in _STAGES:
                    tile = TensorTile(rows, columns, high, wide, depth // size, slices, stages, size)
                    if tile.threads <= min(gpu.threads, _MOST_THREADS) and tile.shared <= gpu.shared:
                        yield tile


_LATENCY = 600
"""The cycles until what is read from memory is there."""

_PRODUCT_BYTES = 2048
"""The products that a core's tensor cores make in a cycle, times the bytes of a number: 1024 of numbers of two bytes."""

_WARP_CYCLES = 4 * HIGH * WIDE * 2 * LINE / _PRODUCT_BYTES
"""The cycles of one instruction of a warp: a core has four schedulers, each with a tensor core of its own."""

_SHARED_BANDWIDTH = 128
"""The bytes that a core reads from shared memory in a cycle."""

_OTHER_REGISTERS = 60
"""The registers of a thread beside those for sums and operands."""


def tensor_demand(tile: TensorTile, work: Work) -> Demand:
    """What a product asks of a GPU that is cut so."""
    warps = tile.threads // WARP
    read = tile.bytes * warps * tile.depth * (tile.high + tile.wide)
    own = tile.high // HIGH * (tile.wide // WIDE) * (tile.depth // tile.deep) * _WARP_CYCLES * max(1.0, warps / 4)
    return Demand(
        blocks=work.blocks(tile.rows, tile.columns),
        threads=tile.threads,
        shared=tile.shared,
        registers=tile.sums + (tile.high + tile.wide) // 4 + _OTHER_REGISTERS,
        steps=tile.steps(work.depth),
        multiplying=tile.bytes * tile.rows * tile.columns * tile.depth * tile.slices / _PRODUCT_BYTES,
        loading=read / _SHARED_BANDWIDTH,
        alone=_LATENCY / tile.stages + own,
        fetched=tile.bytes * tile.depth * tile.slices * (tile.rows + tile.columns),
        ending=8 * tile.slices * tile.sums,
        moved=work.moved,
    )
