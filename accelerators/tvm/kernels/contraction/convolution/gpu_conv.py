"""Convolutions on a GPU as matrix products: rows are output channels, columns are the pixels of all images, and the depth is the
taps of all input channels. The matrix of pixels is never stored: threads read the image at the taps.

If each output channel has a group of its own there is no matrix product: a thread computes one result, and neighbouring threads
read neighbouring pixels. Two-byte elements are loaded and stored as they are, and summed in float32."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of
from partita.accelerators.tvm.kernels.contraction.convolution.layer import NormedImage, draft_layer
from partita.accelerators.tvm.kernels.contraction.gpu_operands import PackedTiles, Side, Source, Spot, spots, widest_read
from partita.accelerators.tvm.kernels.contraction.gpu_product import has_tensor_cores, own_thread, write_tile
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import (
    WIDTH,
    BlockTile,
    TensorTile,
    fastest,
    tensor_tiles,
    tiles,
    works_of,
)
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, all_of, element_named, float32, if_inside
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.kernels.shared.window import Convolved, flat, is_convolution
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_less, is_multiple
from partita.graph.node import Node
from partita.graph.types import Array, dtype_name


def gpu_convolution(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with constant weights and its epilogue, of a value or of a normed image; None for any other
    body, and for depthwise convolutions, which are not products."""
    size = bytes_on_tensor_cores(body, machine, is_convolution)
    normed = NormedImage.of(next(filter(is_convolution, body.ops)), Problem.of(body))

    def cut(image: Convolved) -> TiledConvolution | None:
        return None if image.outs == image.groups else TiledConvolution(image, best_tile(image, machine, size), normed)

    return draft_layer(body, "gpu_convolution_on_tensor_cores" if size else "gpu_convolution", cut, normed)


def bytes_on_tensor_cores(body: Body, machine: Machine, is_root: Callable[[Node], bool]) -> int:
    """Bytes of the elements that the body's root multiplies, if tensor cores support them; else 0."""
    roots = [node for node in body.ops if is_root(node)]
    elements = [element_named(element_of(entry)) for node in roots for entry in node.inputs[:2] if entry is not None]
    return elements[0].bits // 8 if has_tensor_cores(machine, *elements) else 0


def best_tile(image: Convolved, machine: Machine, size: int, kinds: int = 1) -> BlockTile | TensorTile:
    """The fastest cut of those whose threads stay in one column; on tensor cores, for elements of `size` bytes, unless that is 0.
    For dynamic images it is the best over typical numbers of pixels, and fewer and more. Output channels of `kinds` kinds share
    no tile."""
    gpu, works = machine.gpu, works_of(image, size or 4, kinds)
    listed: Iterator[BlockTile | TensorTile] = tensor_tiles(gpu, size) if size else tiles(gpu)
    return fastest([tile for tile in listed if tile.slice_threads % tile.columns == 0], works, gpu)


@attrs.frozen(slots=True, eq=False)
class Band:
    """The rows of a block, which are output channels of one group, and their filter. The latter depends on the block if not all
    channels have the same."""

    top: Value
    """The first row."""
    rows: Operand
    """Number of rows of all blocks."""
    filter: tuple[Operand, ...]
    """The filter's spatial sizes."""
    before: tuple[Operand, ...]
    """The padding before the first pixel."""
    depth: Operand
    """Number of products in each sum."""


Place = tuple[Value, Value, Value]
"""An image of the batch, a row among those of a block's group and kind, and a pixel."""


