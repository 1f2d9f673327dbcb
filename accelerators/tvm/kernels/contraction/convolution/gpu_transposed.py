"""Transposed convolutions on a GPU as matrix products: one row per output channel and phase of the stride, one column per pixel
of the image. A sum is stored directly at the position of its phase in the result.

Position y of the result is position i of phase q, where y + pad = i * stride + q. It sums the taps q, q + stride, ... over the
pixels i, i - 1, ... of the image: one convolution for all phases. If the stride does not divide the filter, the first phases have
one tap more than the others. So there are several kinds of phases, and a block computes rows of one kind: absent taps must not be
multiplied as zeros, since zero times an infinite pixel is NaN."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.convolution.gpu_conv import (
    Band,
    Place,
    TiledConvolution,
    best_tile,
    bytes_on_tensor_cores,
)
from partita.accelerators.tvm.kernels.contraction.convolution.layer import draft_layer_of
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, all_of, select
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import Writer
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import kept
from partita.accelerators.tvm.kernels.shared.window import (
    Convolved,
    Kind,
    Sizes,
    Window,
    all_alike,
    flat,
    has_few_phases,
    have_taps,
    is_cropped_as_told,
    kinds_of,
    placement,
)
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import is_less
from partita.graph.node import Node
from partita.graph.types import Array


def gpu_transposed_convolution(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a transposed convolution with constant weights and its epilogue; None for any other body."""
    size = bytes_on_tensor_cores(body, machine, _is_root)

    def cut(root: Node) -> _Transposed | None:
        phases = _find_phases(root)
        if phases is None:
            return None
        return _Transposed(phases.image, best_tile(phases.image, machine, size, len(phases.kinds)), phases=phases)

    return draft_layer_of(body, "gpu_transposed_on_tensor_cores" if size else "gpu_transposed", _is_root, cut)


def _is_root(node: Node) -> bool:
    return node.op == "ConvTranspose" and not node.domain


@attrs.frozen(slots=True)
class _Phases:
    """The geometry of a transposed convolution."""

    image: Convolved
    """The convolution that computes all phases: its output channels are those of the result in each phase. Its filter is that of
    the phases with the most taps."""
    filter: Sizes
    """The filter's spatial sizes."""
    strides: Sizes
    """The distances between the outputs of neighbouring pixels of the image."""
    out: Sizes
    """The result's spatial sizes."""
    firsts: Sizes
    """The first position that lies inside the result for some phase, in each dimension."""
    shifts: Sizes
    """The coordinates of that position of phase 0 in the result; at most 0."""

    @property
    def count(self) -> int:
        """Number of phases."""
        return math.prod(self.strides)

    @property
    def kinds(self) -> list[Kind]:
        """The phases, grouped by their number of taps."""
        return kinds_of(self.filter, self.strides)


