"""The cut of a quantized product into bands of rows, panels of columns and tiles of both; and the layout of its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.kernels.contraction.amx import TileUnit, unit_for_bytes
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import (
    Instruction,
    instruction_for_bytes,
    instruction_for_rows,
    instruction_in_tiles,
)
from partita.accelerators.tvm.kernels.contraction.panels import MANY, PanelTile, step_cycles
from partita.accelerators.tvm.kernels.contraction.quantized import fast_inner_product
from partita.accelerators.tvm.kernels.contraction.tile_table import REGISTER_TILES, RegisterTiles
from partita.accelerators.tvm.kernels.language import Element, Operand, int8, int16, minimum, uint8
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.window import Convolved, window_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import BYTE_PRODUCTS, TASKS
from partita.graph.node import Node
from partita.graph.types import Array

NEAR = 0.75
"""Share of the nearest cache for the image, parts of which stay there while panel after panel is multiplied by them."""

FRAME = 64 << 10
"""Approximate limit, in bytes, of the copy of a band."""

LARGE_FRAME = 256 << 10
"""The same if bytes are widened in the copy: for each band the weights of all panels are copied too."""

FEWEST = 16
"""Minimum pixels for which tile registers are faster than vectors."""

HEAVY = 1 << 20
"""Minimum bytes of weights from which on each is read only once."""

FAR = 512 << 10
"""Bytes of weights from which on they come from a farther cache than the core's own."""

WHOLE = 256
"""Rows of a band that are multiplied by HEAVY weights, for dynamic row counts."""

LOWEST = 32
"""Minimum rows of a band for dynamic row counts: it must hold the highest tile, since the last tile overlaps the one before."""

CALM = 8
"""Maximum pixels of a tile whose addresses are computed from dynamic sizes: LLVM cannot prove that none overflows, and
broadcasts more of them ahead of their products than there are registers."""

SHALLOW = 256
"""Depth of a matrix product below which CALM applies to it too."""

LEAST_TASKS = 2
"""Minimum tasks per thread, so that a thread that is held up can leave some to others."""

READ = 16
"""Bytes of weights that a task reads, or of the image that it copies, per cycle."""

OFTEN = 4
"""Tiles down a band from which on it pays to convert a panel's weights to the instruction's preferred type."""

SQUARE = 2
"""Rows and columns of the squares of results that `winograd.py` computes together."""

NUMBERS = 16
"""Products per channel for such a square."""

GROWTH = 9 * 128 * (4 + 2) * 255
"""Worst-case growth per channel of an intermediate Winograd sum: the largest one consists of nine weights times four bytes, and
nine times two."""

CROSSED = 0.85
"""Time of a step with half of the multiplications, relative to one with all."""

MANY_COLUMNS = 32
"""Minimum columns for the correction terms of rows to pay off."""

DEEP = 64
"""Minimum depth for it."""

SUMS = 512 << 10
"""Approximate limit, in bytes, of the Winograd sums of a band of the image."""

TASK = 1000
"""Cycles of a task besides its work."""


