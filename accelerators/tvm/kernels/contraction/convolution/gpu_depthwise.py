"""Convolutions on a GPU in which each output channel has a group of its own, such as depthwise ones: these are no matrix
products. A thread computes one result, and neighbouring threads read neighbouring pixels; two-byte elements are loaded and stored
as they are, and summed in float32."""

from __future__ import annotations

import itertools

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.convolution.image import Image
from partita.accelerators.tvm.kernels.contraction.convolution.layer import draft_layer
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, all_of, float32, if_inside
from partita.accelerators.tvm.kernels.shared.element_access import read
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_less
from partita.graph.types import Array

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