def _find_phases(node: Node) -> _Phases | None:
    """The phases of a ConvTranspose; None for dilations, automatic padding, a stride beyond the filter, and too many phases."""
    image, weight, result = (real_shape(entry) for entry in (node.inputs[0], node.inputs[1], node[0]))
    if image is None or weight is None or result is None or len(image) < 3 or 0 in (*image, *weight, *result):
        return None
    ones = (1,) * (len(image) - 2)
    strides, dilations, before, _ = placement(node, image[2:], weight[2:])
    if not is_cropped_as_told(node) or dilations != ones:
        return None
    if not have_taps(weight[2:], strides) or not has_few_phases(strides):
        return None
    out, taps = result[2:], all_alike(weight[2:], strides).taps
    firsts = tuple(pad // stride for pad, stride in zip(before, strides))
    counts = tuple((size - 1 + pad) // stride + 1 - first for size, pad, stride, first in zip(out, before, strides, firsts))
    shifts = tuple(f * s - pad for f, s, pad in zip(firsts, strides, before))
    before = tuple(tap - 1 - first for tap, first in zip(taps, firsts))
    window, groups = Window(image[2:], counts, taps, ones, ones, before), int(node.attrs.get("group", 1))
    conv = Convolved(image[0], window, image[1], result[1] * math.prod(strides), groups)
    return _Phases(conv, weight[2:], strides, out, firsts, shifts)


@attrs.frozen(slots=True, eq=False)
class _PhaseRows(Band):
    """The rows of a block: output channels in phases of one kind."""

    firsts: tuple[Operand, ...]
    """The first of these phases, in each dimension."""
    counts: tuple[Operand, ...]
    """Number of these phases, in each dimension."""


@attrs.frozen(slots=True, eq=False)
class _Transposed(TiledConvolution):
    """A transposed convolution and its cut."""

    phases: _Phases = attrs.field(kw_only=True)

    @property
    def channels(self) -> int:
        """Number of output channels of a group."""
        return self.image.own // self.phases.count

    @property
    def widths(self) -> Sequence[int]:
        """Number of rows of each kind."""
        return [self.channels * kind.count for kind in self.phases.kinds]

    def rows_of(self, array: Array) -> Iterable[Sequence[Array]]:
        """For each group its part of the weights [C, O of a group, *filter], kind by kind, the taps in reverse order."""
        return map(self._kinds_of, array.reshape(self.image.groups, self.image.inner, *array.shape[1:]))

    def _kinds_of(self, weights: Array) -> Sequence[Array]:
        """The rows of each kind for a group's weights."""
        rows = []
        for kind in self.phases.kinds:
            phases = itertools.product(*(range(f, f + n) for f, n in zip(kind.firsts, kind.counts, strict=True)))
            by_channel = np.stack([self._taps_of(weights, phase) for phase in phases], 2).transpose(1, 2, 0, 3)
            rows.append(by_channel.reshape(-1, *by_channel.shape[2:]))
        return rows

    def _taps_of(self, weights: Array, phase: Sizes) -> Array:
        """The taps [C, O, tap] of a phase, in reverse order."""
        every = [slice(p, None, stride) for p, stride in zip(phase, self.phases.strides, strict=True)]
        taps = weights[(slice(None), slice(None), *every)]
        return np.flip(taps, tuple(range(2, taps.ndim))).reshape(self.image.inner, self.channels, -1)

    def band(self, kernel: Kernel, number: Value) -> _PhaseRows:
        """The rows of the blocks with this index."""
        kinds, phases = self.phases.kinds, self.phases
        ends = list(itertools.accumulate(self.packed.counts))

        def of_kind(name: str, numbers: Sequence[int]) -> Operand:
            """The entry for the block's kind."""
            if len(set(numbers)) == 1:
                return numbers[0]
            value: Value = as_index(numbers[-1])
            for end, own in zip(ends[-2::-1], numbers[-2::-1], strict=True):
                value = select(number < end, as_index(own), value)
            return kept(kernel, name, value)

        def of_dimensions(name: str, sizes: Sequence[Sizes]) -> tuple[Operand, ...]:
            return tuple(of_kind(f"{name}{d}", along) for d, along in enumerate(zip(*sizes, strict=True)))

        taps = of_dimensions("taps", [kind.taps for kind in kinds])
        return _PhaseRows(
            kept(kernel, "top", (number - of_kind("start", [0, *ends[:-1]])) * self.tile.rows, len(kinds) > 1),
            of_kind("rows", self.widths),
            taps,
            tuple(tap - 1 - first for tap, first in zip(taps, phases.firsts, strict=True)),
            of_kind("deep", [self.image.inner * math.prod(kind.taps) for kind in kinds]),
            of_dimensions("phase", [kind.firsts for kind in kinds]),
            of_dimensions("phases", [kind.counts for kind in kinds]),
        )

    def store(self, kernel: Kernel, writer: Writer, total: Value, band: Band, group: Value, at: Place) -> None:
        """Writes a sum at the position of its phase in the result, if that is inside."""
        assert isinstance(band, _PhaseRows)
        phases, (picture, row, pixel) = self.phases, at
        positions, tests = list[Value](), list[Value]()
        for d, (stride, size, shift) in enumerate(zip(phases.strides, phases.out, phases.shifts, strict=True)):
            phase = row // math.prod(band.counts[d + 1 :]) % band.counts[d] + band.firsts[d]
            position = kernel.name_value(f"position{d}", self.image.window.coordinate(pixel, d) * stride + phase + shift)
            positions.append(position)
            tests += [position >= 0] if shift < 0 else []
            tests += [] if is_less(self.image.window.out[d] * stride + shift, size + 1) else [position < size]
        indices = picture, group * self.channels + row // math.prod(band.counts), flat(positions, phases.out)
        with kernel.when(all_of(tests) if tests else None):
            writer.store(total, indices)
