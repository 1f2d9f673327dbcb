"""Transposed convolutions on a GPU as products: a row for each output channel and phase of the stride, a column for each pixel of
the image. A sum is stored where its phase has it, so that no phase is written by itself.

Position y of the result is position i of phase q, where y + pad = i * stride + q. It sums the taps q, q + stride, ... over the
pixels i, i - 1, ... of the image: a convolution of all phases by as many taps, where the stride divides the filter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext

import attrs

from accelerators.tvm.bodies.body import Body
from accelerators.tvm.kernels.convolution.gpu_conv import Layer, best_tile, bytes_on_tensor_cores
from accelerators.tvm.kernels.convolution.image import Image, Sizes, flat
from accelerators.tvm.kernels.convolution.layer_draft import draft_layer_of
from accelerators.tvm.kernels.language import Kernel, Value, all_of
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.epilogue import Writer
from accelerators.tvm.kernels.shared.shapes import real_shape
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.sizes.extent import is_less
from graph.node import Node
from graph.types import Array

OP = "ConvTranspose"

MOST_PHASES = 1024
"""A transposed convolution of more phases is left as it is: each has rows of its own."""


def gpu_transposed_convolution(body: Body, machine: Machine) -> Draft | None:
    """A transposed convolution with constant weights and what follows it; None for any other body, and where phases have
    different numbers of taps: what a phase does not have would be multiplied by 0, which is no 0 where the image is infinite."""
    size = bytes_on_tensor_cores(body, machine, OP)

    def cut(root: Node) -> _Transposed | None:
        phases = _find_phases(root)
        return None if phases is None else _Transposed(phases.image, best_tile(phases.image, machine, size), phases)

    return draft_layer_of(body, "gpu_transposed_on_tensor_cores" if size else "gpu_transposed", OP, cut)


@attrs.frozen(slots=True)
class _Phases:
    """The geometry of a transposed convolution."""

    image: Image
    """The convolution that makes all phases, whose output channels are those of the result in each of them."""
    strides: Sizes
    """How far apart neighbouring pixels of the image write."""
    out: Sizes
    """The result's spatial sizes."""
    shifts: Sizes
    """Where the first position of the first phase is in the result."""

    @property
    def count(self) -> int:
        """The number of phases."""
        return math.prod(self.strides)


def _find_phases(node: Node) -> _Phases | None:
    """None for dilations, sizes that are worked out from the result's, a stride that does not divide the filter, and too many
    phases."""
    image, weight, result = (real_shape(entry) for entry in (node.inputs[0], node.inputs[1], node[0]))
    if image is None or weight is None or result is None or len(image) < 3 or 0 in (*image, *weight, *result):
        return None
    rank, attributes = len(image) - 2, node.attrs
    strides = tuple(attributes.get("strides") or (1,) * rank)
    is_automatic = attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or bool(attributes.get("output_shape"))
    if is_automatic or any(dilation != 1 for dilation in attributes.get("dilations") or ()) or math.prod(strides) > MOST_PHASES:
        return None
    if any(size % stride for size, stride in zip(weight[2:], strides, strict=True)):
        return None
    before, out = tuple(attributes.get("pads") or (0,) * rank)[:rank], result[2:]
    taps = tuple(size // stride for size, stride in zip(weight[2:], strides))
    firsts = tuple(pad // stride for pad, stride in zip(before, strides))
    counts = tuple((size - 1 + pad) // stride + 1 - first for size, pad, stride, first in zip(out, before, strides, firsts))
    conv = Image(
        image[0], image[1], int(attributes.get("group", 1)), result[1] * math.prod(strides), image[2:], taps, (1,) * rank,
        (1,) * rank, tuple(tap - 1 - first for tap, first in zip(taps, firsts)), counts,
    )
    return _Phases(conv, strides, out, tuple(f * s - pad for f, s, pad in zip(firsts, strides, before)))


@attrs.frozen(slots=True, eq=False)
class _Transposed(Layer):
    """One transposed convolution and its cut."""

    phases: _Phases

    def pack(self, array: Array) -> Array:
        """The weights [C, O of a group, *filter], as those of the convolution of all phases: tap by tap from the last on."""
        image, strides, rank = self.image, self.phases.strides, len(self.phases.strides)
        split = [size for pair in zip(image.filter, strides, strict=True) for size in pair]
        taps = array.reshape(image.groups, self.inner, array.shape[1], *split)
        reversed_taps = taps[(slice(None),) * 3 + (slice(None, None, -1), slice(None)) * rank]
        order = (0, 2, *range(4, 4 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))
        return Layer.pack(self, reversed_taps.transpose(order).reshape(image.outs, self.inner, *image.filter))

    def store(self, kernel: Kernel, writer: Writer, total: Value, at: Sequence[Value]) -> None:
        """Write a sum where its phase has it in the result, as far as that is inside."""
        phases = self.phases
        picture, row, pixel = at
        positions, tests = list[Value](), list[Value]()
        for d, (stride, size, shift) in enumerate(zip(phases.strides, phases.out, phases.shifts, strict=True)):
            phase = row // math.prod(phases.strides[d + 1 :]) % stride
            position = kernel.name_value(f"position{d}", self.coordinate(pixel, d) * stride + phase + shift)
            positions.append(position)
            tests += [position >= 0] if shift < 0 else []
            tests += [] if is_less(self.image.out[d] * stride + shift, size + 1) else [position < size]
        indices = picture, row // phases.count, flat(positions, phases.out)
        with kernel.when(all_of(tests)) if tests else nullcontext():
            writer.store(total, indices)
