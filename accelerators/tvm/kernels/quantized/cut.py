"""How a product of quantized values is cut: bands of rows, panels of columns, tiles of both; and how its weights are laid out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs
import numpy as np

from accelerators.tvm.kernels.language import Element, uint8
from accelerators.tvm.kernels.quantized.byte_tiles import Tiling
from accelerators.tvm.kernels.quantized.dots import Dot, dot_of, has_tiles
from accelerators.tvm.kernels.shared.choice import choose
from accelerators.tvm.kernels.shared.tile import fitting
from accelerators.tvm.kernels.shared.window import Convolved, window_of
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.work import BYTE_PRODUCTS
from graph.node import Node
from graph.types import Array

NEAR = 24 << 10
"""The number of bytes of the image that stay in the first-level cache while panel after panel is multiplied by them."""

FRAME = 64 << 10
"""A copy of a band takes about so many bytes at most."""

FEWEST = 16
"""The least number of pixels for which tiles are faster than vectors."""

HEAVY = 1 << 20
"""With more bytes of weights than this, each is read once."""


@attrs.frozen(slots=True)
class Shape(Convolved):
    """A convolution of bytes; a product of matrices is one whose window is one pixel."""

    is_plain: bool
    """Does the image stand as [N, C, H, W]? Otherwise its channels stand side by side."""
    unit: int = 1
    """How many channels a step takes."""
    element: Element = uint8
    """What the tiles read the image's bytes as."""

    @classmethod
    def of(cls, node: Node) -> Shape:
        """The shape of an op Product, or of a Depthwise."""
        window, plain = window_of(node), bool(node.attrs["plain"])
        if window.is_pointwise and not plain:
            window = window.flat()
        batch, channels, outs, groups = (int(node.attrs[name]) for name in ("batch", "channels", "outs", "group"))
        return cls(batch, window, channels, outs, groups, plain)

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

    def cycles(self, vectors: int) -> float:
        """About what a step takes where only so many vectors are left: products, loads and latency, and a little around."""
        return max(self.rows * vectors / 2, (self.rows + vectors) / 2, 4.0) + 0.5


@attrs.frozen(slots=True)
class Cut:
    """How a product of this shape is cut for a machine."""

    shape: Shape
    dot: Dot
    tile: Tile
    rows: int
    """Rows of the result in a band."""
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
    def tiles(self) -> int:
        """Tiles down a band; the last overlaps the one before."""
        return math.ceil(self.pixels / self.tile.rows)

    @property
    def blocks(self) -> int:
        """Vectors of columns in a group; the last overlaps the one before, if there is one."""
        return math.ceil(self.shape.own / self.dot.lanes)

    @property
    def stored(self) -> int:
        """How many sums of a vector are results."""
        return min(self.dot.lanes, self.shape.own)

    @property
    def block_bytes(self) -> int:
        """Bytes of weights of one block."""
        return self.shape.depth * self.dot.lanes

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
        filled = np.zeros((shape.outs, shape.reach, count), np.int8)
        filled[:, : weights.shape[1]] = weights.reshape(*weights.shape[:2], count)
        group = self.dot.group
        steps = filled.reshape(shape.outs, shape.reach // group, group, count).transpose(3, 1, 0, 2)
        panels = []
        blocks = [np.zeros((*steps.shape[:2], lanes, group), np.int8) for _ in range(shape.groups * self.blocks)]
        for block, (first, size) in zip(blocks, self.columns(), strict=True):
            block[:, :, :size] = steps[:, :, first : first + size]
        for g in range(shape.groups):
            own = blocks[g * self.blocks : (g + 1) * self.blocks]
            for first in range(0, self.blocks, self.tile.vectors):
                vectors = np.stack(own[first : first + self.tile.vectors], axis=2)
                panels.append(self.dot.pack(vectors).reshape(-1))
        return np.concatenate(panels)


def make_cut(shape: Shape, machine: Machine) -> Cut:
    """The cut of a shape for a machine."""
    dot = dot_of(machine)
    shape = shape.taken_by(dot)
    rows = _rows(shape)
    work = shape.batch * shape.window.pixels * shape.outs * shape.depth
    threads = machine.threads_for(work, BYTE_PRODUCTS)
    if threads > 1:
        rows = max(1, min(rows, math.ceil(shape.window.out[0] / max(1, 2 * threads // shape.batch))))
    rows = _even(shape.window.out[0], rows)

    def cost(tile: Tile) -> float:
        cut = Cut(shape, dot, tile, rows, 1, False)
        full, rest = divmod(cut.blocks, tile.vectors)
        return cut.tiles * (full * tile.cycles(tile.vectors) + (tile.cycles(rest) if rest else 0.0))

    pixels = rows * shape.window.out[1]
    if has_tiles(machine) and pixels >= FEWEST:
        used = machine.instruction("int8")
        tiling = Tiling.of(pixels, shape.run, used is not None and used.is_emulated)
        blocks = math.ceil(shape.own / dot.lanes)
        cut = Cut(shape, dot, Tile(tiling.rows * tiling.high, min(2, blocks)), rows, 1, threads > 1, tiling)
        return _shared_out(cut, threads)
    sizes = [Tile(*size) for size in fitting(machine, dot.beside) if size[0] <= pixels]
    return _shared_out(Cut(shape, dot, choose("tile", sizes, cost), rows, 1, threads > 1), threads)


def _shared_out(cut: Cut, threads: int) -> Cut:
    """With the panels in as many ranges as the threads need."""
    tasks = cut.shape.batch * cut.bands
    panels = math.ceil(cut.blocks / cut.tile.vectors)
    parts = 1 if tasks >= 2 * threads or threads == 1 else min(panels, math.ceil(2 * threads / tasks))
    return attrs.evolve(cut, parts=parts)


def _even(size: int, step: int) -> int:
    """About the step, so that pieces are equal."""
    return math.ceil(size / math.ceil(size / step))


def _rows(shape: Shape) -> int:
    """Rows of a band such that what its tiles read stays in a cache."""
    window = shape.window
    weights = shape.outs * shape.depth
    if weights >= HEAVY:
        return window.out[0]
    row = window.strides[0] * window.sizes[1] * shape.across * shape.element.bits // 8
    return max(1, min(window.out[0], (FRAME if shape.copies else NEAR) // row))
