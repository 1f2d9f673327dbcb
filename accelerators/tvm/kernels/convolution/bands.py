"""How a convolution is cut: register tiles, bands of rows, ranges of panels, chunks of input channels.

All of it follows from what a core holds near: a panel's weights of one chunk in the first-level cache, a band's copy and sums in
the second. For the threads, rows are cut first where the image is larger than the weights, so that a thread keeps to its slice
of the image from layer to layer; else panels."""

from __future__ import annotations

import math

import attrs

from accelerators.tvm.kernels.convolution.channels import reaches
from accelerators.tvm.kernels.shared.choice import choose
from accelerators.tvm.kernels.shared.tile import LATENCY, PORTS
from accelerators.tvm.kernels.shared.tile_unit import MOST_ROWS, SUMS
from accelerators.tvm.kernels.shared.window import Convolved, Window
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.work import CONVOLUTION_PRODUCTS
from accelerators.tvm.sizes.extent import Extent

NEAR = 1200
"""Steps whose weights fit the first-level cache beside what else is read, for a panel of 64 bytes."""

KEPT = 160 * 1024
"""Numbers that a task may keep in the second-level cache."""

ADDRESSES = 8
"""Pixels of a tile that are no neighbours: each keeps its address in a register of its own."""

AHEAD = 8
"""The most pixels of a tile that stand one after another in memory, and that several vectors meet. LLVM knows where all of them
are, and spreads more of them ahead of their products than there are registers."""


@attrs.frozen(slots=True)
class Shape(Convolved):
    """A convolution of floats in the blocked layout."""

    plain: bool
    shuffled: bool
    size: int = 4
    """Bytes of a weight."""
    held: int = 4
    """Bytes of a number of the copy."""
    always: bool = False
    """Is the image copied whatever it is, since tiles read another element type?"""
    in_tiles: bool = False
    """Are sums kept in tiles of the processor's own?"""

    @property
    def copies(self) -> bool:
        """Is the image copied first? It is where its padding is read, or where most of it is not read."""
        return self.always or not self.window.is_inside or self.window.is_sampled


@attrs.frozen(slots=True)
class Bands:
    """How the convolution is cut."""

    pixels: int
    """Pixels of a register tile."""
    vectors: int
    """Vectors of output channels of a register tile."""
    rows: int
    """Rows of a band."""
    tiles: int
    """Tiles of a band."""
    down: int
    """How many bands there are."""
    across: int
    """Into how many ranges the panels are cut."""
    chunk: int
    """Input channels that are walked in one go; 0: all."""
    copies: bool
    """Is the band copied, with zeros around it?"""
    parallel: bool
    """Is it work for several threads?"""


def cut_bands(shape: Shape, machine: Machine) -> Bands:
    """The cut that should take the fewest cycles."""
    lanes, window = machine.lanes, shape.window
    blocks = math.ceil(shape.outs / lanes)
    pixels, vectors = _tile(shape, machine)
    read = reaches(shape.channels, shape.outs, shape.groups, vectors * lanes)
    reach = sum(read) // len(read)
    chunk = _chunk(shape, reach, vectors, machine)
    products = shape.batch * shape.outs * window.pixels * reach * window.count
    parallel = machine.threads_for(products, CONVOLUTION_PRODUCTS) > 1
    tall = _tallest(shape, chunk or reach, pixels)
    panels = math.ceil(blocks / vectors)
    down, across = math.ceil(window.out[0] / tall), 1
    if parallel:
        down, across = _for_threads(shape, pixels, panels, reach, down, machine.threads)
    rows = _rows(window, math.ceil(window.out[0] / down), pixels)
    down = math.ceil(window.out[0] / rows)
    tiles = math.ceil(rows * window.out[1] / pixels)
    return Bands(pixels, vectors, rows, tiles, down, across, chunk, shape.copies, parallel)


