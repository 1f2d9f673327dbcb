"""Convolutions of quantized values that see each channel by itself, and what follows.

A vector holds neighbouring channels. A tile keeps the sums of some pixels; each tap's weights are read once for all of them."""

from __future__ import annotations

import math

import attrs
import numpy as np

from accelerators.tvm.bodies.body import Body, shape_of
from accelerators.tvm.bodies.quantized import DOMAIN
from accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, int32, minimum
from accelerators.tvm.kernels.quantized.cut import FRAME, Shape
from accelerators.tvm.kernels.quantized.following import make_following
from accelerators.tvm.kernels.quantized.frame import Frame
from accelerators.tvm.kernels.quantized.product_inputs import BEGINNING, IMAGE, SCALE, WEIGHT, scaled
from accelerators.tvm.kernels.shared.choice import choose
from accelerators.tvm.kernels.shared.draft import Array, Draft
from accelerators.tvm.kernels.shared.epilogue import Writer
from accelerators.tvm.kernels.shared.problem import Problem
from accelerators.tvm.kernels.shared.tile import start
from accelerators.tvm.machine.machine import Machine

PIXELS = (8, 7, 6, 5, 4, 3, 2, 1)
"""The number of pixels that a tile may have."""


def depthwise(body: Body, machine: Machine) -> Draft | None:
    """A convolution of each channel by itself."""
    roots = [node for node in body.ops if node.domain == DOMAIN and node.op == "Depthwise"]
    if len(roots) != 1:
        return None
    root, problem = roots[0], Problem.of(body)
    image, weight, beginning = (problem.position(root.inputs[i]) for i in (IMAGE, WEIGHT, BEGINNING))
    entry = root.inputs[SCALE] if len(root.inputs) > SCALE else None
    after = make_following(body, root, scaled, {} if entry is None else {SCALE: shape_of(entry)})
    if after is None or image is None or weight is None or beginning is None or image in after.operands:
        return None
    shape = Shape.of(root)
    size = shape.batch, shape.channels * math.prod(shape.window.sizes)
    shapes = {**after.operands, image: size, weight: (shape.window.count, shape.channels)}
    kernel, inputs, outputs = problem.kernel("depthwise", shapes, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)
    buffers = inputs[image], inputs[weight], inputs[beginning]
    _Writing.of(shape, machine, kernel, buffers, writer, int(root.attrs["zero"])).write()
    return problem.draft(kernel, "quantized depthwise", {weight: _packed})


def _packed(weights: Array) -> Array:
    """[channels, 1, down, across] tap by tap."""
    return np.ascontiguousarray(weights.reshape(weights.shape[0], -1).T)


@attrs.frozen(slots=True, eq=False)
class _Writing:
    """Writes the kernel of one convolution."""

    shape: Shape
    kernel: Kernel
    buffers: tuple[Buffer, Buffer, Buffer]
    """The image, the weights, and what the sums begin with."""
    writer: Writer
    frame: Frame
    lanes: int
    pixels: int
    """The number of pixels of a tile."""
    parallel: bool

    @classmethod
    def of(
        cls, shape: Shape, machine: Machine, kernel: Kernel, buffers: tuple[Buffer, Buffer, Buffer], writer: Writer, zero: int
    ) -> _Writing:
        """Cut for a machine: bands whose copy stays in a cache, tiles that leave few pixels over."""
        window = shape.window
        parallel = machine.threads_for(shape.batch * window.pixels * window.count * shape.channels // 16) > 1
        rows = max(1, min(window.out[0], FRAME // (window.strides[0] * window.sizes[1] * shape.channels)))
        if parallel:
            rows = min(rows, max(1, window.out[0] // (2 * machine.threads)))
        rows = math.ceil(window.out[0] / math.ceil(window.out[0] / rows))
        count = rows * window.out[1]
        fitting = [size for size in PIXELS if size <= min(count, machine.registers // 2)]
        pixels = choose("pixels", fitting, lambda size: math.ceil(count / size) * (size + 1))
        lanes = min(machine.lanes, shape.channels)
        return cls(shape, kernel, buffers, writer, Frame(shape, rows, zero), lanes, pixels, parallel)

    def write(self) -> None:
        """The tasks: images and bands of rows; then tiles, then vectors of channels."""
        kernel, window, frame = self.kernel, self.shape.window, self.frame
        bands, count = math.ceil(window.out[0] / frame.rows), frame.rows * window.out[1]
        with kernel.tasks(self.shape.batch * bands, "task", self.parallel) as task:
            n = kernel.name_value("n", task // bands)
            top = kernel.name_value("top", minimum(task % bands * frame.rows, window.out[0] - frame.rows))
            image = None
            if self.shape.copies:
                image = frame.memory(kernel)
                frame.write(kernel, self.buffers[0], image, n, top)
            with kernel.loop(math.ceil(count / self.pixels), "tile") as tile:
                base = kernel.name_value("base", start(tile, self.pixels, count))
                addresses = [kernel.name_value(f"at{p}", self._address(top, base + p, image)) for p in range(self.pixels)]
                with kernel.loop(math.ceil(self.shape.channels / self.lanes), "v") as v:
                    channel = kernel.name_value("channel", start(v, self.lanes, self.shape.channels))
                    self._vector(n, n * window.pixels + top * window.out[1] + base, channel, addresses, image)

    def _wide(self, image: Buffer | None) -> int:
        return self.shape.window.sizes[1] if image is None else self.frame.wide

    def _address(self, top: Value, pixel: Value, image: Buffer | None) -> Value:
        """Where a pixel of the band reads the first tap of the first channel."""
        window = self.shape.window
        row, column = pixel // window.out[1], pixel % window.out[1]
        row = row if image is not None else top + row
        return (row * (window.strides[0] * self._wide(image)) + column * window.strides[1]) * self.shape.channels

    def _vector(self, n: Value, first: Value, channel: Value, addresses: list[Value], image: Buffer | None) -> None:
        """Some neighbouring channels of a tile."""
        kernel, window, lanes = self.kernel, self.shape.window, self.lanes
        source, weights, beginning = self.buffers
        acc = kernel.registers("acc", int32, (self.pixels,), lanes)
        for p in range(self.pixels):
            acc[p] = beginning.vector(lanes, channel)
        for tap, (ky, kx) in enumerate(np.ndindex(*window.taps)):
            weight = kernel.name_value(f"w{tap}", weights.vector(lanes, tap, channel).cast(int32))
            moved = (ky * window.dilations[0] * self._wide(image) + kx * window.dilations[1]) * self.shape.channels
            for p, address in enumerate(addresses):
                position: Operand = address + channel + moved
                number = source.vector(lanes, n, position) if image is None else image.vector(lanes, position)
                acc[p] = acc[p] + number.cast(int32) * weight
        for p in range(self.pixels):
            with kernel.lanes(lanes) as lane:
                self.writer.store(acc.lane(p, lane), (first + p, channel + lane))


