"""Depthwise convolution on blocked values: a vector is a block of channels, each convolved by itself (`sliding.py`)."""

from __future__ import annotations

import math

import numpy as np

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Operand, Value
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, make_epilogue, plus_bias
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.window import window_of
from partita.accelerators.tvm.kernels.window.sliding import Slide, Spot, slide_over
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.types import Array


def depthwise(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a convolution with one filter per channel; None for any other body."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    root, lanes, problem = roots[0], machine.lanes, Problem.of(body)
    source, weight = (problem.position(entry) for entry in root.inputs[:2])
    given = real_shape(root.inputs[0])
    if len(roots) != 1 or source is None or weight is None or given is None:
        return None
    batch, blocks, _, _ = given
    window = window_of(root)
    beside = {2: (1, blocks, 1, lanes)} if len(root.inputs) > 2 else {}
    after = make_epilogue(body, root, plus_bias, [(i, i + 1) for i in range(4)], beside)
    if after is None or weight in after.operands:
        return None

    def filled(array: Array) -> Array:
        """[block, tap, lane]; the last block is padded with zeros."""
        whole = np.zeros((blocks * lanes, math.prod(array.shape[1:])), array.dtype)
        whole[: array.shape[0]] = array.reshape(array.shape[0], -1)
        return whole.reshape(blocks, lanes, -1).transpose(0, 2, 1).reshape(-1)

    packs = {weight: filled}
    if beside and root.inputs[2] is not None:
        packs[problem.positions[root.inputs[2]]] = lambda array: filled(array).reshape(1, blocks, 1, lanes)
    shapes = {**after.operands, weight: (blocks * lanes * window.count,)}
    kernel, inputs, outputs = problem.kernel("depthwise", shapes, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)

    def tap(total: Value, image: Value, spot: Spot, kh: Value, kw: Operand) -> Value:
        first = ((spot.block * window.taps[0] + kh) * window.taps[1] + kw) * lanes
        return total + image * read(inputs[weight], (first,), lanes)

    def write(total: Value, spot: Spot, pixel: Value, lane: Value, inside: Operand) -> None:
        writer.store(total, (spot.n, spot.block, pixel, lane))

    slide_over(Slide(window, 0.0, tap, write, after.is_long), kernel, inputs[source], batch, blocks, machine)
    return problem.draft(kernel, "depthwise", packs)
