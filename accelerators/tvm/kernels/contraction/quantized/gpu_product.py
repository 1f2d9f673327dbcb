"""Products of quantized values and constant weights on a GPU, with their epilogues: convolutions and matrix products.

A block computes a tile: rows are the pixels of all images, columns are results, and the depth is the channels of all taps. Sums
are integers: unsigned bytes of the image times signed ones of the weights, by tensor cores if the GPU has them. The initial sums,
which hold the bias and the contribution of the image's zero point, are added at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body
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
    tensor_tiles,
    tiles,
    usual_pixels,
)
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteShape
from partita.accelerators.tvm.kernels.contraction.quantized.draft import draft_on_gpu
from partita.accelerators.tvm.kernels.contraction.tensor_product import (
    Source,
    TensorProduct,
    TensorSide,
    has_tensor_cores,
    packed_tensor_side,
    widest_copy,
)
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, all_of, if_inside, int8, int32, uint8
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_multiple
from partita.graph.types import Array


def gpu_quantized_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a product and its epilogue; None for any other body."""
    return draft_on_gpu(body, "Product", lambda shape, zero: _TiledBytes.of(shape, zero, machine))


def _works(shape: ByteShape) -> list[Work]:
    """The products for which a cut is chosen: a single one, or several for dynamic images or rows."""
    groups, depth = shape.groups, shape.inner * shape.window.count
    outs, weights = shape.own, shape.outs * depth
    if not shape.is_any:
        stored = shape.batch * math.prod(shape.window.sizes) * shape.channels
        return [Work(shape.batch * shape.window.pixels, outs, depth, groups, 1, stored + weights)]
    counts = usual_pixels(shape.channels, shape.outs)
    return [Work(rows, outs, depth, groups, 1, rows * shape.channels + weights) for rows in counts]


