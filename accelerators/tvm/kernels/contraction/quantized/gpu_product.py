"""Products of quantized values and constant weights on a GPU, with their epilogues: convolutions and matrix products.

A block computes a tile: rows are the pixels of all images, columns are results, and the depth is the channels of all taps. Sums
are integers: unsigned bytes of the image times signed ones of the weights, by tensor cores if the GPU has them. The initial sums,
which hold the bias and the contribution of the image's zero point, are added at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.gpu_operands import (
    PackedTiles,
    Side,
    Source,
    Spot,
    spots,
    widest_copy,
    widest_read,
)
from partita.accelerators.tvm.kernels.contraction.gpu_product import has_tensor_cores, own_thread, write_tile
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import BlockTile, TensorTile, fastest, tensor_tiles, tiles, works_of
from partita.accelerators.tvm.kernels.contraction.quantized.cut import ByteShape
from partita.accelerators.tvm.kernels.contraction.quantized.draft import draft_on_gpu
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, all_of, if_inside, int8, int32, uint8
from partita.accelerators.tvm.kernels.language.values import as_index, parts_of
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_multiple
from partita.graph.types import Array, dtype_name


def gpu_quantized_product(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a product and its epilogue; None for any other body."""
    return draft_on_gpu(body, "Product", lambda shape, zero: _TiledBytes.of(shape, zero, machine))


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
        gpu, works = machine.gpu, works_of(shape, 1, has_pixel_rows=True)
        if not has_tensor_cores(machine, uint8, int8):
            return cls(shape, zero, fastest(list(tiles(gpu)), works, gpu))
        is_single = shape.is_plain or widest_copy(1, shape.inner) == 1
        listed = [tile for tile in tensor_tiles(gpu, 1) if not is_single or tile.slice_threads % tile.rows == 0]
        return cls(shape, zero, fastest(listed, works, gpu))

    @property
    def schedule(self) -> str:
        """The name of its schedule."""
        return "gpu_quantized_product" + ("_on_tensor_cores" if isinstance(self.tile, TensorTile) else "")

    @property
    def rows(self) -> int:
        """Pixels of all results."""
        return self.shape.batch * self.shape.window.pixels

    @property
    def packed(self) -> PackedTiles:
        """The weights as an operand."""
        return PackedTiles(self.tile, self.tile.columns, self.shape.groups, (self.shape.own,), self.shape.depth)

    @property
    def weights(self) -> int:
        """Bytes of the packed weights."""
        return self.packed.numbers

    def pack(self, array: Array) -> Array:
        """The weights in tiles. The depth goes through all channels for each tap."""
        ordered = array.reshape(self.shape.groups, self.shape.own, self.shape.inner, -1).transpose(0, 3, 2, 1)
        matrices = ordered.reshape(self.shape.groups, 1, self.shape.depth, self.shape.own)
        return self.packed.pack(matrices, dtype_name(array.dtype))

    def write(self, kernel: Kernel, image: Buffer, weight: Buffer, beginning: Buffer, writer: Writer) -> None:
        """Writes a block for each tile of each group."""
        tile, packed, bands = self.tile, self.packed, parts_of(self.rows, self.tile.rows)
        with kernel.launch((packed.count, bands, self.shape.groups), tile.threads) as (block, band, group, thread):
            own = own_thread(tile, thread)

            def store(total: Value, row: Value, column: Value) -> None:
                result = group * self.shape.own + block * tile.columns + column
                writer.store(total + beginning[result], (band * tile.rows + row, result))

            bounds = tile.bounds(self.rows, self.shape.own, band * tile.rows, block * tile.columns)
            sides = self._pixels(kernel, image, own, band, group), packed.side(own, weight, group * packed.count + block)
            write_tile(kernel, tile, thread, sides, tile.steps(self.shape.depth), store, bounds, int32)

    def _pixels(self, kernel: Kernel, image: Buffer, own: Value, band: Value, group: Value) -> Side:
        """The image as an operand: threads read neighbouring channels of a tap, if those are adjacent."""
        tile = self.tile
        lanes = 1 if self.shape.is_plain else widest_read(tile, image, self.shape.inner)
        listed = spots(tile, own, tile.rows, lanes, turned=lanes > 1)
        source = self._sources(kernel, listed, band, group, lanes > 1)
        is_turned = lanes > 1 or isinstance(tile, TensorTile)
        return Side(image, tile.rows, tile.depth, listed, lanes, source, is_turned, fill=self.zero)

    def _sources(
        self, kernel: Kernel, listed: tuple[Spot, ...], band: Value, group: Value, are_wide: bool
    ) -> Callable[[Value, Spot], Source]:
        """The source in the image of a spot's bytes. What depends on their row only is computed once: for each spot if threads
        read several bytes at a time, else for the one row at which a thread stays."""
        tile, window, is_whole = self.tile, self.shape.window, self.packed.is_whole
        is_steady = not are_wide and tile.slice_threads % tile.rows == 0
        corners = {spot: self._corner(kernel, spot, band) for spot in (listed[:1] if is_steady else listed)}

        def source(step: Value, spot: Spot) -> Source:
            picture, firsts, is_row = corners[listed[0] if is_steady else spot]
            k = step * tile.depth + spot.k
            tap, channel = k // self.shape.inner, group * self.shape.inner + k % self.shape.inner
            down, across = tap // window.taps[1], tap % window.taps[1]
            at = [first + i * d for first, i, d in zip(firsts, (down, across), window.dilations, strict=True)]
            tests = [] if is_row is None else [is_row]
            if not is_whole:
                tests.append(k < self.shape.depth)
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
