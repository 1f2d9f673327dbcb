"""How a convolution is cut: register tiles, bands of rows, ranges of panels, chunks of input channels.

All of it follows from what a core holds near: a panel's weights of one chunk in the first-level cache, a band's copy and sums in
the second. For the threads, rows are cut first where the image is larger than the weights, so that a thread keeps to its slice
of the image from layer to layer; else panels."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.kernels.convolution.channels import reaches
from partita.accelerators.tvm.kernels.convolution.seen_taps import mean_seen
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, maximum, minimum, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.tile import LATENCY, PORTS, kept
from partita.accelerators.tvm.kernels.shared.tile_unit import MOST_ROWS, SUMS
from partita.accelerators.tvm.kernels.shared.window import Convolved, Pair, Window
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import CONVOLUTION_PRODUCTS
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

NEAR = 1200
"""Steps whose weights fit the first-level cache beside what else is read, for a panel of 64 bytes."""

KEPT = 160 * 1024
"""Numbers that a task may keep in the second-level cache."""

ADDRESSES = 8
"""Pixels of a tile that are no neighbours: each keeps its address in a register of its own."""

MANY = 840
"""So many rows and columns are a multiple of most tiles': what takes fewest cycles for them takes fewest for large images."""

AHEAD = 8
"""The most pixels of a tile that stand one after another in memory, and that several vectors meet. LLVM knows where all of them
are, and spreads more of them ahead of their products than there are registers."""

SHARING = (8, 4)
"""Pixels of tiles that share an address in many widths, more of them first."""

CALM = 6
"""The most pixels of a tile of two vectors for which LLVM keeps all in registers."""

SPILLED = 0.5
"""About how many cycles a step takes longer for each pixel more."""

FIRST_READ = 2.0
"""About how many cycles a tile waits for a line of the image that no tile before it has read."""

WEIGHTS_READ = 0.05
"""About how many cycles a step waits for each of its vectors of weights, which a filter of several taps seldom finds nearest."""

ASIDE = 10.0
"""About how many cycles it takes to set a vector of sums aside after a chunk, and to fetch it again."""

BEGUN = 3
"""So many tiles are worth a band less: each reads the weights again, and more rows twice."""


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
    skips: bool = False
    """Does a tile pass over taps that meet only padding for all of its pixels?"""

    @property
    def copies(self) -> bool:
        """Is the image copied first? It is where its padding is read, or where most of it is not read."""
        return self.always or not self.window.is_inside or self.window.is_sampled

    def is_weighed(self, machine: Machine) -> bool:
        """Are a tile's reads of the image, and the sums that it sets aside, counted with its products?"""
        is_wide = machine.lanes == 16 and not self.in_tiles
        by_block = not self.plain and not self.shuffled and self.groups == 1 and self.channels % machine.lanes == 0
        return is_wide and by_block and self.window.count > 1

    def shares(self, pixels: int, machine: Machine) -> bool:
        """Do the pixels of a tile of so many share an address? They do where it divides the rows, so that each tile is in one."""
        is_short = self.plain and self.window.is_any and machine.lanes == 16  # So few steps that dividing by the width counts.
        return (is_short or self.is_weighed(machine)) and is_multiple(self.window.out[1], pixels)

    def sharing(self, vectors: int, machine: Machine) -> int:
        """The pixels of a tile of so many vectors that share an address if rows turn out to be a multiple of them; 0 where tiles
        whose pixels have addresses of their own are as fast."""
        fitting = [pixels for pixels in SHARING if (pixels + 1) * vectors + 2 <= machine.registers]
        return fitting[0] if fitting and self.window.is_any and self.is_weighed(machine) else 0


@attrs.frozen(slots=True)
class Bands:
    """How the convolution is cut."""

    pixels: int
    """Pixels of a register tile."""
    vectors: int
    """Vectors of output channels of a register tile."""
    rows: Operand
    """Rows of a band."""
    tiles: Operand
    """Tiles of a band."""
    down: Operand
    """How many bands there are."""
    across: Operand
    """Into how many ranges the panels are cut."""
    chunk: int
    """Input channels that are walked in one go; 0: all."""
    copies: bool
    """Is the band copied, with zeros around it?"""
    parallel: bool
    """Is it work for several threads?"""
    shares: bool
    """Do the pixels of a tile share an address?"""
    sharing: int = 0
    """The pixels of the tile that is taken instead in images whose width is a multiple of them, so that they share an address; 0:
    there is none."""