@attrs.frozen(slots=True, eq=False)
class _TiledBytes:
    """One product and its cut."""

    shape: ByteShape
    zero: int
    """The image's zero point, which fills the padding."""
    tile: BlockTile | TensorTile

    @classmethod
    def of(cls, shape: ByteShape, zero: int, machine: Machine) -> _TiledBytes:
        """The product with the cut of fewest cycles. If bytes are read one by one, each thread stays at one row."""
        gpu, works = machine.gpu, _works(shape)
        if has_tensor_cores(machine, uint8, int8):
            lanes = cls(shape, zero, TensorTile(16, 16, 16, 16, 32, 1, 2, 1)).lanes
            listed = [tile for tile in tensor_tiles(gpu, 1) if lanes > 1 or tile.slice_threads % tile.rows == 0]
            return cls(shape, zero, fastest(listed, works, gpu))
        return cls(shape, zero, fastest(list(tiles(gpu)), works, gpu))

    @property
    def schedule(self) -> str:
        """The name of its schedule."""
        return "gpu_quantized_product" + ("_on_tensor_cores" if isinstance(self.tile, TensorTile) else "")

    @property
    def rows(self) -> int:
        """Pixels of all results."""
        return self.shape.batch * self.shape.window.pixels

    @property
    def depth(self) -> int:
        """Products of each sum."""
        return self.shape.inner * self.shape.window.count

    @property
    def lanes(self) -> int:
        """Adjacent bytes of the image that a thread reads at once: channels of one tap."""
        if self.shape.is_plain:
            return 1
        if isinstance(self.tile, TensorTile):
            return widest_copy(1, self.shape.inner)
        return WIDTH if self.shape.inner % WIDTH == 0 else 1

    @property
    def steps(self) -> int:
        """Steps of all slices together."""
        return self.tile.all_steps(self.depth)

    @property
    def blocks(self) -> tuple[int, Operand]:
        """Number of tiles along the columns and along the rows."""
        return -(-self.shape.own // self.tile.columns), parts_of(self.rows, self.tile.rows)

    @property
    def weights(self) -> int:
        """Bytes of the packed weights."""
        return self.shape.groups * self.blocks[0] * self.steps * self.tile.depth * self.tile.columns

    def pack(self, array: Array) -> Array:
        """The weights [group, tile, step, depth, column], padded with zeros; for tensor cores [.., column, depth]. The depth goes
        through all channels for each tap."""
        groups, wide = self.shape.groups, self.tile.columns
        ordered = array.reshape(groups, self.shape.own, self.shape.inner, -1).transpose(0, 3, 2, 1)
        matrices = ordered.reshape(groups, self.depth, self.shape.own)
        packed, tiles = new_tiles(self.tile, (groups, self.blocks[0], self.steps), wide, array.dtype)
        for matrix, blocks in zip(matrices, tiles, strict=True):
            for block, steps in enumerate(blocks):
                lay_steps(steps, matrix[:, block * wide : (block + 1) * wide])
        return packed.reshape(-1)

    def write(self, kernel: Kernel, image: Buffer, weight: Buffer, beginning: Buffer, writer: Writer) -> None:
        """Writes a block for each tile of each group."""
        tile, blocks = self.tile, self.blocks
        with kernel.launch((*blocks, self.shape.groups), tile.threads) as (block, band, group, thread):
            own = own_thread(tile, thread)
            first = (group * blocks[0] + block) * (self.steps * tile.depth * tile.columns)

            def store(total: Value, row: Value, column: Value) -> None:
                result = group * self.shape.own + block * tile.columns + column
                writer.store(total + beginning[result], (band * tile.rows + row, result))

            bounds = tile.bounds(self.rows, self.shape.own, band * tile.rows, block * tile.columns)
            if isinstance(tile, TensorTile):
                right = packed_tensor_side(tile, own, tile.columns, weight, first)
                left = self._copied(kernel, image, own, band, group)
                TensorProduct(kernel, tile, thread, left, right).write(tile.steps(self.depth), store, bounds)
            else:
                sides = self._read(kernel, image, own, band, group), packed_side(tile, own, tile.columns, weight, first, int32)
                TiledProduct(kernel, tile, thread, *sides, int32).write(tile.steps(self.depth), store, bounds)

    def _copied(self, kernel: Kernel, image: Buffer, own: Value, band: Value, group: Value) -> TensorSide:
        """The operand of the image for tensor cores."""
        tile, lanes = self.tile, self.lanes
        listed = spots(tile, own, tile.rows, lanes, turned=lanes > 1)
        source = self._sources(kernel, listed, band, group)
        return TensorSide(image, tile.rows, tile.depth, listed, lanes, source, turned=True, fill=self.zero)

    def _read(self, kernel: Kernel, image: Buffer, own: Value, band: Value, group: Value) -> Side:
        """The operand of the image if threads read it and convert bytes to words."""
        tile, lanes = self.tile, self.lanes
        listed = spots(tile, own, tile.rows, lanes, turned=lanes > 1)
        sources = self._sources(kernel, listed, band, group)

        def number(step: Value, spot: Spot) -> Value:
            source = sources(step, spot)
            numbers = image.vector(lanes, *source.position).cast(int32)
            return numbers if source.is_inside is None else if_inside(source.is_inside, numbers, self.zero)

        return Side(tile.rows, listed, lanes, number, turned=lanes > 1)

    def _sources(
        self, kernel: Kernel, listed: tuple[Spot, ...], band: Value, group: Value
    ) -> Callable[[Value, Spot], Source]:
        """The source in the image of a spot's bytes. What depends on their row only is computed once: for each spot if threads
        read several bytes at a time, else for the one row at which a thread stays."""
        tile, window = self.tile, self.shape.window
        is_steady = self.lanes == 1 and self.tile.slice_threads % tile.rows == 0
        corners = {spot: self._corner(kernel, spot, band) for spot in (listed[:1] if is_steady else listed)}

        def source(step: Value, spot: Spot) -> Source:
            picture, firsts, is_row = corners[listed[0] if is_steady else spot]
            k = step * tile.depth + spot.k
            tap, channel = k // self.shape.inner, group * self.shape.inner + k % self.shape.inner
            down, across = tap // window.taps[1], tap % window.taps[1]
            at = [first + i * d for first, i, d in zip(firsts, (down, across), window.dilations, strict=True)]
            tests = [] if is_row is None else [is_row]
            if self.steps * tile.depth != self.depth:
                tests.append(k < self.depth)
            if not window.is_inside:
                tests += [test for i, size in zip(at, window.sizes, strict=True) for test in (i >= 0, i < size)]
            pixel = at[0] * window.sizes[1] + at[1]
            stands = (channel, pixel) if self.shape.is_plain else (pixel, channel)
            return Source((picture, *stands), all_of(tests) if tests else None)

        return source

    def _corner(self, kernel: Kernel, spot: Spot, band: Value) -> tuple[Value, list[Value], Value | None]:
        """The image of a spot's row, the position of the first tap in it, and the condition that there is such a row."""
        window, tile, name = self.shape.window, self.tile, partial(kept, kernel, is_kept=self.shape.is_any)
        row, is_single = kernel.name_value("pixel", band * tile.rows + spot.at), self.shape.batch == 1
        picture = as_index(0) if is_single else name("picture", row // window.pixels)
        inside = row if is_single else row % window.pixels
        coordinates = inside // window.out[1], inside % window.out[1]
        if window.out[1] == 1:
            coordinates = inside, as_index(0)
        firsts = [name(f"first{d}", at * window.strides[d] - window.before[d]) for d, at in enumerate(coordinates)]
        return picture, firsts, None if is_multiple(self.rows, tile.rows) else row < self.rows


def gpu_quantized_depthwise(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a depthwise convolution and its epilogue; None for any other body."""
    return draft_on_gpu(body, "Depthwise", lambda shape, zero: _GpuByteDepthwise(shape, zero, machine.gpu))


@attrs.frozen(slots=True)
class _GpuByteDepthwise:
    """One depthwise convolution."""

    shape: ByteShape
    zero: int
    """The image's zero point, which fills the padding."""
    gpu: Gpu
    schedule: str = "gpu_quantized_depthwise"

    @property
    def weights(self) -> int:
        """Bytes of the weights."""
        return self.shape.channels * self.shape.window.count

    def pack(self, array: Array) -> Array:
        """The weights [tap, channel], flat."""
        return np.ascontiguousarray(array.reshape(self.shape.channels, -1).T).reshape(-1)

    def write(self, kernel: Kernel, image: Buffer, weight: Buffer, beginning: Buffer, writer: Writer) -> None:
        """Writes a thread for each channel of each pixel of the result."""
        channels, window = self.shape.channels, self.shape.window
        count = self.shape.batch * window.pixels * channels
        with each_item(kernel, count, self.gpu) as item:
            channel = kernel.name_value("channel", item % channels)
            pixel = kernel.name_value("pixel", item // channels)
            total = self._total(kernel, image, weight, beginning, pixel, channel)
            writer.store(total, (pixel, channel))

    def _total(
        self, kernel: Kernel, image: Buffer, weight: Buffer, beginning: Buffer, pixel: Value, channel: Value
    ) -> Value:
        window, channels, name = self.shape.window, self.shape.channels, partial(kept, kernel, is_kept=self.shape.is_any)
        picture = name("picture", pixel // window.pixels)
        coordinates = pixel % window.pixels // window.out[1], pixel % window.out[1]
        firsts = [name(f"first{d}", at * window.strides[d] - window.before[d]) for d, at in enumerate(coordinates)]
        sums = kernel.stack("sum", int32, (1,))
        sums[0] = beginning[channel]
        for tap in range(window.count):
            taps = divmod(tap, window.taps[1])
            at = [first + i * d for first, i, d in zip(firsts, taps, window.dilations, strict=True)]
            number = image[picture, at[0] * window.sizes[1] + at[1], channel].cast(int32)
            if not window.is_inside:
                tests = [test for i, size in zip(at, window.sizes, strict=True) for test in (i >= 0, i < size)]
                number = if_inside(all_of(tests), number, self.zero)
            sums[0] = sums[0] + number * weight[as_index(tap * channels) + channel].cast(int32)
        return sums[0]
