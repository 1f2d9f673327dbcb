"""The geometry of a convolution, and the padded copy of its input.

Each dimension of the copy is split into phases: position i of phase q is pixel i·stride + q of the padded image. For the output
at position i, a tap of the filter then reads position i + a constant of one phase."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import ExitStack

import attrs

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, all_of
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape
from partita.accelerators.tvm.kernels.shared.window import placement
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_less
from partita.graph.node import Node

Sizes = tuple[int, ...]


@attrs.frozen(slots=True)
class Image:
    """The geometry of the image that a convolution reads."""

    batch: int
    """Number of images."""
    channels: int
    """Number of channels of the input."""
    groups: int
    """Number of groups."""
    outs: int
    """Number of channels of the output."""
    sizes: Sizes
    """The input's spatial sizes."""
    filter: Sizes
    """The filter's spatial sizes."""
    strides: Sizes
    """The distances between the inputs of neighbouring outputs."""
    dilations: Sizes
    """The distances between neighbouring taps."""
    before: Sizes
    """The padding before the first pixel."""
    out: Sizes
    """The output's spatial sizes."""

    @property
    def pixels(self) -> int:
        """Number of pixels of one output channel."""
        return math.prod(self.out)

    @property
    def is_any(self) -> bool:
        """True if a size of the image or of the batch is dynamic."""
        return any(isinstance(size, Extent) for size in (self.batch, *self.sizes, *self.out))

    @property
    def inner(self) -> int:
        """Number of input channels of a group."""
        return self.channels // self.groups

    @property
    def own(self) -> int:
        """Number of output channels of a group."""
        return self.outs // self.groups

    @property
    def taps(self) -> int:
        """Number of taps of the filter."""
        return math.prod(self.filter)

    @property
    def depth(self) -> int:
        """Number of products in each sum."""
        return self.inner * self.taps

    @property
    def is_pointwise(self) -> bool:
        """True if each output reads one pixel of the image, and never the padding."""
        inside = all(is_less((o - 1) * s, n) for o, s, n in zip(self.out, self.strides, self.sizes))
        return self.taps == 1 and not any(self.before) and inside

    def coordinate(self, pixel: Value, dimension: int) -> Value:
        """The output pixel's coordinate in a dimension."""
        behind = math.prod(self.out[dimension + 1 :])
        at = pixel // behind if behind != 1 else pixel
        return at % self.out[dimension] if dimension else at

    # -- the copy ------------------------------------------------------------------------------------------

    @property
    def phases(self) -> Sizes:
        """Number of phases that the taps read, in each dimension."""
        return tuple(
            max(t * d % s for t in range(k)) + 1 for k, d, s in zip(self.filter, self.dilations, self.strides)
        )

    @property
    def copied(self) -> Sizes:
        """Number of positions of a phase, in each dimension."""
        return tuple(
            o + (k - 1) * d // s for o, k, d, s in zip(self.out, self.filter, self.dilations, self.strides)
        )

    @property
    def steps(self) -> Sizes:
        """The distance in the copy between neighbouring positions, in each dimension."""
        return tuple(math.prod(self.copied[i + 1 :]) for i in range(len(self.copied)))

    @property
    def plane(self) -> int:
        """Number of elements of one channel of the copy."""
        return math.prod(self.phases) * math.prod(self.copied)

    def tap(self, indices: Sequence[Operand]) -> Operand:
        """The offset in the copy of a tap from the output's own position."""
        phase: Operand = 0
        offset: Operand = 0
        for t, d, s, count, step in zip(indices, self.dilations, self.strides, self.phases, self.steps, strict=True):
            phase = phase * count + t * d % s
            offset = offset + t * d // s * step
        return phase * math.prod(self.copied) + offset

    def copy(self, kernel: Kernel, source: Buffer, into: Buffer, machine: Machine) -> None:
        """Fills the copy from the source [batch, channels, pixels]."""
        first = self.copied[0] if len(self.sizes) > 1 else 1
        is_large = machine.threads_for(self.batch * self.channels * self.plane) > 1
        with kernel.tasks(self.batch * self.channels * first, "part", is_large) as part:
            channel = kernel.name_value("channel", part // first)
            outermost = [kernel.name_value("p0", part % first)] if len(self.sizes) > 1 else []
            for phases in itertools.product(*map(range, self.phases)):
                with ExitStack() as loops:
                    inner = range(1, len(self.sizes) - 1)
                    positions = outermost + [loops.enter_context(kernel.loop(self.copied[i], f"p{i}")) for i in inner]
                    self._row(kernel, source, into, channel, positions, phases)

    def _row(
        self, kernel: Kernel, source: Buffer, into: Buffer, channel: Value, positions: Sequence[Value], phases: Sizes
    ) -> None:
        """Writes one row of one phase: zeros, pixels, zeros."""
        start = (channel * math.prod(self.phases) + _flat(phases, self.phases)) * math.prod(self.copied)
        for position, step in zip(positions, self.steps):
            start = start + position * step
        pixels = [
            position * stride + (phase - before)
            for position, stride, phase, before in zip(positions, self.strides, phases, self.before)
        ]
        size, stride, width, shift = self.sizes[-1], self.strides[-1], self.copied[-1], phases[-1] - self.before[-1]
        low = min(max(math.ceil(-shift / stride), 0), width)
        high = max(min(math.ceil((size - shift) / stride), width), low)
        row: Operand = 0
        for index, extent in zip(pixels, self.sizes):
            row = row * extent + index

        def inside() -> None:
            _fill(kernel, into, start, low)
            with kernel.loop(high - low, "e") as e:
                position = row * size + e * stride + (low * stride + shift)
                into[start + low + e] = read(source, (channel // self.channels, channel % self.channels, position))
            _fill(kernel, into, start + high, width - high)

        tests = [test for index, extent in zip(pixels, self.sizes) for test in (index >= 0, index < extent)]
        if not tests:
            inside()
            return
        with kernel.when(all_of(tests)):
            inside()
        with kernel.otherwise():
            _fill(kernel, into, start, width)


def _fill(kernel: Kernel, into: Buffer, start: Operand, count: int) -> None:
    with kernel.loop(count, "z") as z:
        into[start + z] = 0.0


def flat(positions: Sequence[Value], sizes: Sequence[int]) -> Value:
    """The flat index of the pixel at these positions of an image."""
    total = positions[0]
    for position, size in zip(positions[1:], sizes[1:], strict=True):
        total = total * size + position
    return total


def _flat(indices: Sizes, sizes: Sizes) -> int:
    number = 0
    for index, size in zip(indices, sizes):
        number = number * size + index
    return number


def make_image(node: Node) -> Image | None:
    """The geometry of a Conv; None if a shape is unknown or empty."""
    data, weight, output = (real_shape(entry) for entry in (node.inputs[0], node.inputs[1], node[0]))
    if data is None or weight is None or output is None or len(data) < 3 or 0 in (*data, *weight, *output):
        return None
    sizes, taps, groups = data[2:], weight[2:], node.attrs.get("group", 1)
    strides, dilations, before, _ = placement(node, sizes, taps)
    return Image(data[0], data[1], groups, weight[0], sizes, taps, strides, dilations, before, output[2:])
