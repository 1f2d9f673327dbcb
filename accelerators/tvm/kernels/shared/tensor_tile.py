"""Cuts of a product for a GPU's tensor cores: a tile per block, a part of it per warp, and slices of its depth spread over the
warps, like those of `gpu_tile.py` for scalar products."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from partita.accelerators.tvm.kernels.language.tensor_cores import HIGH, LINE, PART, WARP, WIDE
from partita.accelerators.tvm.kernels.shared.gpu_cost import Demand
from partita.accelerators.tvm.kernels.shared.gpu_tile import Work
from partita.accelerators.tvm.machine.gpu import Gpu


@attrs.frozen(slots=True)
class TensorTile:
    """The tile of a block: rows x columns of the result, and the depth of a step."""

    rows: int
    columns: int
    high: int
    """Rows of a warp."""
    wide: int
    """Columns of a warp."""
    depth: int
    """Depth of one step."""
    slices: int
    """Number of slices of the depth, and so of warps that share each sum."""
    stages: int
    """Number of steps in shared memory: the one that is multiplied, and those that are being copied."""
    bytes: int = 2
    """Bytes per element."""

    @property
    def deep(self) -> int:
        """Depth of one instruction."""
        return 2 * LINE // self.bytes

    @property
    def across(self) -> int:
        """Number of warps of a slice along the columns."""
        return self.columns // self.wide

    @property
    def slice_threads(self) -> int:
        """Number of threads of a slice."""
        return self.rows // self.high * self.across * WARP

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.slice_threads * self.slices

    @property
    def sums(self) -> int:
        """Number of sums of a thread."""
        return self.high * self.wide // WARP

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        turned = self.columns * pitch(self.depth, self.bytes, turned=True)
        across = max(turned, self.depth * pitch(self.columns, self.bytes, turned=False))
        step = self.slices * (self.rows * pitch(self.depth, self.bytes, turned=True) + across)
        return self.bytes * self.stages * step + 4 * (self.slices - 1) * self.rows * self.columns

    def steps(self, depth: int) -> int:
        """The number of steps of each slice that cover this depth."""
        return -(-depth // (self.depth * self.slices))


def pitch(count: int, size: int, turned: bool) -> int:
    """The distance in shared memory from one line of `count` elements to the next. With 16 bytes of padding no two rows of a
    matrix that is read at once are in the same bank. Elements of four bytes that are not adjacent along the depth are read one by
    one, and need 32."""
    return count + (LINE // size if turned or size == 2 else PART)


_WARPS = (64, 32), (32, 64), (32, 32), (32, 16), (16, 32), (16, 16)
"""Rows and columns of a warp."""

_SIDES = 128, 96, 64, 48, 32, 16
"""Rows, and columns, of a block, if they are a multiple of a warp's."""

_MOST_WARPS = 8
"""Most warps of a slice."""

_DEPTHS = 32, 64, 128
"""Bytes along the depth of a step."""

_SLICES = 1, 2, 4, 8
_STAGES = 3, 2
_MOST_THREADS = 512


def tensor_tiles(gpu: Gpu, size: int = 2) -> Iterator[TensorTile]:
    """All cuts for elements of `size` bytes whose blocks the GPU can run."""
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
"""Latency in cycles of a read from memory."""

_PRODUCT_BYTES = 2048
"""Products per cycle of a core's tensor cores, times the bytes of an element: 1024 for elements of two bytes."""

_WARP_CYCLES = 4 * HIGH * WIDE * 2 * LINE / _PRODUCT_BYTES
"""Cycles of one instruction of a warp: a core has four schedulers, each with a tensor core of its own."""

_SHARED_BANDWIDTH = 128
"""Bytes per cycle that a core reads from shared memory."""

_OTHER_REGISTERS = 60
"""Registers of a thread besides those for sums and operands."""


def tensor_demand(tile: TensorTile, work: Work) -> Demand:
    """The demand on a GPU of a product that is cut into such tiles."""
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
