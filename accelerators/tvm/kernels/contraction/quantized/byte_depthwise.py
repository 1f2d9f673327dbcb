"""Depthwise convolutions of quantized values, and the element-wise ops after them.

A vector holds neighbouring channels. A tile keeps the sums of neighbouring pixels of a row. The dot-product instruction takes
bytes of several rows of the window: they are interleaved once, for all pixels of the tile that read them."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from functools import partial, reduce
from itertools import groupby

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import Instruction, instruction_for_bytes, plain_bytes
from partita.accelerators.tvm.kernels.contraction.panels import chosen_size, for_each_size
from partita.accelerators.tvm.kernels.contraction.quantized.bands import ByteBands, Frame, bands_of_images
from partita.accelerators.tvm.kernels.contraction.quantized.cut import FRAME, ByteShape
from partita.accelerators.tvm.kernels.contraction.quantized.draft import ByteLayer
from partita.accelerators.tvm.kernels.contraction.tile_table import PIXELS
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, int32, maximum, minimum
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, kept, pieces, start, starts
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import BYTE_TAPS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.types import Array

BAND = 0.5
"""Cost of a band in rows: starting it, and copying rows that its neighbours copy too."""


def depthwise(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a depthwise convolution and its epilogue; None for any other body."""
    layer = ByteLayer.of(body, "Depthwise")
    if layer is None:
        return None
    shape = layer.shape
    dot = instruction_for_bytes(machine)
    dot = dot if dot.lanes <= shape.channels else plain_bytes(min(machine.lanes, shape.channels))
    packed = _Packed(dot, shape)
    image = shape.batch, shape.channels * math.prod(shape.window.sizes)
    kernel, buffers, writer = layer.kernel("depthwise", image, packed.size, shape.outs)
    bands = _bands_of(kernel, shape, machine)
    frame = Frame(shape, bands.room, layer.zero)
    _DepthwiseLoops(shape, dot, kernel, buffers, writer, frame, bands).write(_sizes(shape, machine))
    return layer.problem.draft(kernel, "quantized depthwise", {layer.weight: packed.pack})


def _until_the_last(shape: ByteShape, rows: int, threads: int) -> float:
    """Time, in rows, until the last thread has finished with bands of `rows` rows."""
    bands = shape.images * math.ceil(shape.window.out[0] / rows)
    return math.ceil(bands / threads) * (rows + BAND)


