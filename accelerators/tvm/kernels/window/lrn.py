"""Local response normalisation of blocked values: the squares of a pixel's channels are stored contiguously, so that sums over
neighbouring channels are sums of shifted vectors."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, constant, float32, power, sqrt
from partita.accelerators.tvm.kernels.shared.draft import Draft
from partita.accelerators.tvm.kernels.shared.numbers import read, write
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.kernels.shared.shapes import real_shape
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.work import POWERS
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
