"""Cuts of a product for a GPU: a tile per block, a part of it per thread, and slices of its depth spread over the threads.

If a product has few tiles, smaller ones fill more cores, and slices give a small tile enough threads: each slice accumulates
every n-th step of the depth, and the sums are combined in shared memory at the end. So one launch is enough, and the order of
summation is deterministic."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from partita.accelerators.tvm.kernels.shared.gpu_cost import Demand
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.sizes.extent import Extent

STAGES = 2
"""Number of steps in shared memory: the one that is multiplied, and the next one."""

WIDTH = 4
"""Number of elements that a thread reads at once if possible: 16 bytes of float32."""


@attrs.frozen(slots=True)
class BlockTile:
    """The tile of a block: rows x columns of the result, and the depth of a step."""

    rows: int
    columns: int
    high: int
    """Rows of a thread."""
    wide: int
    """Columns of a thread."""
    depth: int
    """Depth of one step."""
    slices: int
    """Number of slices of the depth, and so of threads that share each sum."""

    @property
    def across(self) -> int:
        """Number of threads of a slice along the columns."""
        return self.columns // self.wide

    @property
    def slice_threads(self) -> int:
        """Number of threads of a slice."""
        return self.rows // self.high * self.across

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.slice_threads * self.slices

    @property
    def shared(self) -> int:
        """Bytes of shared memory, with the padding of transposed rows."""
        steps = STAGES * self.slices * self.depth * (self.rows + self.columns + WIDTH)
        return 4 * (steps + (self.slices - 1) * self.rows * self.columns)

    def steps(self, depth: int) -> int:
        """The number of steps of each slice that cover this depth."""
        return -(-depth // (self.depth * self.slices))


@attrs.frozen(slots=True)
class Work:
    """A matrix product, as far as its cut depends on it."""

    rows: int
    columns: int
    depth: int
    parts: int = 1
    """Number of such products, side by side."""
    bytes: int = 4
    """Bytes per element."""
    read: int | None = None
    """Number of elements of both matrices in memory, if it differs from their sizes as matrices."""

    def blocks(self, rows: int, columns: int) -> int:
        """Number of tiles of this size."""
        return -(-self.rows // rows) * -(-self.columns // columns) * self.parts

    @property
    def moved(self) -> int:
        """Bytes that are read and written, each counted once."""
        read = self.parts * self.depth * (self.rows + self.columns) if self.read is None else self.read
        return self.bytes * (read + self.parts * self.rows * self.columns)


MANY_HEADS, MANY = 12, 128
"""Assumed number of heads, and assumed rows, columns or depth, for the cut of a product whose sizes are dynamic."""


def usual_work(rows: int, columns: int, depth: int, parts: int, size: int) -> Work:
    """A product of two values with elements of `size` bytes; dynamic sizes are replaced by usual ones."""
    high, wide, deep = (MANY if isinstance(count, Extent) else count for count in (rows, columns, depth))
    return Work(high, wide, deep, MANY_HEADS if isinstance(parts, Extent) else parts, size)


USUAL_PIXELS = 28 * 28
"""Usual number of pixels of an image with `USUAL_CHANNELS` channels."""

USUAL_CHANNELS = 128
"""Usual number of channels; an image with half as many has four times the pixels."""


def usual_pixels(channels: int, outs: int) -> list[int]:
    """The pixel counts for which a convolution of images of dynamic size is cut: the usual one, a smaller one and larger ones."""
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
"""Latency of a read from memory in cycles, less the part that the work on the previous step hides."""

_LANES = 128
"""Products that a core makes per cycle."""

_SHARED_BANDWIDTH = 128
"""Bytes per cycle that a core reads from shared memory."""

_OTHER_REGISTERS = 40
"""Registers of a thread besides those for sums and operands."""


def demand(tile: BlockTile, work: Work) -> Demand:
    """The demand on a GPU of a product that is cut into such tiles."""
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
