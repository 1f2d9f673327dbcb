"""How a product of quantized values is cut: bands of rows, panels of columns, tiles of both; and how its weights are laid out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import new_weight
from partita.accelerators.tvm.kernels.language import Element, int8, int16, uint8
from partita.accelerators.tvm.kernels.quantized import crossed
from partita.accelerators.tvm.kernels.quantized.byte_tiles import Tiling
from partita.accelerators.tvm.kernels.quantized.dots import Dot, dot_of, has_tiles
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.panels import MANY, PanelTile
from partita.accelerators.tvm.kernels.shared.tile import fitting
from partita.accelerators.tvm.kernels.shared.window import Convolved, Pair, window_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import BYTE_PRODUCTS, TASKS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node
from partita.graph.types import Array

NEAR = 24 << 10
"""The number of bytes of the image that stay in the first-level cache while panel after panel is multiplied by them."""

FRAME = 64 << 10
"""A copy of a band takes about so many bytes at most."""

LARGE_FRAME = 256 << 10
"""The same where bytes are copied as larger numbers: for each band the weights of all panels are copied too."""

FEWEST = 16
"""The least number of pixels for which tiles are faster than vectors."""

HEAVY = 1 << 20
"""With more bytes of weights than this, each is read once."""

FAR = 512 << 10
"""So many bytes of weights come from a farther cache than the core's own."""

WHOLE = 256
"""The rows of a band that are multiplied by so many weights, where any number of rows may come."""

LOWEST = 32
"""The fewest rows of a band there: a band has room for the highest tile, and its last one overlaps the one before."""

CALM = 8
"""The most pixels of a tile whose addresses are computed while the kernel runs: LLVM does not see that none of them overflows,
and spreads more of them ahead of their products than there are registers."""

SHALLOW = 256
"""The depth of a product of matrices below which that is felt too."""

LEAST_TASKS = 2
"""The least number of tasks for each thread, so that one that is held up can leave some to others."""

READ = 16
"""Bytes of weights that a task reads, or of the image that it copies, in a cycle."""

OFTEN = 4
"""With so many tiles down a band it pays to lay a panel's weights out as the instruction likes them best."""

SQUARE = 2
"""Rows and columns of the results that are computed together by the fewer products of `winograd.py`."""

NUMBERS = 16
"""Products of each channel for such a square."""

GROWTH = 9 * 128 * (4 + 2) * 255
"""How much each channel may add to what stands between those products and the results: nine weights times four bytes, and nine
times two, of which the largest sum that is no result consists."""

CROSSED = 0.85
"""What a step takes with half of the multiplications, over what it takes with all."""

MANY_COLUMNS = 32
"""With so many columns it pays to compute what those products add to each row, and take it off,"""

DEEP = 64
"""if the depth has so many numbers."""

SUMS = 512 << 10
"""What stands for a band of the image takes about so many bytes at most."""

TASK = 1000
"""Cycles that a task takes beside its work."""