def cut_bands(shape: Shape, machine: Machine) -> Bands:
    """The cut that should take the fewest cycles."""
    if shape.window.is_any:
        return _in_part(shape, machine)
    lanes, window = machine.lanes, shape.window
    blocks = math.ceil(shape.outs / lanes)
    pixels, vectors = _tile(shape, machine)
    reach = _mean_reach(shape, vectors, machine)
    chunk = _chunk(shape, reach, vectors, machine)
    products = shape.batch * shape.outs * window.pixels * reach * window.count
    parallel = machine.threads_for(products, CONVOLUTION_PRODUCTS) > 1
    tall = _tallest(shape, chunk or reach, pixels)
    panels = math.ceil(blocks / vectors)
    least = math.ceil(window.out[0] / tall)
    down, across = _even(window, least, pixels), 1
    if parallel:
        down, across = _for_threads(shape, pixels, panels, reach, least, machine.threads)
    rows = _rows(window, math.ceil(window.out[0] / down), pixels)
    down = math.ceil(window.out[0] / rows)
    tiles = math.ceil(rows * window.out[1] / pixels)
    return Bands(pixels, vectors, rows, tiles, down, across, chunk, shape.copies, parallel, shape.shares(pixels, machine))


def _in_part(shape: Shape, machine: Machine) -> Bands:
    """What is cut of images of any size before the kernel runs: the tile, as for large images, and the chunk. `cut_while_running`
    says the rest."""
    pixels, vectors = _tile(shape, machine)
    chunk = _chunk(shape, _mean_reach(shape, vectors, machine), vectors, machine)
    # Memory whose size is computed while the kernel runs is had by a task of its own alone, even where one thread runs them all.
    shares = shape.shares(pixels, machine)
    sharing = 0 if shares else shape.sharing(vectors, machine)
    return Bands(pixels, vectors, 1, 1, 1, 1, chunk, shape.copies, parallel=True, shares=shares, sharing=sharing)


def _large(sizes: Pair) -> Pair:
    """The sizes, those that are not known as many pixels as are whole tiles of most heights."""
    high, wide = [MANY if isinstance(size, Extent) else size for size in sizes]
    return high, wide


def _mean_reach(shape: Shape, vectors: int, machine: Machine) -> int:
    """How many input channels a panel reads."""
    read = reaches(shape.channels, shape.outs, shape.groups, vectors * machine.lanes)
    return sum(read) // len(read)


