"""Images enlarged by integer factors on a GPU: each thread computes a pixel of the result, which repeats one pixel of the image,
or blends two of each dimension. `enlarging.py` is the kernel for processors. 16-bit floats are blended in float32."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Value
from partita.accelerators.tvm.kernels.moves.enlarging import is_linear, mixed_pixels, whole_factors
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.machine import Machine


def gpu_enlarge(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a Resize of images [N, C, H, W] alone, nearest or linear, by integer factors; None for any other body."""
    node = body.ops[0]
    image, result = real_shape(node.inputs[0]), real_shape(node[0])
    if len(body.ops) != 1 or image is None or result is None or len(image) != 4:
        return None
    times = whole_factors(node, image[2:], result[2:]) if image[:2] == result[:2] and 0 not in image else None
    if times is None:
        return None
    problem, channels, (height, width), (high, wide) = Problem.of(body), image[0] * image[1], image[2:], result[2:]
    kernel, (x,), (y,) = problem.kernel("enlarge", {0: (channels, height, width)}, [(channels, high, wide)])

    def pixel(channel: Value, row: Value, column: Value) -> Value:
        if not is_linear(node):
            return read(x, (channel, row // times[0], column // times[1]))
        columns = [(kept(kernel, f"c{i}", at), own) for i, (at, own) in enumerate(mixed_pixels(node, column, times[1], width))]
        rows = []
        for line, share in mixed_pixels(node, row, times[0], height):
            parts = [read(x, (channel, line, at)) * own for at, own in columns]
            rows.append((parts[0] + parts[1]) * share)
        return rows[0] + rows[1]

    with each_item(kernel, math.prod((channels, high, wide)), machine.gpu) as item:
        at = kept(kernel, "channel", item // (high * wide)), kept(kernel, "row", item // wide % high), item % wide
        write(y, at, pixel(*at))
    return problem.draft(kernel, "gpu_enlarge")
