"""Local response normalisation.

On a processor values are blocked: the squares of a pixel's channels are stored contiguously, so that sums over neighbouring
channels are sums of shifted vectors. On a GPU each thread computes one result and reads the neighbouring channels; two-byte
elements are loaded and stored as they are."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, constant, float32, if_inside, power, sqrt
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape, write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import POWERS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node


def lrn(body: Body, machine: Machine) -> Draft | None:
    """The kernel for LRN, a window over each channel's neighbours; None if the shape is unknown."""
    root, problem = body.ops[0], Problem.of(body)
    shape = real_shape(root[0])
    if shape is None:
        return None
    batch, blocks, pixels, lanes = shape
    bands = machine.threads_for(batch * blocks * pixels * lanes, POWERS)
    kernel, (x,), (y,) = problem.kernel("lrn")
    with kernel.tasks(batch * bands, "task", bands > 1) as task:
        n, band = kernel.name_value("n", task // bands), kernel.name_value("band", task % bands)
        first, last = band * pixels // bands, (band + 1) * pixels // bands
        with kernel.loop(last - first, "p_") as p:
            _pixel(root, kernel, x, y, n, kernel.name_value("p", first + p))
    return problem.draft(kernel, "lrn")


def _pixel(root: Node, kernel: Kernel, x: Buffer, y: Buffer, n: Value, p: Value) -> None:
    """Normalizes all channels of one pixel."""
    _, blocks, _, lanes = real_shape(root[0]) or ()
    size, channels = int(root.attrs["size"]), int(root.attrs["channels"])
    before, after = (size - 1) // 2, size // 2
    squares = kernel.stack("squares", float32, (before + blocks * lanes + after,))
    with kernel.loop(blocks, "block") as block:
        image = read(x, (n, block, p, 0), lanes)
        squares[before + block * lanes] = image * image
    for i in (*range(before), *range(before + channels, before + blocks * lanes + after)):
        squares[i] = 0.0
    with kernel.loop(blocks, "block") as block:
        total = squares.vector(lanes, block * lanes)
        for d in range(1, size):
            total = total + squares.vector(lanes, block * lanes + d)
        write(y, (n, block, p, 0), normalized(root, read(x, (n, block, p, 0), lanes), total))


def normalized(root: Node, x: Value, total: Value) -> Value:
    """x / (bias + alpha * mean square) ** beta; the usual beta of 0.75 is computed by square roots."""
    alpha, beta, bias = (float(root.attrs.get(*pair)) for pair in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    base = total * (alpha / int(root.attrs["size"])) + bias
    if beta == 0.75:
        return x / (sqrt(base) * sqrt(sqrt(base)))
    return x / power(base, constant(beta, float32, x.type.lanes))


def gpu_lrn(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a single LRN that is computed in float32; None for another type or an unknown shape."""
    node = body.ops[0]
    shape = real_shape(node[0])
    if shape is None or len(shape) < 3 or 0 in shape:
        return None
    problem, size = Problem.of(body), int(node.attrs["size"])
    flat = shape[0], shape[1], math.prod(shape[2:])
    kernel, (x,), (y,) = problem.kernel("lrn", {0: flat}, [flat])
    channels, pixels, count = flat[1], flat[2], math.prod(flat)
    is_any = isinstance(count, Extent)
    with each_item(kernel, count, machine.gpu) as item:
        pixel = kept(kernel, "pixel", item % pixels, is_any)
        channel = kept(kernel, "channel", item // pixels % channels, is_any)
        picture = kept(kernel, "picture", item // (pixels * channels), is_any)
        total = kernel.stack("total", float32, (1,))
        total[0] = 0.0
        with kernel.loop(size, "tap") as tap:
            other = kernel.name_value("other", channel + tap - (size - 1) // 2)
            number = read(x, (picture, other, pixel))
            squared = total[0] + number * number
            total[0] = if_inside((other >= 0) & (other < channels), squared, total[0])
        at = picture, channel, pixel
        write(y, at, normalized(node, read(x, at), total[0]))
    return problem.draft(kernel, "gpu_lrn")