def cut_while_running(kernel: Kernel, shape: Shape, part: Bands, machine: Machine) -> Bands:
    """The cut of images of a size that the kernel is given: bands of rows whose copies stay in the second-level cache, as many
    for each thread; where the weights are larger than the image, ranges of panels before them. Rows and tiles are those of the
    tallest band."""
    window, threads, pixels = shape.window, machine.threads, part.pixels
    high, wide = (as_index(size) for size in window.out)
    tall = kept(kernel, "tall", _tallest_while_running(shape, part, machine))
    panels = math.ceil(math.ceil(shape.outs / machine.lanes) / part.vectors)
    across: Operand = 1
    if threads > 1 and panels > 1:
        image = as_index(shape.channels * math.prod(window.sizes))
        weights = shape.outs * _mean_reach(shape, part.vectors, machine) * window.count
        across = kept(kernel, "ranges", select(image < weights, as_index(min(threads, panels)), 1))
    each = (threads + across - 1) // across if isinstance(across, Value) else threads
    bands = kept(kernel, "bands", ((high + tall - 1) // tall + each - 1) // each * each)
    most = high // ((pixels + wide - 1) // wide)
    down = kept(kernel, "down", maximum(minimum(bands, most), 1))
    unit = _unit(window, pixels)
    tallest = kept(kernel, "tallest", ((high + (unit - 1)) // unit + down - 1) // down * unit)
    return attrs.evolve(part, rows=tallest, tiles=_tiles(tallest, wide, pixels), down=down, across=across)


def band_while_running(kernel: Kernel, window: Window, bands: Bands, band: Value) -> tuple[Value, Bands]:
    """The first row of a band of images of any size, and the cut with the rows and tiles of that band. No row belongs to two: the
    bands differ by one row, or by one tile where rows are single pixels."""
    high, wide = (as_index(size) for size in window.out)
    unit = _unit(window, bands.pixels)
    units = (high + (unit - 1)) // unit
    top = kept(kernel, "top", band * units // bands.down * unit)
    rows = kept(kernel, "rows", minimum((band + 1) * units // bands.down * unit, high) - top)
    return top, attrs.evolve(bands, rows=rows, tiles=_tiles(rows, wide, bands.pixels))


def _unit(window: Window, pixels: int) -> int:
    """The number of rows that bands have a multiple of: whole tiles where rows are single pixels."""
    return pixels if isinstance(window.out[1], int) and window.out[1] == 1 else 1


def _tiles(rows: Value, wide: Value, pixels: int) -> Value:
    return (rows * wide + (pixels - 1)) // pixels


def _tallest_while_running(shape: Shape, part: Bands, machine: Machine) -> Value:
    """The most rows of a band, as `_tallest` counts them."""
    window, share = shape.window, shape.held / 4
    chunk = part.chunk or _mean_reach(shape, part.vectors, machine)
    wide, written = as_index(window.sizes[1]), as_index(window.out[1])
    per_row = written * int(chunk * share) if window.is_sampled else wide * int(window.strides[0] * chunk * share)
    per_row = per_row + written * shape.outs if chunk < shape.channels else per_row
    above = wide * int(max(window.span[0] - window.strides[0], 0) * chunk * share)
    least = 2 * window.span[0] if shape.copies else 1
    return minimum(maximum((KEPT - above) // per_row, least), as_index(window.out[0]))


def _tile(shape: Shape, machine: Machine) -> tuple[int, int]:
    """Pixels and vectors of the register tile: enough sums to hide the latency, few wasted, few loads, sums seldom set aside."""
    blocks, window = math.ceil(shape.outs / machine.lanes), shape.window
    window = attrs.evolve(window, sizes=_large(window.sizes), out=_large(window.out))
    if shape.in_tiles:
        return min(MOST_ROWS, window.pixels), min(SUMS, blocks)
    is_weighed = shape.is_weighed(machine)

    def shares(pixels: int) -> bool:
        return shape.shares(pixels, machine)

    def cycles(pixels: int, vectors: int) -> float:
        spilled = SPILLED * max(pixels - CALM, 0) if vectors == 2 and not shares(pixels) else 0.0
        image = FIRST_READ * pixels * window.taps[0] / (machine.lanes * window.count)
        waited = image + WEIGHTS_READ * vectors if is_weighed else 0.0
        return max(pixels * vectors / PORTS, (pixels + vectors) / PORTS + 0.5, LATENCY) + 0.3 + spilled + waited

    def cost(tile: tuple[int, int]) -> float:
        pixels, vectors = tile
        read, rest = reaches(shape.channels, shape.outs, shape.groups, vectors * machine.lanes), blocks % vectors
        chunk = _chunk(shape, shape.channels, vectors, machine) if is_weighed else 0
        aside = ASIDE * (shape.channels // chunk - 1) * blocks * pixels / window.count if chunk else 0.0
        last = read.pop() * cycles(pixels, rest) if rest else 0
        walked = mean_seen(window, pixels) if shape.skips else 1.0
        return math.ceil(window.pixels / pixels) * ((sum(read) * cycles(pixels, vectors) + last) * walked + aside)

    choices = [
        (pixels, vectors)
        for vectors in range(1, min(blocks, machine.registers) + 1)
        for pixels in range(1, machine.registers)
        if pixels <= _most_pixels(window, vectors, machine) or shares(pixels)
        if pixels * vectors + vectors + 2 <= machine.registers and pixels <= window.pixels
    ]
    return choose("tile", choices, cost)


def _most_pixels(window: Window, vectors: int, machine: Machine) -> int:
    """The most pixels of a tile of so many vectors. Of one vector of 64 bytes, eight pixels hide the latency, and more of them
    make a loop that is longer than the processor decodes ahead."""
    if window.out[1] > 1:
        return ADDRESSES
    return machine.registers - 1 if vectors == 1 and machine.lanes < 16 else AHEAD


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


def _even(window: Window, least: int, pixels: int) -> int:
    """The number of bands, from the least up to twice as many, whose tiles are fewest: the last band begins within the one before
    where rows do not divide."""
    if least == 1:
        return 1

    def cost(down: int) -> int:
        return down * (math.ceil(_rows(window, math.ceil(window.out[0] / down), pixels) * window.out[1] / pixels) + BEGUN)

    return min(range(least, min(2 * least, window.out[0]) + 1), key=cost)


def _for_threads(shape: Shape, pixels: int, panels: int, reach: int, least: int, threads: int) -> tuple[int, int]:
    """Bands and ranges of panels: equal shares for the threads, few rows and panels twice, near inputs. Of
    any number of images, each is cut as if it came alone."""
    window = shape.window
    image = shape.channels * math.prod(window.sizes)
    weights = shape.outs * reach * window.count

    def cost(cut: tuple[int, int]) -> float:
        down, across = cut
        rows = math.ceil(window.out[0] / down)
        rounds = math.ceil(shape.images * down * across / threads)
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

    most = min(window.out[0], max(math.ceil(least / threads) * 2, 4) * threads)
    choices = [(down, across) for down in range(min(least, most), most + 1) for across in range(1, min(panels, 2 * threads) + 1)]
    return choose("cut", choices, cost)


def _rows(window: Window, rows: int, pixels: int) -> int:
    """The rows of a band: whole tiles where rows are single pixels."""
    if window.out[1] == 1:
        rows = math.ceil(rows / pixels) * pixels
    return min(max(rows, math.ceil(pixels / window.out[1])), window.out[0])
