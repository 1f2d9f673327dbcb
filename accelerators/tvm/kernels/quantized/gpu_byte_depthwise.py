"""Depthwise convolutions of quantized values on a GPU: a thread per result, neighbours of which read neighbouring channels."""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, all_of, if_inside, int32
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.quantized.cut import Shape
from partita.accelerators.tvm.kernels.quantized.draft import draft_on_gpu
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.types import Array


def gpu_quantized_depthwise(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a depthwise convolution and its epilogue; None for any other body."""
    return draft_on_gpu(body, "Depthwise", lambda shape, zero: _Layer(shape, zero, machine.gpu))


@attrs.frozen(slots=True)
class _Layer:
    """One depthwise convolution."""

    shape: Shape
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
