"""Ops on a GPU that move integers, channels last: concatenation of channels, resizes to the nearest pixel, and interleaving of
the phases of a transposed convolution. A thread moves some neighbouring channels of a pixel at once."""

from __future__ import annotations

import math
from collections.abc import Callable

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.language import Kernel, Value, exactly, float32, int32
from partita.accelerators.tvm.kernels.quantized.moves import Mixing
from partita.accelerators.tvm.kernels.shared.gpu_tile import WIDTH
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent

Move = Callable[[Value, Value], None]
"""Moves some channels of a pixel, from one on."""


def gpu_joined(body: Body, machine: Machine) -> Draft:
    """The kernel for a Concat of channels."""
    node, problem = body.ops[0], Problem.of(body)
    *sizes, channels = shape_of(node[0])
    pixels = math.prod(sizes)
    shapes = {i: (pixels, shape_of(entry)[-1]) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (result,) = problem.kernel("joined", shapes, [(pixels, channels)])
    lanes = _beside_each_other(*(own for _, own in shapes.values()))

    def move(pixel: Value, channel: Value) -> None:
        first = 0
        for entry in node.reads:
            source, own = inputs[problem.positions[entry]], shape_of(entry)[-1]
            with kernel.when((channel >= first) & (channel < first + own)):
                result[pixel, channel] = source.vector(lanes, pixel, channel - first)
            first += own

    _each(kernel, machine, pixels, channels, lanes, move)
    return problem.draft(kernel, "gpu_joined_channels")


def gpu_resized_bytes(body: Body, machine: Machine) -> Draft:
    """The kernel for a resize in which each pixel of the result copies one of the image."""
    node, problem = body.ops[0], Problem.of(body)
    (batch, high, wide, channels), (deep, across) = shape_of(node[0]), node.attrs["image"]
    sizes = {problem.positions[node.reads[0]]: (batch * deep * across, channels)}
    kernel, inputs, (result,) = problem.kernel("resize", sizes, [(batch * high * wide, channels)])
    source, *tables = (inputs[problem.positions[entry]] for entry in node.reads)
    lanes = _beside_each_other(channels)

    def move(pixel: Value, channel: Value) -> None:
        n, *coordinates = coordinates_of(kernel, pixel, high, wide)
        times = node.attrs.get("times")
        h, w = (tables[d][at, 0].as_index() if times is None else at // times[d] for d, at in enumerate(coordinates))
        at = (n * deep + h) * across + w
        result[pixel, channel] = source.vector(lanes, at, channel)

    _each(kernel, machine, batch * high * wide, channels, lanes, move)
    return problem.draft(kernel, "gpu_resized_integers")


def gpu_interleaved_bytes(body: Body, machine: Machine) -> Draft:
    """The kernel that interleaves rows and columns of all phases."""
    node, problem = body.ops[0], Problem.of(body)
    (batch, high, wide, channels), (_, rows, columns, outs) = shape_of(node[0]), shape_of(node.reads[0])
    (down, across), (top, left), groups = node.attrs["strides"], node.attrs["pads"], int(node.attrs["group"])
    own, of_group = channels // groups, outs // groups
    kernel, (source,), (result,) = problem.kernel(
        "interleave", {0: (batch * rows * columns, outs)}, [(batch * high * wide, channels)]
    )
    lanes = _beside_each_other(own, of_group)

    def move(pixel: Value, channel: Value) -> None:
        n, h, w = coordinates_of(kernel, pixel, high, wide)
        h, w = h + top, w + left
        at = (n * rows + h // down) * columns + w // across
        phase = h % down * across + w % across
        first = channel // own * of_group + phase * own + channel % own
        result[pixel, channel] = source.vector(lanes, at, first)

    _each(kernel, machine, batch * high * wide, channels, lanes, move)
    return problem.draft(kernel, "gpu_interleaved_phases")


def coordinates_of(kernel: Kernel, pixel: Value, high: int, wide: int) -> tuple[Value, Value, Value]:
    """The image, the row and the column of a pixel, given the sizes of an image."""
    named = ("n", pixel // (high * wide)), ("h", pixel // wide % high), ("w", pixel % wide)
    is_any = isinstance(high, Extent) or isinstance(wide, Extent)
    n, h, w = (kept(kernel, name, number, is_any) for name, number in named)
    return n, h, w


def _beside_each_other(*counts: int) -> int:
    """Number of neighbouring channels that a thread moves."""
    return WIDTH if all(count % WIDTH == 0 for count in counts) else 1


def _each(kernel: Kernel, machine: Machine, pixels: int, channels: int, lanes: int, move: Move) -> None:
    """Writes a thread for every `lanes` channels of each pixel."""
    each = channels // lanes
    with each_item(kernel, pixels * each, machine.gpu) as item:
        move(kernel.name_value("pixel", item // each), kernel.name_value("channel", item % each * lanes))


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