def _bands_of(kernel: Kernel, shape: ByteShape, machine: Machine) -> ByteBands:
    """The bands of rows, whose copy stays in a cache."""
    window, products = shape.window, shape.window.pixels * shape.window.count * shape.channels
    if window.is_any:
        row = as_index(window.sizes[1]) * (window.strides[0] * shape.channels)
        most = minimum(maximum(FRAME // row, 1), as_index(window.out[0]))
        return bands_of_images(kernel, shape, most, 1, machine, is_shared_out(products, machine, BYTE_TAPS))
    parallel = machine.threads_for(shape.batch * products, BYTE_TAPS) > 1
    rows = max(1, min(window.out[0], FRAME // (window.strides[0] * window.sizes[1] * shape.channels)))
    if parallel:
        tallest = min(rows, math.ceil(shape.images * window.out[0] / machine.threads))
        rows = min(range(tallest, 0, -1), key=lambda rows: _until_the_last(shape, rows, machine.threads))
    rows = math.ceil(window.out[0] / math.ceil(window.out[0] / rows))
    return ByteBands(math.ceil(window.out[0] / rows), rows, rows, 1, parallel)


def _sizes(shape: ByteShape, machine: Machine) -> dict[int, int]:
    """Numbers of pixels of a tile, with the estimated cycles of each: the one that leaves few pixels of a row over, or several
    for images of dynamic width."""
    wide, most = shape.window.out[1], machine.registers // 2
    if isinstance(wide, Extent):
        return {size: size + 1 for size in PIXELS[::-1] if size <= most}
    fitting = [size for size in PIXELS if size <= min(wide, most)]
    pixels = choose("pixels", fitting, lambda size: math.ceil(wide / size) * (size + 1))
    return {pixels: pixels + 1}


@attrs.frozen(slots=True)
class _Packed:
    """The layout of the weights: [vector of channels][rows of one step][tap across][bytes of a step]."""

    dot: Instruction
    shape: ByteShape

    @property
    def starts(self) -> list[int]:
        """First channel of each vector; the last vector overlaps the one before."""
        return starts(self.shape.channels, self.dot.lanes)

    @property
    def steps(self) -> int:
        """Number of steps for the rows of the window."""
        return math.ceil(self.shape.window.taps[0] / self.dot.group)

    @property
    def each(self) -> int:
        """Bytes of weights of one vector of channels."""
        return self.steps * self.shape.window.taps[1] * self.dot.right_size

    @property
    def size(self) -> int:
        """Bytes of all weights."""
        return len(self.starts) * self.each

    def pack(self, weights: Array) -> Array:
        """Weights [channels, 1, down, across] in this layout; rows without a tap are zero."""
        down, across = self.shape.window.taps
        filled = np.zeros((self.shape.channels, self.steps * self.dot.group, across), np.int8)
        filled[:, :down] = weights[:, 0]
        by_step = filled.reshape(-1, self.steps, self.dot.group, across).transpose(1, 3, 0, 2)
        return np.concatenate([self.dot.pack(by_step[:, :, first : first + self.dot.lanes]).reshape(-1) for first in self.starts])


@attrs.frozen(slots=True, eq=False)
class _DepthwiseLoops:
    """Writes the kernel of one convolution."""

    shape: ByteShape
    dot: Instruction
    kernel: Kernel
    buffers: tuple[Buffer, Buffer, Buffer]
    """The image, the weights, and the initial sums."""
    writer: Writer
    frame: Frame
    bands: ByteBands

    def write(self, sizes: Mapping[int, int]) -> None:
        """Writes the tasks: images and bands of rows, with code for tiles of each size if there are several."""
        kernel, window, frame, bands = self.kernel, self.shape.window, self.frame, self.bands
        name, wide = partial(kept, kernel, is_kept=window.is_any), window.out[1]
        chosen = chosen_size(kernel, wide, sizes) if isinstance(wide, Extent) else None
        with kernel.tasks(self.shape.batch * bands.count, "task", bands.parallel) as task:
            n = name("n", task // bands.count)
            top = name("top", minimum(task % bands.count * bands.rows, window.out[0] - bands.rows))
            image = None
            if self.shape.copies:
                image = frame.memory(kernel)
                frame.write(kernel, self.buffers[0], image, n, top)
            if chosen is None:
                self._band(n, top, image, *sizes)
            else:
                for_each_size(kernel, chosen, sizes, lambda pixels: self._band(n, top, image, pixels))

    def _band(self, n: Value, top: Value, image: Buffer | None, pixels: int) -> None:
        """Writes the loops of a band: tiles of each row, then vectors of channels."""
        kernel, window, packed = self.kernel, self.shape.window, _Packed(self.dot, self.shape)
        across = pieces(window.out[1], pixels)
        with kernel.loop(self.bands.rows, "row") as row, kernel.loop(across, "tile") as tile:
            column = kernel.name_value("column", start(tile, pixels, window.out[1]))
            line = row if image is not None else top + row
            pixel = line * (window.strides[0] * self._wide(image)) + column * window.strides[1]
            address = kernel.name_value("at", pixel * self.shape.channels)
            first = kernel.name_value("to", n * window.pixels + (top + row) * window.out[1] + column)
            with kernel.loop(len(packed.starts), "v") as v:
                channel = kernel.name_value("channel", start(v, self.dot.lanes, self.shape.channels))
                self._vector(n, first, channel, address, v * packed.each, image, pixels)

    def _wide(self, image: Buffer | None) -> int:
        return self.shape.window.sizes[1] if image is None else self.frame.wide

    def _vector(
        self, n: Value, first: Value, channel: Value, address: Value, weights: Value, image: Buffer | None, pixels: int
    ) -> None:
        """Writes one vector of channels of a tile."""
        kernel, window, lanes = self.kernel, self.shape.window, self.dot.lanes
        acc = kernel.registers("acc", int32, (pixels,), lanes)
        for p in range(pixels):
            acc[p] = self.buffers[2].vector(lanes, channel)
        (_, stride), (_, dilation) = window.strides, window.dilations
        taps = [(p * stride + k * dilation, p, k) for p in range(pixels) for k in range(window.taps[1])]
        for step, top in enumerate(range(0, window.taps[0], self.dot.group)):
            rows = range(top, min(top + self.dot.group, window.taps[0]))
            for column, seen in groupby(sorted(taps), lambda tap: tap[0]):
                word = kernel.name_value(f"word{step}_{column}", self._word(n, address + channel, rows, column, image))
                for _, p, k in seen:
                    at = weights + (step * window.taps[1] + k) * self.dot.right_size
                    self.dot.step(kernel, acc, p, word, self.buffers[1], at)
        for p in range(pixels):
            with kernel.lanes(lanes) as lane:
                self.writer.store(acc.lane(p, lane), (first + p, channel + lane))

    def _word(self, n: Value, address: Value, rows: range, column: int, image: Buffer | None) -> Value:
        """The elements of one column of the tile in several rows of the window, interleaved per channel."""
        window, words = self.shape.window, []
        for i, row in enumerate(rows):
            at = address + (row * window.dilations[0] * self._wide(image) + column) * self.shape.channels
            numbers = self.buffers[0].vector(self.dot.lanes, n, at) if image is None else image.vector(self.dot.lanes, at)
            words.append(numbers.cast(int32) << (self.dot.left_element.bits * i) if i else numbers.cast(int32))
        return reduce(operator.or_, words)
