"""Cuts of a product for a GPU, and their estimated times: a tile per block, a part of it per thread or, on tensor cores, per
warp, and slices of its depth spread over the threads.

If a product has few tiles, smaller ones fill more cores, and slices give a small tile enough threads: each slice accumulates
every n-th step of the depth, and the sums are combined in shared memory at the end. So one launch is enough, and the order of
summation is deterministic.

The slowest of these bounds a launch: the core with the most blocks, which multiplies and reads its operands; the L2 cache, which
all cores read; memory, from which each busy core gets its share and an idle one nothing; and the chain of steps of a block, whose
reads have a latency however small they are. Blocks that are resident on a core together hide each other's latency; the others
follow wave by wave.

None of this is more exact than 20%. Among the cuts that are this close to the fastest one, the one with the lowest roofline wins:
the least time for its arithmetic and bytes, on the cores that it fills, at the GPU's peak. Ties go to cuts that give every core a
block, since the GPU may have more cores than the one that the code is made for.

Splitting a sum among blocks, with a second launch that adds up the parts, is not a candidate: that launch alone takes some 2,800
cycles, in which all cores make 310 million float16 products. The cores that products of few blocks leave idle would gain less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeVar

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.contraction.tile_table import THREAD_TILES, WARP_TILES
from partita.accelerators.tvm.kernels.language import Value
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.language.warp_intrinsics import HIGH, LINE, PART, WARP, WIDE
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.window import Convolved
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple
from partita.graph.types import Array

STAGES = 2
"""Number of steps in shared memory: the one that is multiplied, and the next one."""

WIDTH = 4
"""Number of elements that a thread reads at once if possible: 16 bytes of float32."""

Rank = tuple[bool, float, bool, float]
"""The rank of a cut, least first: slower than the cuts that count as fastest, roofline (0 if slower), leaves cores idle,
estimated cycles."""

_START = 1500
"""Cycles of a block besides its steps."""

_CORE_BANDWIDTH = 64
"""Bytes per cycle that a core reads from the L2 cache, at most."""

_CACHE_BANDWIDTH = 40
"""A core's share, in bytes per cycle, of the L2 cache's bandwidth for all cores."""

_MEMORY_BANDWIDTH = 10
"""A core's share, in bytes per cycle, of the memory bandwidth: 1.55 TB/s are 10 for each of 108 cores at 1.41 GHz."""

_CORE_THREADS, _CORE_SHARED = 2048, 100 << 10
"""Threads, and bytes of shared memory, of all resident blocks of a core."""

_CLOSE = 1.2
"""Cuts within this factor of the fastest one's time are ranked by their roofline."""


