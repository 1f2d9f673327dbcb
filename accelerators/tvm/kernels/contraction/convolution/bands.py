"""The cut of a convolution: register tiles, bands of rows, ranges of panels, chunks of input channels.

It follows from the caches of a core: a panel's weights of one chunk fit L1, a band's copy and sums fit L2. For threads, rows are
split first if the image is larger than the weights, so that a thread keeps its slice of the image from layer to layer; else
panels are.

Taps that meet only padding for all pixels of a tile are skipped: of 3 x 3 taps with dilation 12, a pixel in the corner of an
image of 14 x 14 uses only four. The rows and the columns of taps that a tile uses are contiguous."""

from __future__ import annotations

import math

import attrs

from partita.accelerators.tvm.kernels.contraction.amx import MOST_ROWS, SUMS
from partita.accelerators.tvm.kernels.contraction.convolution.channels import reaches
from partita.accelerators.tvm.kernels.contraction.panels import MANY, step_cycles
from partita.accelerators.tvm.kernels.contraction.tile_table import REGISTER_TILES, SHARED_PIXELS
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, maximum, minimum, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.loops import kept, larger, smaller, starts
from partita.accelerators.tvm.kernels.shared.window import Convolved, Window
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import CONVOLUTION_PRODUCTS
from partita.accelerators.tvm.sizes.extent import is_multiple

NEAR = 1200
"""Number of steps whose weights fit L1 beside other data, for a panel of 64 bytes."""

KEPT = 160 * 1024
"""Number of elements that a task may keep in L2."""

ADDRESSES = 8
"""Maximum number of pixels of a tile that are not contiguous: each keeps its address in a register."""

AHEAD = 8
"""Maximum number of contiguous pixels of a tile of several vectors. With more, LLVM broadcasts so many pixels in advance that
registers spill."""

CALM = 6
"""Maximum number of pixels of a tile of two vectors for which LLVM keeps everything in registers."""

SPILLED = 0.5
"""Estimated extra cycles of a step for each pixel beyond that."""

FIRST_READ = 2.0
"""Estimated cycles that a tile waits for a line of the image that no tile before it has read."""

WEIGHTS_READ = 0.05
"""Estimated cycles that a step waits for each of its vectors of weights, which are seldom in L1 for a filter of several taps."""

ASIDE = 10.0
"""Estimated cycles to store a vector of sums after a chunk, and to load it again."""

BEGUN = 3
"""Cost of a band, in tiles: each band reads the weights again, and some rows twice."""


@attrs.frozen(slots=True)
class BlockedShape(Convolved):
    """A convolution of floats in the blocked layout."""

    plain: bool
    shuffled: bool
    size: int = 4
    """Bytes of a weight."""
    held: int = 4
    """Bytes of an element of the copy."""
    always: bool = False
    """True if the image is always copied, since tiles read another element type."""
    in_tiles: bool = False
    """True if sums are kept in tiles of the matrix unit."""
    skips: bool = False
    """True if a tile skips taps that meet only padding for all of its pixels."""

    @property
    def copies(self) -> bool:
        """True if the image is copied first: if its padding is read, or if most of it is not read."""
        return self.always or not self.window.is_inside or self.window.is_sampled

    def is_weighed(self, machine: Machine) -> bool:
        """True if the cost of a tile includes its reads of the image and the sums that it stores between chunks."""
        is_wide = machine.fills_lines and not self.in_tiles
        by_block = not self.plain and not self.shuffled and self.groups == 1 and self.channels % machine.lanes == 0
        return is_wide and by_block and self.window.count > 1

    def shares(self, pixels: int, machine: Machine) -> bool:
        """True if the pixels of a tile share an address: if `pixels` divides the rows, so that each tile lies in one row."""
        is_short = self.plain and self.window.is_any and machine.fills_lines  # With few steps, divisions by the width matter.
        return (is_short or self.is_weighed(machine)) and is_multiple(self.window.out[1], pixels)

    def sharing(self, vectors: int, machine: Machine) -> int:
        """Pixels of a tile with one address, for a dynamic width that turns out to be a multiple of them; 0 if tiles with
        separate addresses are as fast."""
        fitting = [pixels for pixels in SHARED_PIXELS if (pixels + 1) * vectors + 2 <= machine.registers]
        return fitting[0] if fitting and self.window.is_any and self.is_weighed(machine) else 0


@attrs.frozen(slots=True)
class Bands:
    """The cut of a convolution."""

    pixels: int
    """Number of pixels of a register tile."""
    vectors: int
    """Number of vectors of output channels of a register tile."""
    rows: Operand
    """Number of rows of a band."""
    tiles: Operand
    """Number of tiles of a band."""
    down: Operand
    """Number of bands."""
    across: Operand
    """Number of ranges of panels."""
    chunk: int
    """Number of input channels of a chunk; 0: all."""
    copies: bool
    """True if the band is copied, with zeros around it."""
    parallel: bool
    """True if several threads share the work."""
    shares: bool
    """True if the pixels of a tile share an address."""
    sharing: int = 0
    """Number of pixels of the tile that is used instead if the image's width is a multiple of it, so that they share an address;
    0: no such tile."""


