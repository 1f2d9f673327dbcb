"""Convolutions on a GPU as matrix products: rows are output channels, columns are the pixels of all images, and the depth is the
taps of all input channels. The matrix of pixels is never stored: threads read the image at the taps.

If each output channel has a group of its own there is no matrix product: a thread computes one result, and neighbouring threads
read neighbouring pixels. Two-byte elements are loaded and stored as they are, and summed in float32."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body, element_of
from partita.accelerators.tvm.kernels.contraction.convolution.image import Image, flat
from partita.accelerators.tvm.kernels.contraction.convolution.layer import NormedImage, draft_layer
from partita.accelerators.tvm.kernels.contraction.gpu_product import (
    Side,
    Spot,
    TiledProduct,
    lay_steps,
    new_tiles,
    own_thread,
    packed_side,
    spots,
)
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import (
    WIDTH,
    BlockTile,
    TensorTile,
    Work,
    fastest,
    round_to_tf32,
    tensor_tiles,
    tiles,
    usual_pixels,
)
from partita.accelerators.tvm.kernels.contraction.tensor_product import (
    Source,
    TensorProduct,
    TensorSide,
    has_tensor_cores,
    packed_tensor_side,
    widest_copy,
)
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, all_of, element_named, float32, if_inside
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.kernels.shared.window import is_convolution
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_less, is_multiple
from partita.graph.node import Node
from partita.graph.types import Array


def gpu_convolution(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with constant weights and its epilogue, of a value or of a normed image; None for any other
    body, and for depthwise convolutions, which are not products."""
    size = bytes_on_tensor_cores(body, machine, is_convolution)
    normed = NormedImage.of(next(filter(is_convolution, body.ops)), Problem.of(body))

    def cut(image: Image) -> TiledConvolution | None:
        return None if image.outs == image.groups else TiledConvolution(image, best_tile(image, machine, size), normed)

    return draft_layer(body, "gpu_convolution_on_tensor_cores" if size else "gpu_convolution", cut, normed)


def bytes_on_tensor_cores(body: Body, machine: Machine, is_root: Callable[[Node], bool]) -> int:
    """Bytes of the elements that the body's root multiplies, if tensor cores support them; else 0."""
    roots = [node for node in body.ops if is_root(node)]
    elements = [element_named(element_of(entry)) for node in roots for entry in node.inputs[:2] if entry is not None]
    return elements[0].bits // 8 if has_tensor_cores(machine, *elements) else 0


def best_tile(image: Image, machine: Machine, size: int, kinds: int = 1) -> BlockTile | TensorTile:
    """The fastest cut of those whose threads stay in one column; on tensor cores, for elements of `size` bytes, unless that is 0.
    For dynamic images it is the best over typical numbers of pixels, and fewer and more. Output channels of `kinds` kinds share
    no tile."""
    gpu, works = machine.gpu, _works(image, size or 4, kinds)
    listed: Iterator[BlockTile | TensorTile] = tensor_tiles(gpu, size) if size else tiles(gpu)
    return fastest([tile for tile in listed if tile.slice_threads % tile.columns == 0], works, gpu)