@attrs.frozen(slots=True)
class ByteShape(Convolved):
    """A convolution of bytes; a matrix product is one with a window of one pixel."""

    is_plain: bool
    """True if the image is [N, C, H, W]. Otherwise its channels are last."""
    unit: int = 1
    """Channels per step."""
    element: Element = uint8
    """The element type in which the tiles read the image's bytes."""
    is_open: bool = False
    """True if addresses are computed from dynamic sizes. Then each result is computed by itself, and tiles have few pixels."""
    near: int = 0
    """Bytes of the image that stay in the nearest cache."""

    @classmethod
    def of(cls, node: Node) -> ByteShape:
        """The shape of a Product or Depthwise op."""
        window, plain = window_of(node), bool(node.attrs["plain"])
        if window.is_pointwise and not plain:
            window = window.flat()
        channels, outs, groups = (int(node.attrs[name]) for name in ("channels", "outs", "group"))
        return cls(node.attrs["batch"], window, channels, outs, groups, plain)

    def taken_by(self, dot: Instruction, machine: Machine) -> ByteShape:
        """The shape with the step and element type of an instruction, and with the cache of a machine."""
        return attrs.evolve(self, unit=dot.group, element=dot.left_element, near=int(machine.near * NEAR))

    @property
    def reach(self) -> int:
        """Channels that a group reads, padded to full steps."""
        return math.ceil(self.inner / self.unit) * self.unit

    @property
    def steps(self) -> int:
        """Steps along the channels of a group; the last may be padded."""
        return self.reach // self.unit

    @property
    def rest(self) -> int:
        """Channels of the last step if it is padded, else 0."""
        return self.inner % self.unit

    @property
    def across(self) -> int:
        """Distance between pixels in what the tiles read."""
        return self.reach * self.groups if self.copies else self.channels

    @property
    def runs(self) -> int:
        """Number of pieces in which each row of the window is read: one if the channels of its taps are contiguous."""
        is_whole = self.across == self.reach and self.window.dilations[1] == 1
        return 1 if is_whole else self.window.taps[1]

    @property
    def run(self) -> int:
        """Elements of such a piece."""
        return self.reach * self.window.taps[1] // self.runs

    @property
    def copies(self) -> bool:
        """True if the tiles read a copy of the image. It has padding around it, channels padded or moved last, or widened
        bytes."""
        is_filled = self.reach * self.groups != self.channels
        return self.is_plain or is_filled or not self.window.is_inside or self.element is not uint8

    @property
    def is_winograd(self) -> bool:
        """True if squares of results are computed by Winograd's method, with fewer products of wider numbers. It needs a step
        that takes those, and sums that stay within 32 bits."""
        window = self.window
        if self.is_open:
            return False
        is_square = window.taps == (3, 3) and window.strides == window.dilations == (1, 1) and min(window.out) >= SQUARE
        fits = self.reach * GROWTH < 1 << 31
        return self.element is int16 and is_square and fits and not self.is_plain

    @property
    def may_cross(self) -> bool:
        """True if half of the multiplications may be left out. Not those of squares, whose weights come from a farther cache for
        each tile: lower tiles take as long with half of the multiplications as higher ones with all."""
        is_whole = self.element is int16 and not self.is_winograd and self.run % fast_inner_product.STEP == 0
        return is_whole and self.depth >= DEEP and self.own >= MANY_COLUMNS and fast_inner_product.is_exact(self.depth)

    @property
    def depth(self) -> int:
        """Bytes of weights per channel of the result."""
        return self.reach * self.window.count


@attrs.frozen(slots=True)
class ByteTile(PanelTile):
    """A tile of sums of bytes: pixels times vectors of columns."""

    crosses: bool = False
    """True if half of the multiplications are left out, by `fast_inner_product.py`."""

    @property
    def cycles(self) -> float:
        """Estimated cycles of a step, with the loop overhead."""
        cycles = step_cycles(self.rows, self.vectors) + self.around
        return cycles * CROSSED if self.crosses else cycles

    def narrowed(self, vectors: int) -> ByteTile:
        """The tile of the last panel, with fewer vectors."""
        return attrs.evolve(self, vectors=vectors)