def cut_bands(shape: BlockedShape, machine: Machine) -> Bands:
    """The cut with the fewest estimated cycles."""
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


def _in_part(shape: BlockedShape, machine: Machine) -> Bands:
    """The part of the cut of dynamic images that is fixed at compile time: the tile, as for large images, and the chunk.
    `cut_while_running` adds the rest."""
    pixels, vectors = _tile(shape, machine)
    chunk = _chunk(shape, _mean_reach(shape, vectors, machine), vectors, machine)
    # Only a parallel task has memory of dynamic size of its own, even if one thread runs all tasks.
    shares = shape.shares(pixels, machine)
    sharing = 0 if shares else shape.sharing(vectors, machine)
    return Bands(pixels, vectors, 1, 1, 1, 1, chunk, shape.copies, parallel=True, shares=shares, sharing=sharing)


def _mean_reach(shape: BlockedShape, vectors: int, machine: Machine) -> int:
    """Mean number of input channels that a panel reads."""
    read = reaches(shape.channels, shape.outs, shape.groups, vectors * machine.lanes)
    return sum(read) // len(read)


def cut_while_running(kernel: Kernel, shape: BlockedShape, part: Bands, machine: Machine) -> Bands:
    """The cut of dynamic images, computed at run time: bands of rows whose copies stay in L2, the same number for each thread. If
    the weights are larger than the image, threads share ranges of panels first. Rows and tiles are those of the tallest band."""
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
    """The first row of a band of dynamic images, and the cut with the rows and tiles of that band. Bands do not overlap: they
    differ by one row, or by one tile if rows are single pixels."""
    high, wide = (as_index(size) for size in window.out)
    unit = _unit(window, bands.pixels)
    units = (high + (unit - 1)) // unit
    top = kept(kernel, "top", band * units // bands.down * unit)
    rows = kept(kernel, "rows", minimum((band + 1) * units // bands.down * unit, high) - top)
    return top, attrs.evolve(bands, rows=rows, tiles=_tiles(rows, wide, bands.pixels))


def _unit(window: Window, pixels: int) -> int:
    """A band's number of rows is a multiple of this: the pixels of a tile if rows are single pixels, else 1."""
    return pixels if isinstance(window.out[1], int) and window.out[1] == 1 else 1


def _tiles(rows: Value, wide: Value, pixels: int) -> Value:
    return (rows * wide + (pixels - 1)) // pixels


def _tallest_while_running(shape: BlockedShape, part: Bands, machine: Machine) -> Value:
    """Maximum number of rows of a band, as in `_tallest`, computed at run time."""
    window, share = shape.window, shape.held / 4
    chunk = part.chunk or _mean_reach(shape, part.vectors, machine)
    wide, written = as_index(window.sizes[1]), as_index(window.out[1])
    per_row = written * int(chunk * share) if window.is_sampled else wide * int(window.strides[0] * chunk * share)
    per_row = per_row + written * shape.outs if chunk < shape.channels else per_row
    above = wide * int(max(window.span[0] - window.strides[0], 0) * chunk * share)
    least = 2 * window.span[0] if shape.copies else 1
    return minimum(maximum((KEPT - above) // per_row, least), as_index(window.out[0]))


def _tile(shape: BlockedShape, machine: Machine) -> tuple[int, int]:
    """Pixels and vectors of the register tile: enough sums to hide the latency, few wasted, few loads, sums seldom stored."""
    blocks, window = math.ceil(shape.outs / machine.lanes), shape.window
    window = window.with_sizes(MANY)  # For dynamic images, the tile that is fastest for a large one.
    if shape.in_tiles:
        return min(MOST_ROWS, window.pixels), min(SUMS, blocks)
    is_weighed = shape.is_weighed(machine)

    def shares(pixels: int) -> bool:
        return shape.shares(pixels, machine)

    def cycles(pixels: int, vectors: int) -> float:
        spilled = SPILLED * max(pixels - CALM, 0) if vectors == 2 and not shares(pixels) else 0.0
        image = FIRST_READ * pixels * window.taps[0] / (machine.lanes * window.count)
        waited = image + WEIGHTS_READ * vectors if is_weighed else 0.0
        return step_cycles(pixels, vectors, addresses=0.5) + 0.3 + spilled + waited

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
        for pixels, vectors in REGISTER_TILES["blocked convolution of float32"].sizes(machine)
        if vectors <= blocks and pixels <= window.pixels
        if pixels <= _most_pixels(window, vectors, machine) or shares(pixels)
    ]
    return choose("tile", choices, cost)


def _most_pixels(window: Window, vectors: int, machine: Machine) -> int:
    """Maximum number of pixels of a tile of `vectors` vectors. With one vector of 64 bytes, eight pixels hide the latency;
    more make the loop too long for the processor's decoder."""
    if window.out[1] > 1:
        return ADDRESSES
    return machine.registers - 1 if vectors == 1 and not machine.fills_lines else AHEAD


def _chunk(shape: BlockedShape, reach: int, vectors: int, machine: Machine) -> int:
    """Number of input channels of a chunk: whole blocks that divide them and fit L1; 0: no chunks."""
    near = NEAR * 16 // (vectors * machine.lanes) * 4 // shape.size
    if shape.plain or shape.shuffled or shape.groups > 1 or reach % machine.lanes or reach * shape.window.count <= 2 * near:
        return 0
    blocks = reach // machine.lanes
    best = max(d for d in range(1, blocks + 1) if blocks % d == 0 and (d == 1 or d * machine.lanes * shape.window.count <= near))
    return 0 if best == blocks else best * machine.lanes


def _tallest(shape: BlockedShape, chunk: int, pixels: int) -> int:
    """Maximum number of rows of a band whose copy, or input, and sums stay in L2."""
    window, part = shape.window, shape.held / 4
    wide = window.out[1] if window.is_sampled else window.sizes[1] * window.strides[0]
    per_row = int(wide * chunk * part) + (window.out[1] * shape.outs if chunk < shape.channels else 0)
    above = int(max(window.span[0] - window.strides[0], 0) * window.sizes[1] * chunk * part)
    return max(
        1, min(window.out[0], (KEPT - above) // max(per_row, 1)), min(window.out[0], 2 * window.span[0] if shape.copies else 1)
    )


def _even(window: Window, least: int, pixels: int) -> int:
    """The number of bands, from `least` to twice as many, with the fewest tiles. If it does not divide the rows, the last band
    overlaps the one before."""
    if least == 1:
        return 1

    def cost(down: int) -> int:
        return down * (math.ceil(_rows(window, math.ceil(window.out[0] / down), pixels) * window.out[1] / pixels) + BEGUN)

    return min(range(least, min(2 * least, window.out[0]) + 1), key=cost)


def _for_threads(shape: BlockedShape, pixels: int, panels: int, reach: int, least: int, threads: int) -> tuple[int, int]:
    """Number of bands and of ranges of panels, so that threads have equal shares, few rows and panels are computed twice, and
    inputs stay in near caches. A dynamic batch is cut as for one image."""
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
    """Number of rows of a band: whole tiles if rows are single pixels."""
    if window.out[1] == 1:
        rows = math.ceil(rows / pixels) * pixels
    return min(max(rows, math.ceil(pixels / window.out[1])), window.out[0])


@attrs.frozen(slots=True, eq=False)
class TapRange:
    """A range of rows, or columns, of taps."""

    first: Operand
    """The first one."""
    count: Operand
    """Number of them."""


def all_taps(window: Window) -> tuple[TapRange, TapRange]:
    """All rows and columns of the window."""
    rows, columns = window.taps
    return TapRange(0, rows), TapRange(0, columns)


def seen_taps(kernel: Kernel, window: Window, first: Value, pixels: int) -> tuple[TapRange, TapRange]:
    """The rows and columns of taps that meet the image for one of `pixels` neighbouring results, from `first` on. Results in
    several rows count as being in every column."""
    wide = window.out[1]
    last = first + (pixels - 1)
    is_one_row = (first // wide).equals(last // wide)
    left, right = select(is_one_row, first % wide, 0), select(is_one_row, last % wide, wide - 1)
    rows, columns = _ends(window, 0, first // wide, last // wide), _ends(window, 1, left, right)
    return _kept(kernel, "rows", *rows), _kept(kernel, "columns", *columns)


def _kept(kernel: Kernel, name: str, first: Operand, end: Operand) -> TapRange:
    """The range of taps from `first` to `end`, computed once per tile."""
    begin = kept(kernel, f"first_of_{name}", first)
    return TapRange(begin, kept(kernel, f"count_of_{name}", larger(end - begin, 0)))


def mean_seen(window: Window, pixels: int) -> float:
    """Mean share of all taps that tiles of this many pixels compute with `seen_taps`."""
    wide, seen = window.out[1], 0
    tiles = starts(window.pixels, pixels)
    for first in tiles:
        last = first + pixels - 1
        left, right = (first % wide, last % wide) if first // wide == last // wide else (0, wide - 1)
        seen += _count(*_ends(window, 0, first // wide, last // wide)) * _count(*_ends(window, 1, left, right))
    return seen / (len(tiles) * window.count)


def _count(first: Operand, end: Operand) -> int:
    """Number of taps from `first` to `end`, both static."""
    assert isinstance(first, int) and isinstance(end, int)
    return max(end - first, 0)


def _ends(window: Window, i: int, low: Operand, high: Operand) -> tuple[Operand, Operand]:
    """The first tap of dimension i that meets the image for a result from `low` to `high`, and the end of these taps."""
    before, stride, apart, taps = window.before[i], window.strides[i], window.dilations[i], window.taps[i]
    outside, reached = larger(before - high * stride, 0), larger(window.sizes[i] + before - low * stride, 0)
    return smaller((outside + (apart - 1)) // apart, taps), smaller((reached + (apart - 1)) // apart, taps)
