"""Resizes that blend integers, channels last, on a GPU: a thread per result, with the epilogue. The bits equal those of the
processors' kernel: rows are blended first, and products are rounded before they are added."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.language import Value, exactly, float32, int32
from partita.accelerators.tvm.kernels.quantized.byte_enlarging import Mixing
from partita.accelerators.tvm.kernels.quantized.gpu_byte_moves import coordinates_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.loops import each_item
from partita.accelerators.tvm.machine.machine import Machine


def gpu_mix(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a Mix and its epilogue; None for any other body."""
    mixing = Mixing.of(body)
    if mixing is None:
        return None
    root, kernel = mixing.root, mixing.kernel
    sizes, (deep, across), (read_row, read_column) = shape_of(root[0]), root.attrs["image"], mixing.reads
    _, high, wide, channels = sizes

    def mixed(pixel: Value, channel: Value) -> Value:
        """The blend of two columns, each a blend of two rows."""
        n, h, w = coordinates_of(kernel, pixel, high, wide)
        lines = [(kernel.name_value(f"row{i}", (n * deep + at) * across), share) for i, (at, share) in enumerate(read_row(h))]
        halves = []
        for at, share in read_column(w):
            numbers = [mixing.image[(line + at) * channels + channel].cast(int32) - int(root.attrs["zero"]) for line, _ in lines]
            parts = [exactly(number.cast(float32) * own) for number, (_, own) in zip(numbers, lines, strict=True)]
            halves.append(exactly((parts[0] + parts[1]) * share))
        return halves[0] + halves[1]

    with each_item(kernel, math.prod(sizes), machine.gpu) as item:
        pixel, channel = kernel.name_value("pixel", item // channels), kernel.name_value("channel", item % channels)
        mixing.writer.store(mixed(pixel, channel), (pixel, channel))
    return mixing.problem.draft(kernel, "gpu_mixed_integers")