@attrs.frozen(slots=True)
class ByteCut:
    """The cut of a product of this shape for a machine."""

    shape: ByteShape
    dot: Instruction
    tile: ByteTile
    rows: int
    """Rows of the result in a band; the most of a band if their number is dynamic."""
    parts: int
    """Number of ranges of panels, for the threads to share."""
    parallel: bool
    unit: TileUnit | None = None
    """The use of the processor's tile registers; None: sums are in vectors."""

    @property
    def bands(self) -> int:
        return math.ceil(self.shape.window.out[0] / self.rows)

    @property
    def pixels(self) -> int:
        """Pixels of a band."""
        return self.rows * self.shape.window.out[1]

    @property
    def squares(self) -> int:
        """Squares of results in a band; the last in each line overlaps the one before."""
        return math.ceil(self.rows / SQUARE) * math.ceil(self.shape.window.out[1] / SQUARE)

    @property
    def length(self) -> int:
        """The rows of all tiles of a band together: pixels, or squares of them."""
        return self.squares if self.shape.is_winograd else self.pixels

    @property
    def tiles(self) -> int:
        """Number of tiles down a band; the last overlaps the one before."""
        return math.ceil(self.length / self.tile.rows)

    def heights(self) -> list[PanelTile]:
        """This tile and lower ones, enough for any number of rows. Weights from a farther cache are read once for a few rows."""
        tile = PanelTile(self.tile.rows, self.tile.vectors, self.dot.lanes)
        return tile.heights(is_fetched=self.weight_bytes >= FAR)

    @property
    def blocks(self) -> int:
        """Vectors of columns per group; the last overlaps the one before, if there is one."""
        return math.ceil(self.shape.own / self.dot.lanes)

    @property
    def panels(self) -> int:
        """Number of panels per group; the last overlaps the one before or is narrower."""
        return math.ceil(self.blocks / self.tile.vectors)

    @property
    def stored(self) -> int:
        """Number of sums of a vector that are results."""
        return min(self.dot.lanes, self.shape.own)

    def column(self, block: Operand) -> Operand:
        """The first column of a block within its group."""
        within, own = block * self.dot.lanes, self.shape.own
        return minimum(within, own - self.stored) if own % self.dot.lanes else within

    def cycles(self, parts: int) -> float:
        """Estimated cycles of the products of a band in the largest of `parts` ranges of panels."""
        full, rest = divmod(self.blocks, self.tile.vectors)
        steps = math.ceil(full / parts) * self.tile.cycles + (self.tile.narrowed(rest).cycles if rest else 0.0)
        return self.tiles * steps * self.shape.groups * self._products / self.dot.group

    @property
    def _products(self) -> int:
        """Products per row of a tile and column."""
        return self.shape.reach * NUMBERS if self.shape.is_winograd else self.shape.depth

    @property
    def block_bytes(self) -> int:
        """Bytes of weights of one block."""
        return self.shape.depth * self.dot.lanes

    @property
    def widens(self) -> bool:
        """True if tasks copy each panel's weights in a wider type before the tiles of the band read them."""
        return self.dot.right_element is not int8 and (self.shape.window.is_any or self.tiles >= OFTEN)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all packed weights."""
        return self.shape.groups * self.blocks * self.block_bytes

    @property
    def beginnings(self) -> int:
        """Number of initial sums, padded so that they can be read in full vectors."""
        return self.shape.outs + self.dot.lanes - self.stored

    def pack_beginning(self, sums: Array) -> Array:
        """The initial sums, padded to full vectors."""
        return np.pad(sums, (0, self.beginnings - sums.size))

    def columns(self) -> Iterator[tuple[int, int]]:
        """The first column of each block, and its number of results."""
        for group in range(self.shape.groups):
            for block in range(self.blocks):
                yield group * self.shape.own + min(block * self.dot.lanes, self.shape.own - self.stored), self.stored

    def pack(self, weights: Array) -> Array:
        """[outs, channels / groups, taps down, taps across] as flat panels: [panel][tap][step][vector][bytes of a step]."""
        shape, lanes, count = self.shape, self.dot.lanes, self.shape.window.count
        group, columns = self.dot.group, list(self.columns())
        packed, end = new_weight((self.weight_bytes,), np.dtype(np.int8)), 0
        for first in [g * self.blocks + b for g in range(shape.groups) for b in range(0, self.blocks, self.tile.vectors)]:
            own = columns[first : min(first + self.tile.vectors, (first // self.blocks + 1) * self.blocks)]
            vectors = np.zeros((count, shape.reach // group, len(own), lanes, group), np.int8)
            for v, (start, size) in enumerate(own):
                block = np.zeros((size, shape.reach, count), np.int8)
                block[:, : weights.shape[1]] = weights[start : start + size].reshape(size, -1, count)
                vectors[:, :, v, :size] = block.reshape(size, -1, group, count).transpose(3, 1, 0, 2)
            packed[end : end + vectors.size] = self.dot.pack(vectors).reshape(-1)
            end += vectors.size
        return packed


def make_cut(shape: ByteShape, machine: Machine) -> ByteCut:
    """The cut of a shape for a machine."""
    shape = shape.taken_by(instruction_for_bytes(machine), machine)
    if shape.window.is_any:
        return _any_rows(shape, machine) if shape.window.is_flat and not shape.is_plain else _any_image(shape, machine)
    threads = machine.threads_for(shape.batch * shape.window.pixels * shape.outs * shape.depth, BYTE_PRODUCTS)
    if threads == 1:
        return _tiled(shape, machine, _even(shape, _rows(shape)), choose, lambda cut: cut.cycles(1))
    shares = _Shares(threads)
    cuts = [_tiled(shape, machine, rows, _cheapest, shares.least) for rows in shares.rows(shape)]
    cut = _tiled(shape, machine, min(cuts, key=shares.least).rows, choose, shares.least)
    parts = min(shares.parts(cut), key=lambda parts: shares.time(cut, parts))
    return attrs.evolve(cut, parts=parts, parallel=True)


def _any_rows(shape: ByteShape, machine: Machine) -> ByteCut:
    """The cut of a matrix product with a dynamic number of rows: tiles as for many, in bands of at most as many rows as stay in
    cache. If threads share it they share the panels too, since rows may be few."""
    shape = attrs.evolve(shape, is_open=shape.depth < SHALLOW)
    rows = max(WHOLE if shape.outs * shape.depth >= HEAVY else shape.near // (shape.across * shape.element.bits // 8), LOWEST)
    window = attrs.evolve(shape.window, sizes=(MANY, 1), out=(MANY, 1))
    many = _tiled(attrs.evolve(shape, window=window), machine, MANY, choose, lambda cut: cut.cycles(1), False)
    return attrs.evolve(many, shape=shape, rows=rows, parts=_parts(many, machine), parallel=machine.threads > 1)


def _any_image(shape: ByteShape, machine: Machine) -> ByteCut:
    """The cut for images of dynamic height and width: tiles as for large ones. Bands are computed from the sizes of each call."""
    shape = attrs.evolve(shape, is_open=True)
    large = shape.window.with_sizes(MANY)
    many = _tiled(attrs.evolve(shape, window=large), machine, large.out[0], choose, lambda cut: cut.cycles(1), False)
    return attrs.evolve(many, shape=shape, rows=1, parts=_parts(many, machine), parallel=machine.threads > 1)


def _parts(cut: ByteCut, machine: Machine) -> int:
    """Number of ranges of panels if there may be few rows."""
    panels = max(1, cut.blocks // cut.tile.vectors)
    return min(panels, LEAST_TASKS * machine.threads) if machine.threads > 1 else 1


Choose = Callable[[str, Iterable[ByteTile], Callable[[ByteTile], float]], ByteTile]
"""A function that picks one of several tiles: `choose`, or `_cheapest`."""


def _cheapest(what: str, tiles: Iterable[ByteTile], cost: Callable[[ByteTile], float]) -> ByteTile:
    return min(tiles, key=cost)


def _tiled(
    shape: ByteShape, machine: Machine, rows: int, choose: Choose, cost: Callable[[ByteCut], float], may_use_tiles: bool = True
) -> ByteCut:
    """The cut into bands of `rows` rows, with the best tile. The processor's tile registers, if it has any, or an
    instruction for several rows, are used for products of static sizes; others are summed up in vectors."""
    dot = instruction_for_bytes(machine)
    pixels = ByteCut(shape, dot, ByteTile(1, 1, dot.lanes), rows, 1, False).length
    several = instruction_for_rows("int8", 0, machine) if may_use_tiles else None
    if several is not None and pixels >= several.rows:
        dot, shape = several, shape.taken_by(several, machine)
    if may_use_tiles and instruction_in_tiles("int8", machine) is not None and pixels >= FEWEST:
        used = machine.instruction("int8")
        blocks, is_emulated = math.ceil(shape.own / dot.lanes), used is not None and used.is_emulated
        unit = unit_for_bytes(pixels, shape.run, blocks, is_emulated)
        return ByteCut(shape, dot, ByteTile(unit.rows * unit.high, unit.wide, dot.lanes), rows, 1, False, unit)
    highest = min(pixels, CALM) if shape.is_open else pixels
    listed = RegisterTiles(*dot.row.beside).sizes(machine)
    sizes = [ByteTile(*size, dot.lanes) for size in listed if size[0] <= highest and size[0] % dot.rows == 0]
    if shape.may_cross:
        listed = REGISTER_TILES["product of bytes with half of the multiplications"].sizes(machine)
        few = [ByteTile(*size, dot.lanes, crosses=True) for size in listed if size[0] <= highest]
        sizes += [tile for tile in few if ByteCut(shape, dot, tile, rows, 1, False).widens]
    best = choose("tile", sizes, lambda tile: cost(ByteCut(shape, dot, tile, rows, 1, False)))
    return ByteCut(shape, dot, best, rows, 1, False)


@attrs.frozen(slots=True)
class _Shares:
    """The ways to divide a product among threads: bands of rows, each for some ranges of panels."""

    threads: int

    def rows(self, shape: ByteShape) -> list[int]:
        """Candidate rows of a band: as many as stay in cache, or such that the bands are a multiple of the threads."""
        high, threads = shape.window.out[0], self.threads
        fewest = math.ceil(high / _rows(shape))
        counts = {fewest, math.ceil(fewest / threads) * threads, threads // 2, *(turn * threads for turn in range(1, TASKS + 1))}
        return sorted({_even(shape, math.ceil(high / count)) for count in counts if fewest <= count <= high}, reverse=True)

    def parts(self, cut: ByteCut) -> list[int]:
        """Candidate numbers of ranges of panels, so that there are some tasks for each thread."""
        panels, tasks = max(1, cut.blocks // cut.tile.vectors), cut.shape.images * cut.bands
        return sorted({min(panels, math.ceil(turns * self.threads / tasks)) for turns in range(LEAST_TASKS, TASKS + 1)})

    def least(self, cut: ByteCut) -> float:
        """The time of the best of them."""
        return min(self.time(cut, parts) for parts in self.parts(cut))

    def time(self, cut: ByteCut, parts: int) -> float:
        """Estimated cycles until the last thread has finished: its products, and what each task reads and copies for itself."""
        shape, window = cut.shape, cut.shape.window
        turns = math.ceil(shape.images * cut.bands * parts / self.threads)
        read = cut.weight_bytes / parts
        if shape.copies:
            read += cut.rows * window.strides[0] * window.sizes[1] * shape.across * shape.element.bits / 8
        if shape.is_winograd:
            read += NUMBERS * shape.element.bits / 8 * (cut.squares * shape.across + shape.outs * shape.reach / parts)
        return turns * (cut.cycles(parts) + read / READ + TASK)


def _even(shape: ByteShape, rows: int) -> int:
    """About `rows` rows, so that bands are equal, and consist of full squares if those are computed together."""
    high = shape.window.out[0]
    rows = math.ceil(high / math.ceil(high / rows))
    return min(high, math.ceil(rows / SQUARE) * SQUARE) if shape.is_winograd else rows


def _rows(shape: ByteShape) -> int:
    """Rows of a band whose input stays in a cache."""
    window = shape.window
    weights = shape.outs * shape.depth
    if shape.is_winograd:
        line = math.ceil(window.out[1] / SQUARE) * NUMBERS * shape.across * shape.element.bits // 8
        return min(window.out[0], max(1, SUMS // line) * SQUARE)
    if weights >= HEAVY:
        return window.out[0]
    row = window.strides[0] * window.sizes[1] * shape.across * shape.element.bits // 8
    frame = FRAME if shape.element is uint8 else LARGE_FRAME
    return max(1, min(window.out[0], (frame if shape.copies else shape.near) // row))
