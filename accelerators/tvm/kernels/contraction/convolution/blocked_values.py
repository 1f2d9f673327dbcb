"""The values of a task of a blocked convolution, of one of its panels, and of a tile; the addresses of its pixels, in the
image or the copy of a band with zeros around it, and the prefetches of data that it reads soon."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import attrs

from partita.accelerators.tvm.kernels.contraction.convolution.bands import TapRange
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_layer import BlockedLayer
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    address,
    float32,
    int32,
    int64,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import rounded, stored_bits
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.loops import kept, smaller
from partita.accelerators.tvm.kernels.shared.window import Sizes, Window
from partita.accelerators.tvm.machine.machine import LINE_LANES
from partita.accelerators.tvm.sizes.extent import Extent


@attrs.frozen(slots=True, eq=False)
class BandTask:
    """The values of a task."""

    n: Value
    """The image."""
    top: Value
    """The first row of the band."""
    across: Value
    """The index of the range of panels."""
    image: Buffer | None
    """The copy of the band; None if the image is read in place."""
    sums: Buffer | None
    """The memory for sums between chunks; None if there is one chunk."""


@attrs.frozen(slots=True, eq=False)
class BandPanel:
    """The values of a panel."""

    number: Value
    pixels: int
    """Number of pixels of its tiles."""
    vectors: int
    """Number of blocks of output channels."""
    chunk: Operand
    """The index of the current chunk of input channels."""
    local: Operand
    """Its index among the panels of the task."""
    shares: bool
    """True if the pixels of a tile share an address."""


@attrs.frozen(slots=True, eq=False)
class Reads:
    """The parts of the image that a tile reads."""

    addresses: list[Value]
    """For each of its pixels, the address of the first tap."""
    taps: tuple[TapRange, TapRange]
    """The rows and columns of taps that it computes."""


def pixel_addresses(
    kernel: Kernel, layer: BlockedLayer, copy: BandCopy, top: Value, base: Value, pixels: int, shares: bool
) -> list[Value]:
    """For each of `pixels` pixels from `base` on, the address of its first tap, in the band that begins at row `top`. If all are
    in one row (`shares`), they are static offsets from one address."""
    window, bands = layer.window, layer.bands
    if window.out[1] == 1 and not bands.copies:
        step = window.strides[0] * window.sizes[1]
        return [kernel.name_value(f"at{p}", (top + base + p) * step) for p in range(pixels)]
    name, above = partial(kept, kernel, is_kept=window.is_any), 0 if bands.copies else top
    down, step = copy.strides[0] * (copy.wide if bands.copies else window.sizes[1]), copy.strides[1]
    if shares:
        first = name("at", (above + base // window.out[1]) * down + base % window.out[1] * step)
        return [first + p * step for p in range(pixels)]
    if isinstance(window.out[1], Extent) or _is_walked(layer):
        return _walked(kernel, as_index(window.out[1]), above, base, down, step, pixels)
    at = [base + p for p in range(pixels)]
    return [name(f"at{p}", (above + a // window.out[1]) * down + a % window.out[1] * step) for p, a in enumerate(at)]


def _is_walked(layer: BlockedLayer) -> bool:
    """True if addresses in rows of a static width are derived from one another. Otherwise LLVM computes several similar ones in a
    vector and extracts them at each tap, which takes a quarter more time (but not for AVX-512)."""
    return layer.lanes < LINE_LANES and layer.channels.by_block and layer.window.count > 1


def _walked(kernel: Kernel, wide: Value, above: Operand, base: Value, down: Operand, step: int, pixels: int) -> list[Value]:
    """The addresses, each derived from the one before: rows of dynamic width would need slow divisions."""
    name = partial(kept, kernel)
    row, column = name("row", base // wide), name("column", base % wide)
    addresses, over = [name("at0", (above + row) * down + column * step)], name("over", as_index(down) - (wide - 1) * step)
    for p in range(1, pixels):
        is_last = column.equals(wide - 1)
        addresses.append(name(f"at{p}", addresses[-1] + select(is_last, over, step)))
        column = name(f"column{p}", select(is_last, 0, column + 1))
    return addresses


@attrs.frozen(slots=True)
class BandCopy:
    """A copy of the rows that a band reads: [block, row, column, lane]."""

    window: Window
    """The window of the convolution."""
    rows: Operand
    """Number of rows of the result in the band."""
    blocks: int
    """Number of blocks in the copy, or of channels of a plain image."""
    lanes: int
    """Number of channels of a block; 1 for a plain image."""
    is_plain: bool
    """True if the image is [N, C, H, W]."""
    is_chunk: bool
    """True if the blocks are those of one chunk."""
    stored_as: Element = float32
    """The element type to which elements are rounded; the copy may store them in another."""

    @property
    def numbers(self) -> Operand:
        """Number of elements of the copy."""
        return self.down * self.wide * (self.blocks * self.lanes)

    @property
    def down(self) -> Operand:
        """Number of rows of the copy."""
        return (self.rows - 1) * self.strides[0] + self.window.span[0]

    @property
    def wide(self) -> int:
        """Number of columns of the copy."""
        return (self.window.out[1] - 1) * self.strides[1] + self.window.span[1]

    @property
    def strides(self) -> Sizes:
        """The distances in the copy between the inputs of neighbouring results."""
        return (1, 1) if self.window.is_sampled else self.window.strides

    def write(
        self, kernel: Kernel, source: Buffer | JoinedBlocks, into: Buffer, n: Operand, top: Operand, chunk: Operand
    ) -> None:
        """Fills the copy, for image n and the band that begins at row `top` of the result."""
        window = self.window

        def copied(position: Operand, number: Value) -> None:
            into[position] = stored_bits(rounded(number, self.stored_as), into.element)

        every = window.strides if window.is_sampled else (1, 1)
        left, inside = self._columns(every[1])
        with kernel.loop(self.blocks, "c") as c, ExitStack() as inside_of_block:
            number = self._reader(inside_of_block, kernel, source, n, chunk * self.blocks + c if self.is_chunk else c)
            r = inside_of_block.enter_context(kernel.loop(self.down, "r"))
            row = kept(kernel, "row", top * window.strides[0] + r * every[0] - window.before[0], window.is_any)
            with kernel.when((row >= 0) & (row < window.sizes[0])):
                self._zeros(kernel, into, c, r, 0, left)
                with kernel.loop(inside, "e") as e:
                    position = self._position(c, r, left + e)
                    if self.is_plain:
                        copied(position, number(row, e * every[1]))
                    else:
                        with kernel.lanes(self.lanes) as lane:
                            copied(position + lane, number(row * window.sizes[1] + e * every[1], lane))
                self._zeros(kernel, into, c, r, left + inside, self.wide - left - inside)
            with kernel.otherwise():
                self._zeros(kernel, into, c, r, 0, self.wide)

    @staticmethod
    def _reader(
        loops: ExitStack, kernel: Kernel, source: Buffer | JoinedBlocks, n: Operand, block: Value
    ) -> Callable[[Operand, Operand], Value]:
        """The function that reads an element of this block, or plain channel: by pixel and lane, or by row and column."""
        if isinstance(source, Buffer):
            return lambda first, second: source[n, block, first, second]
        seen, image = loops.enter_context(source.seen(kernel, n, block))
        return lambda pixel, lane: seen[image, pixel, lane]

    def _columns(self, every: int) -> tuple[Operand, Operand]:
        """Number of columns of zeros before those of the image, and number of columns of the image."""
        before, own = self.window.before[1], self.window.sizes[1]
        if not isinstance(own, Extent):
            left = min(before, self.wide)
            return left, max(min(-(-own // every), self.wide - left), 0)
        left_of_all = smaller(before, self.wide)
        return left_of_all, minimum((as_index(own) + (every - 1)) // every, as_index(self.wide) - left_of_all)

    def _position(self, c: Value, r: Value, column: Operand) -> Value:
        return ((c * self.down + r) * self.wide + column) * self.lanes

    def _zeros(self, kernel: Kernel, into: Buffer, c: Value, r: Value, start: Operand, count: Operand) -> None:
        with kernel.loop(count * self.lanes, "z") as z:
            into[self._position(c, r, start) + z] = 0.0


LINE = 64
"""Bytes of a cache line."""

LEAST_SHARE = 0.4
"""The next panel is prefetched if a step (a tap, or a block of input channels) has at least this share of its lines."""


@attrs.frozen(slots=True, eq=False)
class Fetching:
    """Writes the prefetches of a step of a tile."""

    layer: BlockedLayer
    kernel: Kernel
    source: Buffer
    """The image."""
    weight: Buffer
    writer: Writer

    def weights(self, panel: BandPanel, tile: Value, step: Operand, steps: int, width: int) -> None:
        """Prefetches one step's share of the next panel's weights."""
        channels, lines = self.layer.channels, self.lines(steps, width)
        if not lines:
            return
        following = channels.offset(self.layer.window.count, panel.number, panel.chunk) + self._weights(width)
        with self.kernel.unroll(lines, "q") as q:
            line = (tile * steps + step) * lines + q
            self.kernel.prefetch(self.weight[following + line * (LINE // self.layer.size)])

    def pixels(self, task: BandTask, panel: BandPanel, reads: Reads, block: Value) -> None:
        """Prefetches the pixels of a block of channels that the next tile reads."""
        if not self._walks_pixels:
            return
        for first in reads.addresses:
            self.kernel.prefetch(self.source[task.n, block, first + panel.pixels, 0])

    def beside(self, task: BandTask, panel: BandPanel, base: Value, step: Value, steps: int) -> None:
        """Prefetches one step's share of the epilogue's inputs for the tile, such as a residual."""
        after, channels = self.writer.after, self.layer.channels
        if not self._walks_pixels or channels.chunks > 1:
            return
        share = math.ceil(panel.pixels * panel.vectors / steps)
        for position in [position for position, shape in after.operands.items() if shape == after.results]:
            with self.kernel.unroll(share, "q") as q:
                number = step * share + q
                block, pixel = panel.number * self.layer.bands.vectors + number // panel.pixels, number % panel.pixels
                at = task.n, block, task.top + base + pixel, 0
                self.kernel.prefetch(self.writer.inputs[position][at])

    @property
    def _walks_pixels(self) -> bool:
        """True if each tile reads neighbouring pixels of the image in place, and the image is larger than the weights."""
        layer, window = self.layer, self.layer.window
        is_larger = isinstance(window.pixels, Extent) or window.pixels > layer.channels.outs
        return layer.lanes == LINE_LANES and window.is_flat and is_larger and not layer.bands.copies and layer.channels.by_block

    def lines(self, steps: int, width: int) -> int:
        """Number of lines of the next panel's weights that each of a tile's steps prefetches; 0 if there are far more steps than
        lines, as if many tiles come before that panel."""
        if not self.layer.channels.by_block or not isinstance(self.layer.bands.tiles, int):
            return 0
        share = self._weights(width) * self.layer.size // LINE / (self.layer.bands.tiles * steps)
        return math.ceil(share) if share >= LEAST_SHARE else 0

    def _weights(self, width: int) -> int:
        """Number of weights of one chunk in a panel of `width` output channels."""
        return self.layer.channels.chunk * self.layer.window.count * width


@attrs.frozen(slots=True, eq=False)
class JoinedBlocks:
    """The concatenation of several blocked values, read in place by a table of its blocks."""

    sources: Sequence[Buffer]
    """Buffers [batch, blocks, pixels, lanes] that differ in the number of blocks only."""
    addresses: Buffer
    """For each block of the concatenation, its address in the first image."""
    counts: Buffer
    """For each block of the concatenation, the number of blocks of the value that it comes from."""

    @classmethod
    def of(cls, kernel: Kernel, sources: Sequence[Buffer]) -> JoinedBlocks:
        """Builds the table for these values, once, at this point of the kernel."""
        blocks = sum(source.sizes[1] for source in sources)
        addresses, counts = kernel.stack("addresses", int64, (blocks,)), kernel.stack("counts", int32, (blocks,))
        start = 0
        for source in sources:
            own = source.sizes[1]
            with kernel.loop(own, "own") as block:
                addresses[start + block] = address(source[0, block, 0, 0])
                counts[start + block] = own
            start += own
        return cls(sources, addresses, counts)

    @contextmanager
    def seen(self, kernel: Kernel, n: Operand, block: Value) -> Iterator[tuple[Buffer, Operand]]:
        """A scope that reads a block of the concatenation: a buffer [image, pixel, lane], and the index in it of image n."""
        batch, _, pixels, lanes = self.sources[0].sizes
        blocks = math.prod((batch, sum(source.sizes[1] for source in self.sources)))
        with kernel.seen_at("source", self.addresses[block], self.sources[0].element, (blocks, pixels, lanes)) as source:
            yield source, n * self.counts[block].as_index()
