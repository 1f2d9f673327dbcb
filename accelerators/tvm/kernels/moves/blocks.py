"""Conversions of blocked values from and to plain ones, and concatenation and shuffling of their channels."""

from __future__ import annotations

import math
from collections.abc import Callable

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_values import JoinedBlocks
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, if_inside, minimum
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape, write
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MOVES


def to_blocked(body: Body, machine: Machine) -> Draft | None:
    """The kernel from [N, C, pixels] to blocked; the last block is padded with zeros."""
    given, result = _shapes(body)
    (_, channels, pixels), (_, _, _, lanes) = given, result
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("to_blocked", {0: given}, [result])

    def copy(n: Value, block: Value, width: int) -> None:
        if width == lanes:
            with kernel.loop(pixels, "p") as p, kernel.lanes(lanes) as lane:
                write(y, (n, block, p, lane), read(x, (n, block * lanes + lane, p)))
            return
        with kernel.loop(pixels, "p") as p, kernel.loop(lanes, "l") as lane:
            write(y, (n, block, p, lane), if_inside(lane < width, read(x, (n, block * lanes + lane, p)), 0.0))

    _each_block(kernel, result, channels, machine, copy)
    return problem.draft(kernel, "to blocked")


def from_blocked(body: Body, machine: Machine) -> Draft | None:
    """The kernel from blocked to [N, C, pixels]."""
    given, result = _shapes(body)
    (_, _, pixels, lanes), (_, channels, _) = given, result
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("from_blocked", {0: given}, [result])

    def copy(n: Value, block: Value, width: int) -> None:
        with kernel.loop(width, "l") as lane, kernel.loop(pixels, "p") as p:
            write(y, (n, block * lanes + lane, p), read(x, (n, block, p, lane)))

    _each_block(kernel, given, channels, machine, copy)
    return problem.draft(kernel, "from blocked")


def _each_block(
    kernel: Kernel, blocked: tuple[int, ...], channels: int, machine: Machine, copy: Callable[[Value, Value, int], None]
) -> None:
    """Writes a copy for each block of channels, the last of which may be narrower."""
    _, blocks, _, lanes = blocked

    def work(n: Value, block: Value) -> None:
        if channels % lanes == 0:
            copy(n, block, lanes)
            return
        with kernel.when(block < blocks - 1):
            copy(n, block, lanes)
        with kernel.otherwise():
            copy(n, block, channels % lanes)

    over_blocks(kernel, blocked, machine, work)


def over_blocks(
    kernel: Kernel, blocked: tuple[int, ...], machine: Machine, work: Callable[[Value, Value], None]
) -> None:
    """Writes the work for each image and block, shared among the threads if it pays off."""
    batch, blocks = blocked[:2]
    with kernel.tasks(batch * blocks, "task", machine.threads_for(math.prod(blocked), MOVES) > 1) as task:
        work(kernel.name_value("n", task // blocks), kernel.name_value("block", task % blocks))


def _shapes(body: Body) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of input and output; plain ones with all pixels merged."""
    root = body.ops[0]
    given, result = real_shape(root.inputs[0]) or (), real_shape(root[0]) or ()
    plain = result if root.op == "FromBlocked" else given
    folded = (*plain[:2], math.prod(plain[2:]))
    return (given, folded) if root.op == "FromBlocked" else (folded, result)


def concat(body: Body, machine: Machine) -> Draft | None:
    """The kernel that concatenates blocks of values, with the element-wise ops after it: one loop for any number of values."""
    root = next(node for node in body.ops if node.domain == DOMAIN)
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    result = real_shape(root[0])
    if after is None or result is None:
        return None
    _, _, pixels, lanes = result
    problem = Problem.of(body)
    kernel, inputs, outputs = problem.kernel("concat", after.operands, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)
    joined = JoinedBlocks.of(kernel, [inputs[problem.positions[entry]] for entry in root.reads])

    def work(n: Value, block: Value) -> None:
        with joined.seen(kernel, n, block) as (source, first), kernel.loop(pixels, "p") as p, kernel.lanes(lanes) as lane:
            writer.store(read(source, (first, p, lane)), (n, block, p, lane))

    over_blocks(kernel, result, machine, work)
    return problem.draft(kernel, "concat")


def shuffle(body: Body, machine: Machine) -> Draft | None:
    """The kernel that shuffles channels: it transposes them as a matrix of `rows` rows."""
    root = body.ops[0]
    shape = real_shape(root[0]) or ()
    _, _, pixels, lanes = shape
    rows, channels = int(root.attrs["rows"]), int(root.attrs["channels"])
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("shuffle")

    def work(n: Value, block: Value) -> None:
        sources: list[Operand] = []
        for lane in range(lanes):
            channel = minimum(block * lanes + lane, channels - 1)
            sources.append(kernel.name_value(f"c{lane}", channel % rows * (channels // rows) + channel // rows))
        with kernel.loop(pixels, "p") as p:
            for lane, source in enumerate(sources):
                y[n, block, p, lane] = x[n, source // lanes, p, source % lanes]

    over_blocks(kernel, shape, machine, work)
    return problem.draft(kernel, "shuffle")