@attrs.frozen(slots=True)
class Shape(Convolved):
    """A convolution of bytes; a product of matrices is one whose window is one pixel."""

    is_plain: bool
    """Does the image stand as [N, C, H, W]? Otherwise its channels stand side by side."""
    unit: int = 1
    """How many channels a step takes."""
    element: Element = uint8
    """What the tiles read the image's bytes as."""
    is_open: bool = False
    """Are addresses computed from sizes that are known only while the kernel runs? Then each result is computed by itself, and
    tiles have few pixels."""

    @classmethod
    def of(cls, node: Node) -> Shape:
        """The shape of an op Product, or of a Depthwise."""
        window, plain = window_of(node), bool(node.attrs["plain"])
        if window.is_pointwise and not plain:
            window = window.flat()
        channels, outs, groups = (int(node.attrs[name]) for name in ("channels", "outs", "group"))
        return cls(node.attrs["batch"], window, channels, outs, groups, plain)

    def taken_by(self, dot: Dot) -> Shape:
        """The shape as an instruction takes it."""
        return attrs.evolve(self, unit=dot.group, element=dot.element)

    @property
    def reach(self) -> int:
        """Channels that a group reads, filled up to whole steps."""
        return math.ceil(self.channels // self.groups / self.unit) * self.unit

    @property
    def across(self) -> int:
        """Numbers from one pixel of what the tiles read to the next."""
        return self.reach * self.groups if self.copies else self.channels

    @property
    def runs(self) -> int:
        """How many pieces each row of the window is read in: one, where the channels of its taps stand side by side."""
        is_whole = self.across == self.reach and self.window.dilations[1] == 1
        return 1 if is_whole else self.window.taps[1]

    @property
    def run(self) -> int:
        """The numbers of such a piece."""
        return self.reach * self.window.taps[1] // self.runs

    @property
    def copies(self) -> bool:
        """Do the tiles read a copy of the image? It has padding around it, channels filled up or put side by side, or bytes as
        larger numbers."""
        is_filled = self.reach * self.groups != self.channels
        return self.is_plain or is_filled or not self.window.is_inside or self.element is not uint8

    @property
    def is_winograd(self) -> bool:
        """Are squares of results computed by fewer products of larger numbers? The numbers of a step have room for them, and the
        sums stay within 32 bits."""
        window = self.window
        if self.is_open:
            return False
        is_square = window.taps == (3, 3) and window.strides == window.dilations == (1, 1) and min(window.out) >= SQUARE
        fits = self.reach * GROWTH < 1 << 31
        return self.element is int16 and is_square and fits and not self.is_plain

    @property
    def may_cross(self) -> bool:
        """May half of the multiplications be left out? Not those of squares, whose weights come from a farther cache for each
        tile: lower tiles take as long with half of the multiplications as higher ones with all."""
        is_whole = self.element is int16 and not self.is_winograd and self.run % crossed.STEP == 0
        return is_whole and self.depth >= DEEP and self.own >= MANY_COLUMNS and crossed.is_exact(self.depth)

    @property
    def own(self) -> int:
        """Channels of the result in a group."""
        return self.outs // self.groups

    @property
    def depth(self) -> int:
        """Bytes of weights of each of them."""
        return self.reach * self.window.count


@attrs.frozen(slots=True)
class Tile:
    """The sums that are kept in registers: so many pixels times so many vectors of columns."""

    rows: int
    vectors: int
    crosses: bool = False
    """Are there half of the multiplications, as `crossed.py` has them?"""

    def cycles(self, vectors: int) -> float:
        """About what a step takes where only so many vectors are left: products, loads and latency, and a little around."""
        cycles = max(self.rows * vectors / 2, (self.rows + vectors) / 2, 4.0) + 0.5
        return cycles * CROSSED if self.crosses else cycles


@attrs.frozen(slots=True)
class Cut:
    """How a product of this shape is cut for a machine."""

    shape: Shape
    dot: Dot
    tile: Tile
    rows: int
    """Rows of the result in a band; the most that it has, where any number of them may come."""
    parts: int
    """Into how many ranges the panels are cut, for the threads to share."""
    parallel: bool
    tiling: Tiling | None = None
    """How the sums are made in the processor's tiles; None: in vectors."""

    @property
    def bands(self) -> int:
        return math.ceil(self.shape.window.out[0] / self.rows)

    @property
    def pixels(self) -> int:
        """Pixels of a band."""
        return self.rows * self.shape.window.out[1]

    @property
    def squares(self) -> int:
        """Squares of results of a band; the last in each line overlaps the one before."""
        return math.ceil(self.rows / SQUARE) * math.ceil(self.shape.window.out[1] / SQUARE)

    @property
    def length(self) -> int:
        """How many rows all tiles of a band have: pixels, or squares of them."""
        return self.squares if self.shape.is_winograd else self.pixels

    @property
    def tiles(self) -> int:
        """Tiles down a band; the last overlaps the one before."""
        return math.ceil(self.length / self.tile.rows)

    def heights(self) -> list[PanelTile]:
        """Lower tiles and this one, enough for any number of rows. Weights from a farther cache are read once for a few rows."""
        tile = PanelTile(self.tile.rows, self.tile.vectors, self.dot.lanes)
        return tile.heights(is_fetched=self.weight_bytes >= FAR)

    @property
    def blocks(self) -> int:
        """Vectors of columns in a group; the last overlaps the one before, if there is one."""
        return math.ceil(self.shape.own / self.dot.lanes)

    @property
    def stored(self) -> int:
        """How many sums of a vector are results."""
        return min(self.dot.lanes, self.shape.own)

    def cycles(self, parts: int) -> float:
        """About how many cycles the products of a band take in the largest of so many ranges of panels."""
        full, rest = divmod(self.blocks, self.tile.vectors)
        steps = math.ceil(full / parts) * self.tile.cycles(self.tile.vectors) + (self.tile.cycles(rest) if rest else 0.0)
        return self.tiles * steps * self.shape.groups * self._products / self.dot.group

    @property
    def _products(self) -> int:
        """Products for each row of a tile and each column."""
        return self.shape.reach * NUMBERS if self.shape.is_winograd else self.shape.depth

    @property
    def block_bytes(self) -> int:
        """Bytes of weights of one block."""
        return self.shape.depth * self.dot.lanes

    @property
    def widens(self) -> bool:
        """Do tasks copy each panel's weights as larger numbers, before all tiles of the band read them?"""
        return self.dot.column is not int8 and (self.shape.window.is_any or self.tiles >= OFTEN)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all packed weights."""
        return self.shape.groups * self.blocks * self.block_bytes

    @property
    def beginnings(self) -> int:
        """Sums that a tile may begin with, read in whole vectors."""
        return self.shape.outs + self.dot.lanes - self.stored

    def pack_beginning(self, sums: Array) -> Array:
        """What the sums begin with, filled up to whole vectors."""
        return np.pad(sums, (0, self.beginnings - sums.size))

    def columns(self) -> Iterator[tuple[int, int]]:
        """Where each block begins, and how many results it has."""
        for group in range(self.shape.groups):
            for block in range(self.blocks):
                yield group * self.shape.own + min(block * self.dot.lanes, self.shape.own - self.stored), self.stored

    def pack(self, weights: Array) -> Array:
        """[outs, channels / groups, taps down, taps across] as panels: [panel][tap][step][vector][bytes of a step], flat."""
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


def make_cut(shape: Shape, machine: Machine) -> Cut:
    """The cut of a shape for a machine."""
    shape = shape.taken_by(dot_of(machine))
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


def _any_rows(shape: Shape, machine: Machine) -> Cut:
    """The cut of a product of matrices with any number of rows: tiles as for many, in bands of at most so many rows as stay near.
    Where threads share it they share the panels too, since rows may be few."""
    shape = attrs.evolve(shape, is_open=shape.depth < SHALLOW)
    rows = max(WHOLE if shape.outs * shape.depth >= HEAVY else NEAR // (shape.across * shape.element.bits // 8), LOWEST)
    window = attrs.evolve(shape.window, sizes=(MANY, 1), out=(MANY, 1))
    many = _tiled(attrs.evolve(shape, window=window), machine, MANY, choose, lambda cut: cut.cycles(1), False)
    return attrs.evolve(many, shape=shape, rows=rows, parts=_parts(many, machine), parallel=machine.threads > 1)


def _any_image(shape: Shape, machine: Machine) -> Cut:
    """The cut of images of any height and width: tiles as for large ones. The bands are computed from the sizes of each call."""
    shape = attrs.evolve(shape, is_open=True)
    large = attrs.evolve(shape.window, sizes=_large(shape.window.sizes), out=_large(shape.window.out))
    many = _tiled(attrs.evolve(shape, window=large), machine, large.out[0], choose, lambda cut: cut.cycles(1), False)
    return attrs.evolve(many, shape=shape, rows=1, parts=_parts(many, machine), parallel=machine.threads > 1)


def _large(sizes: Pair) -> Pair:
    """The sizes, those that are not known as many as are whole tiles of most heights."""
    high, wide = [MANY if isinstance(size, Extent) else size for size in sizes]
    return high, wide


def _parts(cut: Cut, machine: Machine) -> int:
    """Into how many ranges the panels are cut where the number of rows may be small."""
    panels = max(1, cut.blocks // cut.tile.vectors)
    return min(panels, LEAST_TASKS * machine.threads) if machine.threads > 1 else 1


Choose = Callable[[str, Iterable[Tile], Callable[[Tile], float]], Tile]
"""What takes one of several tiles: `choose`, or the one of least cost."""


def _cheapest(what: str, tiles: Iterable[Tile], cost: Callable[[Tile], float]) -> Tile:
    return min(tiles, key=cost)


def _tiled(
    shape: Shape, machine: Machine, rows: int, choose: Choose, cost: Callable[[Cut], float], may_use_tiles: bool = True
) -> Cut:
    """The cut into bands of so many rows, with the tile that suits it. The processor's own tiles, if it has any, take products of
    known sizes; others are summed up in vectors there."""
    dot = dot_of(machine)
    pixels = Cut(shape, dot, Tile(1, 1), rows, 1, False).length
    if may_use_tiles and has_tiles(machine) and pixels >= FEWEST:
        used = machine.instruction("int8")
        tiling = Tiling.of(pixels, shape.run, used is not None and used.is_emulated)
        blocks = math.ceil(shape.own / dot.lanes)
        return Cut(shape, dot, Tile(tiling.rows * tiling.high, min(2, blocks)), rows, 1, False, tiling)
    highest = min(pixels, CALM) if shape.is_open else pixels
    sizes = [Tile(*size) for size in fitting(machine, dot.beside) if size[0] <= highest]
    if shape.may_cross:
        few = [Tile(*size, crosses=True) for size in fitting(machine, crossed.beside) if size[0] <= highest]
        sizes += [tile for tile in few if Cut(shape, dot, tile, rows, 1, False).widens]
    return Cut(shape, dot, choose("tile", sizes, lambda tile: cost(Cut(shape, dot, tile, rows, 1, False))), rows, 1, False)


@attrs.frozen(slots=True)
class _Shares:
    """The ways to share a product out among threads: bands of rows, each for some ranges of panels."""

    threads: int

    def rows(self, shape: Shape) -> list[int]:
        """How many rows a band may have: as many as stay near, or so many that whole turns of the threads make all bands."""
        high, threads = shape.window.out[0], self.threads
        fewest = math.ceil(high / _rows(shape))
        counts = {fewest, math.ceil(fewest / threads) * threads, threads // 2, *(turn * threads for turn in range(1, TASKS + 1))}
        return sorted({_even(shape, math.ceil(high / count)) for count in counts if fewest <= count <= high}, reverse=True)

    def parts(self, cut: Cut) -> list[int]:
        """Into how many ranges the panels may be cut, such that there are some tasks for each thread."""
        panels, tasks = max(1, cut.blocks // cut.tile.vectors), cut.shape.images * cut.bands
        return sorted({min(panels, math.ceil(turns * self.threads / tasks)) for turns in range(LEAST_TASKS, TASKS + 1)})

    def least(self, cut: Cut) -> float:
        """The time that the best of them takes."""
        return min(self.time(cut, parts) for parts in self.parts(cut))

    def time(self, cut: Cut, parts: int) -> float:
        """About how many cycles pass until the last thread is through: with the products, and with what each task reads and
        copies for itself."""
        shape, window = cut.shape, cut.shape.window
        turns = math.ceil(shape.images * cut.bands * parts / self.threads)
        read = cut.weight_bytes / parts
        if shape.copies:
            read += cut.rows * window.strides[0] * window.sizes[1] * shape.across * shape.element.bits / 8
        if shape.is_winograd:
            read += NUMBERS * shape.element.bits / 8 * (cut.squares * shape.across + shape.outs * shape.reach / parts)
        return turns * (cut.cycles(parts) + read / READ + TASK)


def _even(shape: Shape, rows: int) -> int:
    """About so many rows, so that bands are equal, and made of whole squares where those are computed together."""
    high = shape.window.out[0]
    rows = math.ceil(high / math.ceil(high / rows))
    return min(high, math.ceil(rows / SQUARE) * SQUARE) if shape.is_winograd else rows


def _rows(shape: Shape) -> int:
    """Rows of a band such that what its tiles read stays in a cache."""
    window = shape.window
    weights = shape.outs * shape.depth
    if shape.is_winograd:
        line = math.ceil(window.out[1] / SQUARE) * NUMBERS * shape.across * shape.element.bits // 8
        return min(window.out[0], max(1, SUMS // line) * SQUARE)
    if weights >= HEAVY:
        return window.out[0]
    row = window.strides[0] * window.sizes[1] * shape.across * shape.element.bits // 8
    frame = FRAME if shape.element is uint8 else LARGE_FRAME
    return max(1, min(window.out[0], (frame if shape.copies else NEAR) // row))
