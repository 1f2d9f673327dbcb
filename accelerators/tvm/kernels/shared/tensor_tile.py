"""How a product is cut for the tensor cores of a GPU: a tile for each block, a part of it for each warp, and slices of its depth
among the warps, as `gpu_tile.py` has them for single numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs

from accelerators.tvm.kernels.language.tensor_cores import DEEP, PART, WARP
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
        across = max(self.columns * (self.depth + PART), self.depth * (self.columns + PART))
        step = self.slices * (self.rows * (self.depth + PART) + across)
        return 2 * self.stages * step + 4 * (self.slices - 1) * self.rows * self.columns

    def steps(self, depth: int) -> int:
        """The number of steps of each slice that cover this depth."""
        return -(-depth // (self.depth * self.slices))


_SHAPES = (
    (128, 128, 64, 32), (128, 64, 64, 32), (64, 128, 32, 64), (64, 64, 32, 32), (128, 32, 32, 32), (32, 128, 32, 32),
    (64, 32, 32, 16), (32, 64, 16, 32), (32, 32, 16, 16), (32, 32, 32, 32), (16, 64, 16, 16), (16, 32, 16, 16), (64, 16, 16, 16),
    (32, 16, 16, 16), (16, 16, 16, 16),
)
"""Rows and columns of a block, and of a warp."""

_DEPTHS = 16, 32, 64
_SLICES = 1, 2, 4, 8
_STAGES = 3, 2
_MOST_THREADS = 512


def tensor_tiles(gpu: Gpu) -> Iterator[TensorTile]:
    """All cuts whose blocks the GPU runs."""
    for rows, columns, high, wide in _SHAPES:
        for depth in _DEPTHS:
            for slices in _SLICES:
                for stages in _STAGES:
                    tile = TensorTile(rows, columns, high, wide, depth, slices, stages)
                    if tile.threads <= min(gpu.threads, _MOST_THREADS) and tile.shared <= gpu.shared:
                        yield tile


_LATENCY = 600
"""The cycles until what is read from memory is there."""

_START = 1500
"""The cycles that a block takes beside its steps."""

_PRODUCTS = 1024
"""The products that a core's tensor cores make in a cycle."""

_WARP_CYCLES = 16 * 8 * DEEP / (_PRODUCTS / 4)
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
    read = 2 * warps * tile.depth * (tile.high + tile.wide)
    busy = max(products / _PRODUCTS, read / _SHARED_BANDWIDTH)
    fetched = 2 * tile.depth * tile.slices * (tile.rows + tile.columns) / _GLOBAL_BANDWIDTH
    own = tile.high // 16 * (tile.wide // 8) * (tile.depth // DEEP) * _WARP_CYCLES * max(1.0, warps / 4)
    alone = own + _LATENCY / tile.stages
    throughput = on_core * steps * max(busy, fetched)
    waiting = math.ceil(on_core / resident) * steps * alone
    return max(throughput, waiting) + math.ceil(on_core / resident) * (_START + 8 * tile.slices * tile.sums)