def _works(image: Image, size: int, kinds: int) -> list[Work]:
    """The products for which a cut is chosen: one, or several for dynamic images."""
    parts, weights = image.groups * kinds, image.outs * image.depth
    outs, depth = -(-image.outs // parts), image.depth
    if not image.is_any:
        stored = image.batch * image.channels * math.prod(image.sizes)
        return [Work(outs, image.batch * image.pixels, depth, parts, size, stored + weights)]
    counts = usual_pixels(image.channels, image.outs)
    return [Work(outs, columns, depth, parts, size, columns * image.channels + weights) for columns in counts]


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

    image: Image
    tile: BlockTile | TensorTile
    normed: NormedImage | None = None
    """The norm that is applied to the image before the product, if any."""

    @property
    def by_taps(self) -> bool:
        """True if the depth is ordered [tap, channel], so that a step has one tap; otherwise it is [channel, tap]."""
        return self.image.inner % self.tile.depth == 0

    @property
    def steps(self) -> int:
        """Number of steps of all slices together."""
        return self.tile.all_steps(self.image.depth)

    @property
    def down(self) -> int:
        """Number of tiles along the rows."""
        return -(-self.image.own // self.tile.rows)

    @property
    def blocks(self) -> tuple[Operand, int]:
        """Number of tiles along the columns, and along the rows."""
        return parts_of(self.image.batch * self.image.pixels, self.tile.columns), self.down

    @property
    def weights(self) -> int:
        """Number of elements of the packed weights."""
        return self.image.groups * self.down * self.steps * self.tile.depth * self.tile.rows

    def pack(self, array: Array) -> Array:
        """The weights [group, tile, step, depth, output channel], zero-padded to whole tiles; for tensor cores [group, tile,
        step, output channel, depth]."""
        counts = self.image.groups, self.down, self.steps
        packed, tiles = new_tiles(self.tile, counts, self.tile.rows, array.dtype)
        for group, bands in enumerate(tiles):
            self.lay_out(bands, array, group)
        is_rounded = isinstance(self.tile, TensorTile) and packed.dtype == np.float32
        return round_to_tf32(packed.reshape(-1)) if is_rounded else packed.reshape(-1)

    def lay_out(self, bands: Array, array: Array, group: int) -> None:
        """Fills the tiles [tile, step, depth, output channel] of a group with its part of the weights."""
        self.lay_rows(bands, array.reshape(self.image.groups, self.image.own, self.image.inner, self.image.taps)[group])

    def lay_rows(self, bands: Array, weights: Array) -> None:
        """Fills tiles with rows [output channel, channel, tap]."""
        matrix, rows = weights.transpose((2, 1, 0) if self.by_taps else (1, 2, 0)).reshape(-1, len(weights)), self.tile.rows
        for i, steps in enumerate(bands):
            lay_steps(steps, matrix[:, i * rows : (i + 1) * rows])

    def write(self, kernel: Kernel, source: Buffer, weight: Buffer, writer: Writer) -> None:
        """Launches a block for each tile of each group."""
        image, tile = self.image, self.tile
        columns = image.batch * image.pixels
        with kernel.launch((*self.blocks, image.groups), tile.threads) as (block, number, group, thread):
            own, band = own_thread(tile, thread), self.band(kernel, number)
            first = (group * self.down + number) * (self.steps * tile.depth * tile.rows)
            steps = parts_of(band.depth, tile.depth * tile.slices)

            def store(total: Value, row: Value, column: Value) -> None:
                pixel = block * tile.columns + column
                at = pixel // image.pixels, band.top + row, pixel % image.pixels
                self.store(kernel, writer, total, band, group, at)

            bounds = (
                None if isinstance(band.rows, int) and band.rows % tile.rows == 0 else as_index(band.rows) - band.top,
                None if is_multiple(columns, tile.columns) else as_index(columns) - block * tile.columns,
            )
            if isinstance(tile, TensorTile):
                fed = self._fed_pixels(kernel, source, own, block, group, band, writer.inputs)
                weights = packed_tensor_side(tile, own, tile.rows, weight, first)
                TensorProduct(kernel, tile, thread, weights, fed).write(steps, store, bounds)
            else:
                pixels = self._pixels(kernel, source, own, block, group, band, writer.inputs)
                weights_side = packed_side(tile, own, tile.rows, weight, first)
                TiledProduct(kernel, tile, thread, weights_side, pixels).write(steps, store, bounds)

    def band(self, kernel: Kernel, number: Value) -> Band:
        """The rows of the blocks with this index."""
        return Band(number * self.tile.rows, self.image.own, self.image.filter, self.image.before, self.image.depth)

    def store(self, kernel: Kernel, writer: Writer, total: Value, band: Band, group: Value, at: Place) -> None:
        """Writes a sum at its image, row and pixel."""
        picture, row, pixel = at
        writer.store(total, (picture, group * self.image.own + row, pixel))

    def _pixels(
        self, kernel: Kernel, source: Buffer, own: Value, block: Value, group: Value, band: Band, inputs: Sequence[Buffer]
    ) -> Side:
        """The image as an operand, for plain threads: each thread always reads the same column."""
        lanes = WIDTH if self._is_plain and is_multiple(self.image.pixels, WIDTH) else 1
        listed = spots(self.tile, own, self.tile.columns, lanes, turned=False)
        taps = self._taps(kernel, listed[0], block, group, band)

        def number(step: Value, spot: Spot) -> Value:
            read_from = taps(step, spot)
            numbers = read(source, read_from.position, lanes)
            if self.normed is not None:
                numbers = self.normed.numbers(numbers, inputs, read_from.position[1])
            return numbers if read_from.is_inside is None else if_inside(read_from.is_inside, numbers, 0.0)

        return Side(self.tile.columns, listed, lanes, number)

    def _fed_pixels(
        self, kernel: Kernel, source: Buffer, own: Value, block: Value, group: Value, band: Band, inputs: Sequence[Buffer]
    ) -> TensorSide:
        """The image as an operand of tensor cores."""
        normed, lanes = self.normed, widest_copy(source.element.bits // 8, self.image.pixels) if self._is_plain else 1
        lanes = lanes if normed is None else min(lanes, WIDTH)
        listed = spots(self.tile, own, self.tile.columns, lanes, turned=False)
        taps = self._taps(kernel, listed[0], block, group, band)

        def change(numbers: Value, read_from: Source) -> Value:
            assert normed is not None
            return normed.numbers(numbers, inputs, read_from.position[1])

        side = TensorSide(source, self.tile.columns, self.tile.depth, listed, lanes, taps, turned=False)
        return side if normed is None else attrs.evolve(side, change=change)

    @property
    def _is_plain(self) -> bool:
        """True if the columns are contiguous in memory."""
        return self.image.is_pointwise and all(stride == 1 for stride in self.image.strides)

    def _taps(self, kernel: Kernel, first: Spot, block: Value, group: Value, band: Band) -> Callable[[Value, Spot], Source]:
        """The function that maps a spot to its position in the image; the spot's column is always that of the first spot."""
        image, tile = self.image, self.tile
        column = kernel.name_value("column", block * tile.columns + first.at)
        pixel = kept(kernel, "pixel", column % image.pixels, image.is_any)
        picture = kept(kernel, "picture", column // image.pixels, image.is_any)
        corner = [
            kept(kernel, f"corner{d}", image.coordinate(pixel, d) * image.strides[d] - band.before[d], image.is_any)
            for d in range(len(image.sizes))
        ]
        taps = math.prod(band.filter)
        is_whole = is_multiple(image.batch * image.pixels, tile.columns)
        in_columns = [] if is_whole else [column < image.batch * image.pixels]

        def source(step: Value, spot: Spot) -> Source:
            k = step * tile.depth + spot.k
            if self.by_taps:
                per_tap = self.image.inner // tile.depth
                tap, channel = step // per_tap, step % per_tap * tile.depth + spot.k
            else:
                tap, channel = k % taps, k // taps
            positions = [at + shift for at, shift in zip(corner, self._shifts(tap, band.filter), strict=True)]
            tests = list(in_columns)
            if not isinstance(band.depth, int) or self.steps * tile.depth != band.depth:
                tests.append(k < band.depth)
            if not image.is_pointwise:
                for position, size in zip(positions, image.sizes, strict=True):
                    tests += [position >= 0, position < size]
            at = (picture, group * self.image.inner + channel, flat(positions, image.sizes))
            return Source(at, all_of(tests) if tests else None)

        return source

    def _shifts(self, tap: Value, sizes: Sequence[Operand]) -> list[Operand]:
        """The distance of a tap from the first, along each dimension of a filter of these sizes."""
        shifts: list[Operand] = []
        for d, (size, dilation) in enumerate(zip(sizes, self.image.dilations, strict=True)):
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

    def cut(image: Image) -> _GpuDepthwise | None:
        is_ours = image.outs == image.groups and image.taps <= MOST_TAPS
        return _GpuDepthwise(image, machine.gpu) if is_ours else None

    return draft_layer(body, "gpu_depthwise", cut)


@attrs.frozen(slots=True)
class _GpuDepthwise:
    """One such convolution and its cut."""

    image: Image
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
        count = image.batch * image.outs * image.pixels
        with each_item(kernel, count, self.gpu) as item:
            pixel = kept(kernel, "pixel", item % image.pixels, image.is_any)
            channel = kept(kernel, "channel", item // image.pixels % image.outs, image.is_any)
            picture = kept(kernel, "picture", item // (image.pixels * image.outs), image.is_any)
            total = self._total(kernel, source, weight, picture, channel, pixel)
            writer.store(total, (picture, channel, pixel))

    def _total(
        self, kernel: Kernel, source: Buffer, weight: Buffer, picture: Value, channel: Value, pixel: Value
    ) -> Value:
        """The sum of a result: a loop over the group's channels, with all taps unrolled."""
        image = self.image
        firsts = [
            kept(kernel, f"first{d}", image.coordinate(pixel, d) * image.strides[d] - image.before[d], image.is_any)
            for d in range(len(image.sizes))
        ]
        total = kernel.stack("total", float32, (1,))
        total[0] = 0.0
        with kernel.loop(image.inner, "c") as c:
            own = channel * image.inner + c
            for number, taps in enumerate(itertools.product(*map(range, image.filter))):
                at, tests = self._position(firsts, taps)
                pixel_read = read(source, (picture, own, at))
                pixel_read = if_inside(all_of(tests), pixel_read, 0.0) if tests else pixel_read
                total[0] = total[0] + pixel_read * read(weight, (own * image.taps + number,))
        return total[0]

    def _position(self, firsts: list[Value], taps: tuple[int, ...]) -> tuple[Operand, list[Value]]:
        """The position of a tap in its channel, and the conditions for its being inside, without those that always hold."""
        image, tests = self.image, list[Value]()
        position: Operand = 0
        for d, (first, tap) in enumerate(zip(firsts, taps, strict=True)):
            shift = tap * image.dilations[d]
            at = first + shift
            if shift < image.before[d]:
                tests.append(at >= 0)
            if not is_less((image.out[d] - 1) * image.strides[d] + shift - image.before[d], image.sizes[d]):
                tests.append(at < image.sizes[d])
            position = at if d == 0 else position * image.sizes[d] + at
        return position, tests