@attrs.frozen(slots=True)
class Demand:
    """The demand of a product, cut in some way, on a GPU."""

    blocks: int
    threads: int
    """The threads of a block."""
    shared: int
    """The bytes of shared memory of a block."""
    registers: int
    """The registers of a thread."""
    steps: int
    """The steps of a block."""
    multiplying: float
    """Cycles in which a core multiplies one step of a block."""
    loading: float
    """Cycles in which it reads the operands of a step from shared memory."""
    alone: float
    """Cycles of a step if a block has a core to itself."""
    fetched: float
    """Bytes that a block reads in a step."""
    ending: float
    """Cycles of a block after the last step."""
    moved: int
    """Bytes that all blocks together read and write, each counted once."""

    def roofline(self, gpu: Gpu) -> float:
        """Cycles of its arithmetic and its bytes on the cores that it fills: a lower bound for any kernel."""
        return max(self._on_core(gpu) * self.steps * self.multiplying, self._moving(gpu))

    def cycles(self, gpu: Gpu) -> float:
        """Estimated cycles, good enough to rank cuts only."""
        room = gpu.registers // (self.registers * self.threads)
        resident = max(1, min(_CORE_THREADS // self.threads, _CORE_SHARED // self.shared, room))
        waves = math.ceil(self._on_core(gpu) / resident)
        busy = max(self.multiplying, self.loading, self.fetched / _CORE_BANDWIDTH)
        working = self._on_core(gpu) * self.steps * busy
        fetching = self.blocks * self.steps * self.fetched / (_CACHE_BANDWIDTH * gpu.cores)
        waiting = waves * self.steps * self.alone
        return max(working, fetching, self._moving(gpu), waiting) + waves * (_START + self.ending)

    def _on_core(self, gpu: Gpu) -> int:
        """Number of blocks of the core that has the most."""
        return -(-self.blocks // gpu.cores)

    def _moving(self, gpu: Gpu) -> float:
        """Cycles in which the cores that have blocks read and write all bytes in memory."""
        return self.moved / (_MEMORY_BANDWIDTH * min(self.blocks, gpu.cores))


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


def works_of(shape: Convolved, size: int, kinds: int = 1, has_pixel_rows: bool = False) -> list[Work]:
    """The products for which a convolution of elements of `size` bytes is cut: one, or for images of dynamic size several, of a
    usual number of pixels, a smaller one and larger ones. The channels of `kinds` kinds share no tile. Rows are output channels
    and columns pixels, or the reverse."""
    parts, weights = shape.groups * kinds, shape.outs * shape.depth
    outs = -(-shape.outs // parts)
    if not shape.is_any:
        read = {shape.batch * shape.window.pixels: shape.batch * shape.channels * math.prod(shape.window.sizes)}
    else:
        usual = USUAL_PIXELS * USUAL_CHANNELS**2 // min(shape.channels, shape.outs) ** 2
        pixels = min(max(usual, 7 * 7), 224 * 224)
        read = {count: count * shape.channels for count in (pixels // 4, pixels, 4 * pixels, 16 * pixels)}
    sides = {count: (count, outs) if has_pixel_rows else (outs, count) for count in read}
    return [Work(*sides[count], shape.depth, parts, size, stored + weights) for count, stored in read.items()]


_SHARED_BANDWIDTH = 128
"""Bytes per cycle that a core reads from shared memory."""


@attrs.frozen(slots=True)
class GpuTile:
    """The tile of a block: rows x columns of the result, and the depth of a step."""

    rows: int
    columns: int
    high: int
    """Rows of a thread, or of a warp."""
    wide: int
    """Columns of a thread, or of a warp."""
    depth: int
    """Depth of one step."""
    slices: int
    """Number of slices of the depth, and so of threads or warps that share each sum."""

    together: ClassVar[int] = 1
    """Number of threads that compute one part of the tile together."""

    @property
    def across(self) -> int:
        """Number of parts of a slice along the columns."""
        return self.columns // self.wide

    @property
    def slice_threads(self) -> int:
        """Number of threads of a slice."""
        return self.rows // self.high * self.across * self.together

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.slice_threads * self.slices

    def steps(self, depth: int) -> int:
        """The number of steps of each slice that cover this depth."""
        return -(-depth // (self.depth * self.slices))

    def all_steps(self, depth: int) -> int:
        """The number of steps of all slices together."""
        return self.steps(depth) * self.slices

    def bounds(self, rows: int, columns: int, top: Value, first: Value) -> tuple[Value | None, Value | None]:
        """Rows and columns of a result that a tile with this first row and column has; None for a size that the tile divides."""
        return (
            None if is_multiple(rows, self.rows) else as_index(rows) - top,
            None if is_multiple(columns, self.columns) else as_index(columns) - first,
        )


@attrs.frozen(slots=True)
class BlockTile(GpuTile):
    """A tile of which each thread computes a part."""

    @property
    def shared(self) -> int:
        """Bytes of shared memory, with the padding of transposed rows."""
        steps = STAGES * self.slices * self.depth * (self.rows + self.columns + WIDTH)
        return 4 * (steps + (self.slices - 1) * self.rows * self.columns)

    def demand(self, work: Work) -> Demand:
        """The demand on a GPU of a product that is cut into such tiles."""
        read = 4 * self.threads * self.depth * (self.high + self.wide) / 2
        own = self.depth * (self.high * self.wide + self.high + self.wide) * max(1, self.threads / _LANES)
        return Demand(
            blocks=work.blocks(self.rows, self.columns),
            threads=self.threads,
            shared=self.shared,
            registers=self.high * self.wide + 2 * (self.high + self.wide) + _OTHER_REGISTERS,
            steps=self.steps(work.depth),
            multiplying=self.rows * self.columns * self.depth * self.slices / _LANES,
            loading=read / _SHARED_BANDWIDTH,
            alone=_LATENCY / 2 + own,
            fetched=work.bytes * self.depth * self.slices * (self.rows + self.columns),
            ending=8 * self.slices * self.high * self.wide,
            moved=work.moved,
        )


_LATENCY = 500
"""Latency of a read from memory in cycles, less the part that the work on the previous step hides."""

_LANES = 128
"""Products that a core makes per cycle."""

_OTHER_REGISTERS = 40
"""Registers of a thread besides those for sums and operands."""

def tiles(gpu: Gpu) -> Iterator[BlockTile]:
    """All cuts whose blocks the GPU runs."""
    listed = (BlockTile(*sizes) for sizes in THREAD_TILES.sizes())
    return (tile for tile in listed if tile.threads in THREAD_TILES.threads(gpu) and tile.shared <= gpu.shared)


@attrs.frozen(slots=True)
class TensorTile(GpuTile):
    """A tile of which each warp computes a part on tensor cores."""

    stages: int
    """Number of steps in shared memory: the one that is multiplied, and those that are being copied."""
    bytes: int = 2
    """Bytes per element."""

    together: ClassVar[int] = WARP

    @property
    def deep(self) -> int:
        """Depth of one instruction."""
        return 2 * LINE // self.bytes

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

    def demand(self, work: Work) -> Demand:
        """The demand on a GPU of a product that is cut into such tiles."""
        warps = self.threads // WARP
        read = self.bytes * warps * self.depth * (self.high + self.wide)
        own = self.high // HIGH * (self.wide // WIDE) * (self.depth // self.deep) * _WARP_CYCLES * max(1.0, warps / 4)
        return Demand(
            blocks=work.blocks(self.rows, self.columns),
            threads=self.threads,
            shared=self.shared,
            registers=self.sums + (self.high + self.wide) // 4 + _OTHER_TENSOR_REGISTERS,
            steps=self.steps(work.depth),
            multiplying=self.bytes * self.rows * self.columns * self.depth * self.slices / _PRODUCT_BYTES,
            loading=read / _SHARED_BANDWIDTH,
            alone=_TENSOR_LATENCY / self.stages + own,
            fetched=self.bytes * self.depth * self.slices * (self.rows + self.columns),
            ending=8 * self.slices * self.sums,
            moved=work.moved,
        )


def pitch(count: int, size: int, turned: bool) -> int:
    """The distance in shared memory from one line of `count` elements to the next. With 16 bytes of padding no two rows of a
    matrix that is read at once are in the same bank. Elements of four bytes that are not adjacent along the depth are read one by
    one, and need 32."""
    return count + (LINE // size if turned or size == 2 else PART)


_TENSOR_LATENCY = 600
"""Latency in cycles of a read from memory."""

_PRODUCT_BYTES = 2048
"""Products per cycle of a core's tensor cores, times the bytes of an element: 1024 for elements of two bytes."""

_WARP_CYCLES = 4 * HIGH * WIDE * 2 * LINE / _PRODUCT_BYTES
"""Cycles of one instruction of a warp: a core has four schedulers, each with a tensor core of its own."""

_OTHER_TENSOR_REGISTERS = 60
"""Registers of a thread besides those for sums and operands."""


def tensor_tiles(gpu: Gpu, size: int) -> Iterator[TensorTile]:
    """All cuts for elements of `size` bytes whose blocks the GPU can run."""
    listed = (TensorTile(*sizes) for sizes in WARP_TILES.sizes(size))
    return (tile for tile in listed if tile.threads in WARP_TILES.threads(gpu) and tile.shared <= gpu.shared)


T = TypeVar("T", bound="BlockTile | TensorTile")


def fastest(tiles: Sequence[T], works: Sequence[Work], gpu: Gpu) -> T:
    """The best of these cuts for several products of equal weight."""
    return choose("tile", tiles, ranking(tiles, works, gpu))


def ranking(tiles: Sequence[T], works: Sequence[Work], gpu: Gpu) -> Callable[[T], Rank | float]:
    """A function that ranks these cuts of a product by their demands; the least is best. Cuts of several products are ranked by
    the product of their cycles. Linear."""
    if len(works) > 1:
        return lambda tile: math.prod(tile.demand(work).cycles(gpu) for work in works)
    demands = {tile: tile.demand(works[0]) for tile in tiles}
    cycles = {tile: demand.cycles(gpu) for tile, demand in demands.items()}
    most = _CLOSE * min(cycles.values())

    def rank(tile: T) -> Rank:
        is_slower = cycles[tile] > most
        roofline = 0.0 if is_slower else demands[tile].roofline(gpu)
        return is_slower, roofline, demands[tile].blocks < gpu.cores, cycles[tile]

    return rank


_DROPPED = 13
"""The low bits of a float32 that TF32 lacks."""


def round_to_tf32(array: Array) -> Array:
    """Rounds a contiguous float32 array in place to TF32, whose mantissa of ten bits is all that tensor cores read:
    to nearest, ties away from zero, as a GPU does (cvt.rna). NaN and infinities are unchanged."""
    bits = array.view(np.uint32)
    finite = bits & np.uint32(0x7F800000) != np.uint32(0x7F800000)
    np.add(bits, np.uint32(1 << (_DROPPED - 1)), out=bits, where=finite)
    np.bitwise_and(bits, np.uint32(2**32 - 2**_DROPPED), out=bits, where=finite)
    return array
