"""The tiles that are tried for a product: data by machine, element type and class of product.

A kernel takes the row of its class, drops the tiles that its sizes exclude, and chooses the cheapest by the cost models of
`panels.py` and `gpu_tiles.py`. `pt.tune` measures the same candidates instead. Both try a tile that is added to a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine


@attrs.frozen(slots=True)
class RegisterTiles:
    """Tiles of sums in a processor's vector registers: all those whose sums fit beside the operands of a step."""

    each: int
    """Registers for each vector of columns, which is loaded once per step for all rows."""
    always: int
    """Registers that every tile needs besides: for broadcast elements, and spare ones."""
    single: int | None = None
    """Registers besides the sums in a tile of one row, instead of those above: its vectors are multiplied from memory."""
    unfused: int = 0
    """Extra registers on processors that do not fuse multiplication and addition."""
    height: float = 0.5
    """Maximum number of rows, as a share of the registers. Above half, LLVM broadcasts too many elements early, and spills."""

    def sizes(self, machine: Machine) -> Iterator[tuple[int, int]]:
        """Rows and vectors of each tile."""
        for vectors in range(1, machine.registers):
            for rows in range(1, int(machine.registers * self.height) + 1):
                beside = self.each * vectors + self.always + (0 if machine.has_fma else self.unfused)
                if rows == 1 and self.single is not None:
                    beside = self.single
                if rows * vectors + beside <= machine.registers:
                    yield rows, vectors


REGISTER_TILES: Mapping[str, RegisterTiles] = {
    "product of float32": RegisterTiles(each=1, always=1, single=4, unfused=1),
    "plain convolution of float32": RegisterTiles(each=1, always=2),
    "blocked convolution of float32": RegisterTiles(each=1, always=2, height=1.0),
    "product of bytes with half of the multiplications": RegisterTiles(each=2, always=3),
}
"""Tiles by class of product. 16-bit elements have the tiles of float32, even if an instruction multiplies them in pairs. All
other tiles of bytes follow from the instruction's row in `machine/instructions.py`."""

PIXELS = (8, 7, 6, 5, 4, 3, 2, 1)
"""The numbers of pixels of a tile of a depthwise convolution of bytes, on processors."""

SHARED_PIXELS = (8, 4)
"""Sizes of tiles of a blocked convolution whose pixels share an address, in order of preference. They divide many widths."""


@attrs.frozen(slots=True)
class ThreadTiles:
    """Tiles of a GPU's block of threads."""

    shapes: tuple[tuple[int, int, int, int], ...]
    """Rows and columns of a block, and of a thread."""
    depths: tuple[int, ...]
    """Depths of a step."""
    slices: tuple[int, ...]
    """Numbers of slices of the depth."""
    most_threads: int = 512
    """Maximum number of threads in a block."""

    def sizes(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Rows and columns of a block and of a thread, depth and slices of each tile."""
        for shape in self.shapes:
            for depth in self.depths:
                for slices in self.slices:
                    yield *shape, depth, slices

    def threads(self, gpu: Gpu) -> range:
        """The numbers of threads that a block may have."""
        return range(min(gpu.warp, gpu.threads), min(gpu.threads, self.most_threads) + 1)


@attrs.frozen(slots=True)
class WarpTiles:
    """Tiles of a GPU's block of warps, for tensor cores."""

    warps: tuple[tuple[int, int], ...]
    """Rows and columns of a warp."""
    sides: tuple[int, ...]
    """Numbers of rows, and of columns, of a block. Each must be a multiple of the warp's."""
    depth_bytes: tuple[int, ...]
    """Bytes along the depth of a step."""
    slices: tuple[int, ...]
    """Numbers of slices of the depth."""
    stages: tuple[int, ...]
    """Numbers of steps in shared memory."""
    most_warps: int = 8
    """Maximum number of warps in a slice."""
    most_threads: int = 512
    """Maximum number of threads in a block."""

    def sizes(self, size: int) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
        """For each tile: rows and columns of a block, rows and columns of a warp, depth, slices, stages, and `size`, the bytes of
        an element."""
        shapes = [
            (rows, columns, high, wide) for high, wide in self.warps for rows in self.sides for columns in self.sides
            if rows % high == 0 and columns % wide == 0 and rows // high * (columns // wide) <= self.most_warps
        ]
        for shape in shapes:
            for depth in self.depth_bytes:
                for slices in self.slices:
                    for stages in self.stages:
                        yield *shape, depth // size, slices, stages, size

    def threads(self, gpu: Gpu) -> range:
        """The numbers of threads that a block may have."""
        return range(1, min(gpu.threads, self.most_threads) + 1)


THREAD_TILES = ThreadTiles(
    shapes=(
        (128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (64, 32, 4, 4), (32, 64, 4, 4), (32, 128, 4, 4),
        (128, 32, 4, 4), (32, 32, 4, 4), (32, 32, 2, 4), (16, 64, 2, 4), (32, 16, 2, 2), (16, 32, 2, 2), (16, 16, 2, 2),
        (16, 16, 1, 2), (8, 32, 1, 4), (8, 64, 2, 4), (4, 32, 1, 4), (2, 32, 1, 4), (1, 32, 1, 4), (1, 16, 1, 4),
        (1, 8, 1, 4),
    ),
    depths=(8, 16, 32),
    slices=(1, 2, 4, 8, 16, 32),
)
"""Products on a GPU without tensor cores, of float32 and of bytes as 32-bit integers."""

WARP_TILES = WarpTiles(
    warps=((64, 32), (32, 64), (32, 32), (32, 16), (16, 32), (16, 16)),
    sides=(128, 96, 64, 48, 32, 16),
    depth_bytes=(32, 64, 128),
    slices=(1, 2, 4, 8),
    stages=(3, 2),
)
"""Products on tensor cores, of all element types that these multiply."""