def _tile(shape: Shape, machine: Machine) -> tuple[int, int]:
    """Pixels and vectors of the register tile: enough sums to hide the latency, few wasted, few loads."""
    blocks, whole = math.ceil(shape.outs / machine.lanes), shape.window.pixels
    if shape.in_tiles:
        return min(MOST_ROWS, whole), min(SUMS, blocks)

    def cycles(pixels: int, vectors: int) -> float:
        return max(pixels * vectors / PORTS, (pixels + vectors) / PORTS + 0.5, LATENCY) + 0.3

    def cost(tile: tuple[int, int]) -> float:
        pixels, vectors = tile
        read, rest = reaches(shape.channels, shape.outs, shape.groups, vectors * machine.lanes), blocks % vectors
        last = read.pop() * cycles(pixels, rest) if rest else 0
        return math.ceil(whole / pixels) * (sum(read) * cycles(pixels, vectors) + last)

    choices = [
        (pixels, vectors)
        for vectors in range(1, min(blocks, machine.registers) + 1)
        for pixels in range(1, _most_pixels(shape.window, vectors, machine) + 1)
        if pixels * vectors + vectors + 2 <= machine.registers and pixels <= whole
    ]
    return choose("tile", choices, cost)


def _most_pixels(window: Window, vectors: int, machine: Machine) -> int:
    """The most pixels of a tile of so many vectors."""
    if window.out[1] > 1:
        return ADDRESSES
    return machine.registers - 1 if vectors == 1 else AHEAD


def _chunk(shape: Shape, reach: int, vectors: int, machine: Machine) -> int:
    """The input channels of a chunk: as many whole blocks as divide them and stay near; 0: no chunks."""
    near = NEAR * 16 // (vectors * machine.lanes) * 4 // shape.size
    if shape.plain or shape.shuffled or shape.groups > 1 or reach % machine.lanes or reach * shape.window.count <= 2 * near:
        return 0
    blocks = reach // machine.lanes
    best = max(d for d in range(1, blocks + 1) if blocks % d == 0 and (d == 1 or d * machine.lanes * shape.window.count <= near))
    return 0 if best == blocks else best * machine.lanes


def _tallest(shape: Shape, chunk: int, pixels: int) -> int:
    """The most rows of a band whose copy, or input, and sums stay in the second-level cache."""
    window, part = shape.window, shape.held / 4
    wide = window.out[1] if window.is_sampled else window.sizes[1] * window.strides[0]
    per_row = int(wide * chunk * part) + (window.out[1] * shape.outs if chunk < shape.channels else 0)
    above = int(max(window.span[0] - window.strides[0], 0) * window.sizes[1] * chunk * part)
    return max(
        1, min(window.out[0], (KEPT - above) // max(per_row, 1)), min(window.out[0], 2 * window.span[0] if shape.copies else 1)
    )


def _for_threads(shape: Shape, pixels: int, panels: int, reach: int, least: int, threads: int) -> tuple[int, int]:
    """Bands and ranges of panels: equal shares for the threads, few rows and panels twice, near inputs. Of
    any number of images, each is cut as if it came alone."""
    window = shape.window
    image = shape.channels * math.prod(window.sizes)
    weights = shape.outs * reach * window.count
    images = 1 if isinstance(shape.batch, Extent) else shape.batch

    def cost(cut: tuple[int, int]) -> float:
        down, across = cut
        rows = math.ceil(window.out[0] / down)
        rounds = math.ceil(images * down * across / threads)
        work = (
            math.ceil(rows * window.out[1] / pixels)
            * pixels
            * math.ceil(panels / across)
            * shape.outs
            / panels
            * reach
            * window.count
            / 16
        )
        moved = weights / across + (image / down if shape.copies else image / down / 2)
        return rounds * (work + moved / 2)

    most = min(window.out[0], max(least, 4 * threads))
    choices = [(down, across) for down in range(min(least, most), most + 1) for across in range(1, min(panels, 2 * threads) + 1)]
    return choose("cut", choices, cost)


def _rows(window: Window, rows: int, pixels: int) -> int:
    """The rows of a band: whole tiles where rows are single pixels."""
    if window.out[1] == 1:
        rows = math.ceil(rows / pixels) * pixels
    return min(max(rows, math.ceil(pixels / window.out[1])), window.out[0])
