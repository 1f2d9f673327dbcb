"""Prefix sums along a line on a GPU: CumSum.

Each thread of a line takes a few adjacent elements and adds them up in order. The sum of all elements before its own is computed
in shared memory: in each round a thread adds the value of a thread twice as far before it. A line is processed piece by piece.
The order of summation is fixed, but is not that of `running_sums.py`."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Value, constant, if_inside
from partita.accelerators.tvm.kernels.rows.gpu_lines import EACH, Lines, LineShare, launch_lines
from partita.accelerators.tvm.kernels.rows.running_sums import sizes_summed
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.node import Node


def gpu_running_sums(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one CumSum along a constant dimension; None for any other body."""
    sizes = sizes_summed(body)
    if sizes is None:
        return None
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("running_sums", {0: sizes}, [sizes])
    with launch_lines(kernel, sizes, LineShare.of(sizes, machine.gpu)) as lines:
        _write(kernel, body.ops[0], x, y, lines)
    return problem.draft(kernel, "gpu_running_sums")


def _write(kernel: Kernel, node: Node, x: Buffer, y: Buffer, lines: Lines) -> None:
    """Writes the line piece by piece; `carried` is the sum of all pieces before."""
    size, threads = lines.sizes[1], lines.share.threads
    excludes, is_reversed = bool(node.attrs.get("exclusive", 0)), bool(node.attrs.get("reverse", 0))
    zero, count = constant(0, x.element), EACH if threads > 1 else 1
    pieces = -(-size // (threads * count))
    carried = kernel.stack("carried", x.element, (1,))
    carried[0] = zero
    sums = kernel.stack("sums", x.element, (count,))
    between = kernel.shared("between", x.element, (2 * lines.share.block,)) if threads > 1 else None
    with kernel.loop(pieces, "piece") as piece:
        first = kernel.name_value("first", (piece * threads + lines.own) * count)

        def at(i: int) -> Value:
            return size - 1 - (first + i) if is_reversed else first + i

        for i in range(count):
            number = x[lines.at(at(i))]
            number = number if size % (threads * count) == 0 else if_inside(first + i < size, number, zero)
            sums[i] = number if i == 0 else sums[i - 1] + number
        before = kernel.stack("before", x.element, (1,))
        before[0] = carried[0]
        carried[0] = carried[0] + (sums[0] if between is None else _shared_sums(kernel, lines, between, sums[count - 1], before))
        for i in range(count):
            value = before[0] if excludes and i == 0 else before[0] + sums[i - 1 if excludes else i]
            with kernel.when(first + i < size):
                lines.write(kernel, y, lines.at(at(i)), value)


def _shared_sums(kernel: Kernel, lines: Lines, between: Buffer, own: Value, before: Buffer) -> Value:
    """Adds to `before` the sums of the line's threads before this one; returns the sum of all its threads."""
    block, stage, distance = lines.share.block, 0, 1
    kernel.barrier()  # All threads have read the sums of the piece before.
    between[lines.thread] = own
    kernel.barrier()
    while distance < lines.share.threads:
        here, there = stage * block, (1 - stage) * block
        between[there + lines.thread] = between[here + lines.thread]
        with kernel.when(lines.own >= distance):
            between[there + lines.thread] = between[here + lines.thread] + between[here + lines.slot(lines.own - distance)]
        kernel.barrier()
        stage, distance = 1 - stage, distance * 2
    with kernel.when(lines.own >= 1):
        before[0] = before[0] + between[stage * block + lines.slot(lines.own - 1)]
    return between[stage * block + lines.slot(lines.share.threads - 1)]