@attrs.frozen(slots=True, eq=False)
class TiledConvolution:
    """A convolution and its cut."""

    image: Convolved
    tile: BlockTile | TensorTile
    normed: NormedImage | None = None
    """The norm that is applied to the image before the product, if any."""

    @property
    def by_taps(self) -> bool:
        """True if the depth is ordered [tap, channel], so that a step has one tap; otherwise it is [channel, tap]."""
        return self.image.inner % self.tile.depth == 0

    @property
    def widths(self) -> Sequence[int]:
        """Numbers of rows that share no tile with others."""
        return (self.image.own,)

    @property
    def packed(self) -> PackedTiles:
        """The weights as an operand."""
        return PackedTiles(self.tile, self.tile.rows, self.image.groups, self.widths, self.image.depth)

    @property
    def weights(self) -> int:
        """Number of elements of the packed weights."""
        return self.packed.numbers

    def pack(self, array: Array) -> Array:
        """The weights in tiles."""
        return self.packed.pack((map(self._ordered, rows) for rows in self.rows_of(array)), dtype_name(array.dtype))

    def rows_of(self, array: Array) -> Iterable[Sequence[Array]]:
        """For each group its rows [output channel, channel, tap], in parts of these widths."""
        return ([rows] for rows in array.reshape(self.image.groups, self.image.own, self.image.inner, -1))

    def _ordered(self, rows: Array) -> Array:
        """The rows as a matrix [depth, output channel]."""
        return rows.transpose((2, 1, 0) if self.by_taps else (1, 2, 0)).reshape(-1, len(rows))

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """Launches a block for each tile of each group."""
        image, tile, packed = self.image, self.tile, self.packed
        columns = image.batch * image.window.pixels
        with kernel.launch((parts_of(columns, tile.columns), packed.count, image.groups), tile.threads) as (
            block, number, group, thread,
        ):
            own, band = own_thread(tile, thread), self.band(kernel, number)

            def store(total: Value, row: Value, column: Value) -> None:
                pixel = block * tile.columns + column
                at = pixel // image.window.pixels, band.top + row, pixel % image.window.pixels
                self.store(kernel, writer, total, band, group, at)

            bounds = (
                None if isinstance(band.rows, int) and band.rows % tile.rows == 0 else as_index(band.rows) - band.top,
                None if is_multiple(columns, tile.columns) else as_index(columns) - block * tile.columns,
            )
            pixels = self._pixels(kernel, source, own, block, group, band, writer.inputs)
            weights = packed.side(own, weight, group * packed.count + number)
            steps = parts_of(band.depth, tile.depth * tile.slices)
            write_tile(kernel, tile, thread, (weights, pixels), steps, store, bounds)

    def band(self, kernel: Kernel, number: Value) -> Band:
        """The rows of the blocks with this index."""
        return Band(number * self.tile.rows, self.image.own, self.image.window.taps, self.image.window.before, self.image.depth)

    def store(self, kernel: Kernel, writer: Writer, total: Value, band: Band, group: Value, at: Place) -> None:
        """Writes a sum at its image, row and pixel."""
        picture, row, pixel = at
        writer.store(total, (picture, group * self.image.own + row, pixel))

    def _pixels(
        self, kernel: Kernel, source: Buffer, own: Value, block: Value, group: Value, band: Band, inputs: Sequence[Buffer]
    ) -> Side:
        """The image as an operand: each thread always reads the same column."""
        tile, normed = self.tile, self.normed
        lanes = widest_read(tile, source, self.image.window.pixels) if self._is_plain else 1
        lanes = lanes if normed is None else min(lanes, WIDTH)
        listed = spots(tile, own, tile.columns, lanes, turned=False)
        taps = self._taps(kernel, listed[0], block, group, band)
        side = Side(source, tile.columns, tile.depth, listed, lanes, taps, turned=False)
        if normed is None:
            return side
        return attrs.evolve(side, change=lambda numbers, read_from: normed.numbers(numbers, inputs, read_from.position[1]))

    @property
    def _is_plain(self) -> bool:
        """True if the columns are contiguous in memory."""
        return self.image.window.is_single and all(stride == 1 for stride in self.image.window.strides)

    def _taps(self, kernel: Kernel, first: Spot, block: Value, group: Value, band: Band) -> Callable[[Value, Spot], Source]:
        """The function that maps a spot to its position in the image; the spot's column is always that of the first spot."""
        image, tile, packed = self.image, self.tile, self.packed
        column = kernel.name_value("column", block * tile.columns + first.at)
        pixel = kept(kernel, "pixel", column % image.window.pixels, image.is_any)
        picture = kept(kernel, "picture", column // image.window.pixels, image.is_any)
        corner = [
            kept(kernel, f"corner{d}", image.window.coordinate(pixel, d) * image.window.strides[d] - band.before[d], image.is_any)
            for d in range(len(image.window.sizes))
        ]
        taps = math.prod(band.filter)
        is_whole = is_multiple(image.batch * image.window.pixels, tile.columns)
        in_columns = [] if is_whole else [column < image.batch * image.window.pixels]

        def source(step: Value, spot: Spot) -> Source:
            k = step * tile.depth + spot.k
            if self.by_taps:
                per_tap = self.image.inner // tile.depth
                tap, channel = step // per_tap, step % per_tap * tile.depth + spot.k
            else:
                tap, channel = k % taps, k // taps
            positions = [at + shift for at, shift in zip(corner, self._shifts(tap, band.filter), strict=True)]
            tests = list(in_columns)
            if not isinstance(band.depth, int) or packed.steps * tile.depth != band.depth:
                tests.append(k < band.depth)
            if not image.window.is_single:
                for position, size in zip(positions, image.window.sizes, strict=True):
                    tests += [position >= 0, position < size]
            at = (picture, group * self.image.inner + channel, flat(positions, image.window.sizes))
            return Source(at, all_of(tests) if tests else None)

        return source

    def _shifts(self, tap: Value, sizes: Sequence[Operand]) -> list[Operand]:
        """The distance of a tap from the first, along each dimension of a filter of these sizes."""
        shifts: list[Operand] = []
        for d, (size, dilation) in enumerate(zip(sizes, self.image.window.dilations, strict=True)):
            behind = math.prod(sizes[d + 1 :])
            at = tap if _is_one(behind) else tap // behind
            shifts.append(0 if _is_one(size) else at % size * dilation)
        return shifts


def _is_one(size: Operand) -> bool:
    return isinstance(size, int) and size == 1


MOST_TAPS = 81
"""Maximum number of taps for this kernel, which unrolls them."""


def gpu_depthwise(body: Body, machine: Machine) -> Draft | None:
    """The kernel for such a convolution with constant weights and its epilogue; None for any other body."""

    def cut(image: Convolved) -> _GpuDepthwise | None:
        is_ours = image.outs == image.groups and image.window.count <= MOST_TAPS
        return _GpuDepthwise(image, machine.gpu) if is_ours else None

    return draft_layer(body, "gpu_depthwise", cut)


@attrs.frozen(slots=True)
class _GpuDepthwise:
    """One such convolution and its cut."""

    image: Convolved
    gpu: Gpu

    @property
    def weights(self) -> int:
        """Number of elements of the weights."""
        return self.image.outs * self.image.depth

    def pack(self, array: Array) -> Array:
        """The weights, flat."""
        return array.reshape(-1)

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """Launches one thread per result."""
        image = self.image
        count = image.batch * image.outs * image.window.pixels
        with each_item(kernel, count, self.gpu) as item:
            pixel = kept(kernel, "pixel", item % image.window.pixels, image.is_any)
            channel = kept(kernel, "channel", item // image.window.pixels % image.outs, image.is_any)
            picture = kept(kernel, "picture", item // (image.window.pixels * image.outs), image.is_any)
            total = self._total(kernel, source, weight, picture, channel, pixel)
            writer.store(total, (picture, channel, pixel))

    def _total(
        self, kernel: Kernel, source: Buffer, weight: Buffer, picture: Value, channel: Value, pixel: Value
    ) -> Value:
        """The sum of a result: a loop over the group's channels, with all taps unrolled."""
        image, window = self.image, self.image.window
        firsts = [
            kept(kernel, f"first{d}", window.coordinate(pixel, d) * window.strides[d] - window.before[d], image.is_any)
            for d in range(len(window.sizes))
        ]
        total = kernel.stack("total", float32, (1,))
        total[0] = 0.0
        with kernel.loop(image.inner, "c") as c:
            own = channel * image.inner + c
            for number, taps in enumerate(itertools.product(*map(range, window.taps))):
                at, tests = self._position(firsts, taps)
                pixel_read = read(source, (picture, own, at))
                pixel_read = if_inside(all_of(tests), pixel_read, 0.0) if tests else pixel_read
                total[0] = total[0] + pixel_read * read(weight, (own * window.count + number,))
        return total[0]

    def _position(self, firsts: list[Value], taps: tuple[int, ...]) -> tuple[Operand, list[Value]]:
        """The position of a tap in its channel, and the conditions for its being inside, without those that always hold."""
        window, tests = self.image.window, list[Value]()
        position: Operand = 0
        for d, (first, tap) in enumerate(zip(firsts, taps, strict=True)):
            shift = tap * window.dilations[d]
            at = first + shift
            if shift < window.before[d]:
                tests.append(at >= 0)
            if not is_less((window.out[d] - 1) * window.strides[d] + shift - window.before[d], window.sizes[d]):
                tests.append(at < window.sizes[d])
            position = at if d == 0 else position * window.sizes[d] + at
        return position, tests
