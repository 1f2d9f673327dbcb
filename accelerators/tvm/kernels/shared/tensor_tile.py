"""How a product is cut for the tensor cores of a GPU: a tile for each block, a part of it for each warp, and slices of its depth
among the warps, as `gpu_tile.py` has them for single numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from accelerators.tvm.kernels.language.tensor_cores import HIGH, LINE, PART, WARP, WIDE
from accelerators.tvm.kernels.shared.gpu_tile import Work
from accelerators.tvm.machine.gpu import Gpu


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


_SHAPES = (
    (128, 128, 64, 32), (128, 64, 64, 32), (64, 128, 32, 64), (64, 64, 32, 32), (128, 32, 32, 32), (32, 128, 32, 32),
    (64, 32, 32, 16), (32, 64, 16, 32), (32, 32, 16, 16), (32, 32, 32, 32), (16, 64, 16, 16), (16, 32, 16, 16), (64, 16, 16, 16),
    (32, 16, 16, 16), (16, 16, 16, 16),
)
"""Rows and columns of a block, and of a warp."""

_DEPTHS = 32, 64, 128
"""The bytes along the depth of a step."""

_SLICES = 1, 2, 4, 8
_STAGES = 3, 2
_MOST_THREADS = 512


def tensor_tiles(gpu: Gpu, size: int = 2) -> Iterator[TensorTile]:
    """All cuts of numbers of so many bytes whose blocks the GPU runs."""
    for rows, columns, high, wide in _SHAPES:
        for depth in _DEPTHS:
            for slices in _SLICES:
                for stages in _STAGES:
                    tile = TensorTile(rows, columns, high, wide, depth // size, slices, stages, size)
                    if tile.threads <= min(gpu.threads, _MOST_THREADS) and tile.shared <= gpu.shared:
                        yield tile


_LATENCY = 600
"""The cycles until what is read from memory is there."""

_START = 1500
"""The cycles that a block takes beside its steps."""

_PRODUCT_BYTES = 2048
"""The products that a core's tensor cores make in a cycle, times the bytes of a number: 1024 of numbers of two bytes."""

_WARP_CYCLES = 4 * HIGH * WIDE * 2 * LINE / _PRODUCT_BYTES
"""The cycles of one instruction of a warp: a core has four schedulers, each with a tensor core of its own."""

_SHARED_BANDWIDTH = 128
_GLOBAL_BANDWIDTH = 40
"""The bytes that a core reads in a cycle."""

_CORE_THREADS, _CORE_SHARED, _OTHER_REGISTERS = 2048, 100 << 10, 60


def tensor_cycles(tile: TensorTile, work: Work, gpu: Gpu) -> float:
    """About how long the product takes; it ranks tiles, no more."""
    blocks = -(-work.rows // tile.rows) * -(-work.columns // tile.columns) * work.parts
    registers = tile.sums + (tile.high + tile.wide) // 4 + _OTHER_REGISTERS
    resident = max(1, min(
        _CORE_THREADS // tile.threads, _CORE_SHARED // tile.shared, gpu.registers // (registers * tile.threads)
    ))
    on_core = -(-blocks // gpu.cores)
    steps = tile.steps(work.depth)
    warps = tile.threads // WARP
    products = tile.rows * tile.columns * tile.depth * tile.slices
    read = tile.bytes * warps * tile.depth * (tile.high + tile.wide)
    busy = max(tile.bytes * products / _PRODUCT_BYTES, read / _SHARED_BANDWIDTH)
    fetched = tile.bytes * tile.depth * tile.slices * (tile.rows + tile.columns) / _GLOBAL_BANDWIDTH
    own = tile.high // HIGH * (tile.wide // WIDE) * (tile.depth // tile.deep) * _WARP_CYCLES * max(1.0, warps / 4)
    alone = own + _LATENCY / tile.stages
    throughput = on_core * steps * max(busy, fetched)
    waiting = math.ceil(on_core / resident) * steps * alone
    return max(throughput, waiting) + math.ceil(on_core / resident) * (_START + 8 * tile.slices * tile.sums)
