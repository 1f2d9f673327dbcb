"""Local response normalisation on a GPU: one thread per result, which reads the neighbouring channels. Two-byte elements are
loaded and stored as they are; `lrn.py` is the CPU kernel."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import float32, if_inside
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.shared.draft import Draft
from partita.accelerators.tvm.kernels.shared.numbers import read, write
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.kernels.shared.shapes import real_shape
from partita.accelerators.tvm.kernels.shared.tile import kept
from partita.accelerators.tvm.kernels.window.lrn import normalized
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent

THREADS = 128
"""Number of threads of a block, if the GPU allows as many."""


def gpu_lrn(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a single LRN that is computed in float32; None for any other body."""
    node = body.ops[0]
    shape = real_shape(node[0])
    if len(body.ops) != 1 or node.domain or shape is None or len(shape) < 3 or 0 in shape:
        return None
    problem, size, threads = Problem.of(body), int(node.attrs["size"]), min(THREADS, machine.gpu.threads)
    flat = shape[0], shape[1], math.prod(shape[2:])
    kernel, (x,), (y,) = problem.kernel("lrn", {0: flat}, [flat])
    channels, pixels, count = flat[1], flat[2], math.prod(flat)
    is_any = isinstance(count, Extent)
    with kernel.launch((parts_of(count, threads), 1, 1), threads) as (block, _, _, thread):
        item = kernel.name_value("item", block * threads + thread)
        with kernel.when(item < count):
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
