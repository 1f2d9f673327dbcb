"""How a product is cut for a GPU: a tile for each block, a part of it for each thread, and slices of its depth among the threads.

Where a product has few tiles, smaller ones fill more cores, and slices give a small tile enough threads: each slice adds up
every so many steps of the depth, and the sums meet in shared memory at the end. So one launch is enough, and sums come in the
same order every time."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from partita.accelerators.tvm.kernels.shared.gpu_cost import Demand
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.sizes.extent import Extent

STAGES = 2
"""The steps of the depth that shared memory holds: one that is multiplied, and the next one."""

WIDTH = 4
"""The numbers that a thread reads at once, where it can: 16 bytes of float32."""


@attrs.frozen(slots=True)
class BlockTile:
    """The tile of a block: rows x columns of the result, and so many products at a time."""

    rows: int
    columns: int
    high: int
    """The rows of one thread."""
    wide: int
    """The columns of one thread."""
    depth: int
    """The products of one step in each sum."""
    slices: int
    """The threads that share each sum."""

    @property
    def across(self) -> int:
        """The threads of a slice along the columns."""
        return self.columns // self.wide

    @property
    def slice_threads(self) -> int:
        """The threads of a slice."""
        return self.rows // self.high * self.across

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.slice_threads * self.slices

    @property
    def shared(self) -> int:
        """The bytes of shared memory that it takes, with the padding of rows that are turned."""
        steps = STAGES * self.slices * self.depth * (self.rows + self.columns + WIDTH)
        return 4 * (steps + (self.slices - 1) * self.rows * self.columns)

    def steps(self, depth: int) -> int:
        """The number of steps of each slice that cover this depth."""
        return -(-depth // (self.depth * self.slices))


@attrs.frozen(slots=True)
class Work:
    """A product of matrices as far as its cut depends on it."""

    rows: int
    columns: int
    depth: int
    parts: int = 1
    """The number of such products beside each other."""
    bytes: int = 4
    """What a number takes in memory."""
    read: int | None = None
    """How many numbers both matrices are in memory, where that is not what they are as matrices."""

    def blocks(self, rows: int, columns: int) -> int:
        """How many tiles of so many rows and columns there are."""
        return -(-self.rows // rows) * -(-self.columns // columns) * self.parts

    @property
    def moved(self) -> int:
        """The bytes that are read and written, each once."""
        read = self.parts * self.depth * (self.rows + self.columns) if self.read is None else self.read
        return self.bytes * (read + self.parts * self.rows * self.columns)


MANY_HEADS, MANY = 12, 128
"""The heads, and the rows, columns and products of a sum, for which a product of any number of them is cut."""


def usual_work(rows: int, columns: int, depth: int, parts: int, size: int) -> Work:
    """A product of two values whose numbers take so many bytes; what is not known is what is usual."""
    high, wide, deep = (MANY if isinstance(count, Extent) else count for count in (rows, columns, depth))
    return Work(high, wide, deep, MANY_HEADS if isinstance(parts, Extent) else parts, size)


USUAL_PIXELS = 28 * 28
"""So many pixels an image usually has"""

USUAL_CHANNELS = 128
"""of so many channels; one of half of them has four times the pixels."""


def usual_pixels(channels: int, outs: int) -> list[int]:
    """The numbers of pixels for which a convolution of images of any size is cut: as many as are usual, fewer and more."""
    usual = USUAL_PIXELS * USUAL_CHANNELS**2 // min(channels, outs) ** 2
    pixels = min(max(usual, 7 * 7), 224 * 224)
    return [pixels // 4, pixels, 4 * pixels, 16 * pixels]


_SHAPES = (
    (128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (64, 32, 4, 4), (32, 64, 4, 4), (32, 128, 4, 4),
    (128, 32, 4, 4), (32, 32, 4, 4), (32, 32, 2, 4), (16, 64, 2, 4), (32, 16, 2, 2), (16, 32, 2, 2), (16, 16, 2, 2),
    (16, 16, 1, 2), (8, 32, 1, 4), (8, 64, 2, 4), (4, 32, 1, 4), (2, 32, 1, 4), (1, 32, 1, 4), (1, 16, 1, 4),
    (1, 8, 1, 4),
)
"""Rows and columns of a block, and of a thread."""

_DEPTHS = 8, 16, 32
_SLICES = 1, 2, 4, 8, 16, 32
_MOST_THREADS = 512


def tiles(gpu: Gpu) -> Iterator[BlockTile]:
    """All cuts whose blocks the GPU runs."""
    for rows, columns, high, wide in _SHAPES:
        for depth in _DEPTHS:
            for slices in _SLICES:
                tile = BlockTile(rows, columns, high, wide, depth, slices)
                least = min(32, gpu.threads)
                if least <= tile.threads <= min(gpu.threads, _MOST_THREADS) and tile.shared <= gpu.shared:
                    yield tile


_LATENCY = 500
"""The cycles until what is read from memory is there, as much of them as the work on the step before does not hide."""

_LANES = 128
"""The products that a core makes in a cycle."""

_SHARED_BANDWIDTH = 128
"""The bytes that a core reads from shared memory in a cycle."""

_OTHER_REGISTERS = 40
"""The registers of a thread beside those for sums and operands."""


def demand(tile: BlockTile, work: Work) -> Demand:
    """What a product asks of a GPU that is cut so."""
    read = 4 * tile.threads * tile.depth * (tile.high + tile.wide) / 2
    own = tile.depth * (tile.high * tile.wide + tile.high + tile.wide) * max(1, tile.threads / _LANES)
    return Demand(
        blocks=work.blocks(tile.rows, tile.columns),
        threads=tile.threads,
        shared=tile.shared,
        registers=tile.high * tile.wide + 2 * (tile.high + tile.wide) + _OTHER_REGISTERS,
        steps=tile.steps(work.depth),
        multiplying=tile.rows * tile.columns * tile.depth * tile.slices / _LANES,
        loading=read / _SHARED_BANDWIDTH,
        alone=_LATENCY / 2 + own,
        fetched=work.bytes * tile.depth * tile.slices * (tile.rows + tile.columns),
        ending=8 * tile.slices * tile.high * tile.wide,
        moved=work.moved,
    )
