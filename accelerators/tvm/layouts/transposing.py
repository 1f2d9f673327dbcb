"""A transposed convolution as a convolution with output channels for each phase of its stride; the phases are interleaved.

Position q of the result is row u = (q + pad) // stride of phase (q + pad) % stride; phase r sums the taps r, r + stride, ... over
the rows u, u - 1, ... of the image. Phases with the same number of taps share one convolution. The others cannot be padded with
taps of zero, since an infinite pixel times zero is NaN. Integers are finite, so one convolution computes all of their phases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.window import (
    Kind,
    Sizes,
    Window,
    all_alike,
    has_few_phases,
    have_taps,
    is_cropped_as_told,
    kinds_of,
    placement,
)
from partita.graph.node import Node
from partita.graph.types import Array


@attrs.frozen(slots=True)
class Phases:
    """The geometry of a transposed convolution."""

    sizes: Sizes
    """Size of the image."""
    out: Sizes
    """Size of the result."""
    taps: Sizes
    """Size of the filter."""
    strides: Sizes
    """Distance in the result between neighbouring pixels of the image."""
    before: Sizes
    """Rows and columns that are cropped above and to the left."""
    channels: int
    """Output channels of a phase, rounded up to whole blocks."""

    @property
    def kinds(self) -> list[Kind]:
        """The phases, grouped by their number of taps."""
        return kinds_of(self.taps, self.strides)

    @property
    def alike(self) -> Kind:
        """All phases as one kind, with zeros for the taps that a phase lacks."""
        return all_alike(self.taps, self.strides)

    def window(self, kind: Kind) -> Window:
        """The window of the convolution that makes these phases."""
        rows = [(q - 1 + b) // s + 1 for q, b, s in zip(self.out, self.before, self.strides)]
        return Window(self.sizes, _pair(rows), _pair(kind.taps), (1, 1), (1, 1), _pair([t - 1 for t in kind.taps]))

    def outs(self, kind: Kind) -> int:
        """The number of output channels of these phases."""
        return self.channels * kind.count

    def weights(self, array: Array, kind: Kind) -> Array:
        """[C, O, kh, kw] as [phase, O, C, taps down, taps across]."""
        ins, outs, high, wide = array.shape
        (down, across), (top, left), taps = self.strides, kind.firsts, kind.taps
        split = np.zeros((*kind.counts, self.channels, ins, *taps), array.dtype)
        for i, j in itertools.product(range(high), range(wide)):
            row, column = i % down - top, j % across - left
            if 0 <= row < kind.counts[0] and 0 <= column < kind.counts[1]:
                split[row, column, :outs, :, taps[0] - 1 - i // down, taps[1] - 1 - j // across] = array[:, :, i, j].T
        return split.reshape(self.outs(kind), ins, *taps)

    def bias(self, array: Array, kind: Kind) -> Array:
        """The bias, repeated for each phase."""
        spread = np.zeros((kind.count, self.channels), array.dtype)
        spread[:, : array.size] = array
        return spread.reshape(-1)


def find_phases(node: Node, lanes: int) -> Phases | None:
    """The geometry of a ConvTranspose by constant weights on images [N, C, H, W], its channels in blocks of `lanes`; None for
    groups, dilations, automatic padding, `output_shape`, phases without a tap, and too many phases."""
    image, result = real_shape(node.inputs[0]), real_shape(node[0])
    if image is None or result is None or len(image) != 4 or node.attrs.get("group", 1) != 1 or not is_cropped_as_told(node):
        return None
    weight, *biases = [None if entry is None else entry.node.value for entry in node.inputs[1:]]
    if weight is None or any(bias is None for bias in biases):
        return None
    strides, dilations, before, _ = placement(node, image[2:], weight.shape[2:])
    if dilations != (1, 1) or not has_few_phases(strides) or not have_taps(weight.shape[2:], strides):
        return None
    channels = math.ceil(result[1] / lanes) * lanes
    return Phases(image[2:], result[2:], weight.shape[2:], strides, before, channels)  # type: ignore[arg-type]


def _pair(values: Sequence[int]) -> Sizes:
    return values[0], values[1]
