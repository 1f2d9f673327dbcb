"""ArgMax, ArgMin and Hardmax on a GPU: some threads share each line, and combine their results in shared memory. Elements are
compared as in `positions.py`."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Value,
    constant,
    int32,
    int64,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.rows.gpu_lines import Lines, LineShare, launch_lines
from partita.accelerators.tvm.kernels.rows.positions import Best, Order, extreme_sought, largest_sought
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.machine import Machine


def gpu_position(body: Body, machine: Machine) -> Draft | None:
    """The kernel for ArgMax or ArgMin; None for any other body."""
    search = extreme_sought(body)
    if search is None:
        return None
    problem, (outer, _, inner) = Problem.of(body), search.sizes
    kernel, (x,), (y,) = problem.kernel("positions", {0: search.sizes}, [(outer, inner)])
    with launch_lines(kernel, search.sizes, LineShare.of(search.sizes, machine.gpu)) as lines:
        at = _position(kernel, x, lines, search.order)
        with kernel.when(lines.own.equals(0)):
            lines.write(kernel, y, (lines.outer, lines.inner), at.cast(int64))
    return problem.draft(kernel, "gpu_positions")


def gpu_one_at_the_largest(body: Body, machine: Machine) -> Draft | None:
    """The kernel for Hardmax along the last dimension, or along all from one on."""
    search = largest_sought(body)
    if search is None:
        return None
    problem, size, share = Problem.of(body), search.sizes[1], LineShare.of(search.sizes, machine.gpu)
    kernel, (x,), (y,) = problem.kernel("positions", {0: search.sizes}, [search.sizes])
    with launch_lines(kernel, search.sizes, share) as lines:
        at = kernel.name_value("at", _position(kernel, x, lines, search.order))

        def mark(position: Value) -> None:
            is_best = position.cast(int32).equals(at)
            lines.write(kernel, y, lines.at(position), select(is_best, constant(1, y.element), constant(0, y.element)))

        with kernel.loop(size // share.threads, "i") as i:
            mark(i * share.threads + lines.own)
        if size % share.threads:
            with kernel.when(lines.own < size % share.threads):
                mark(size - size % share.threads + lines.own)
    return problem.draft(kernel, "gpu_positions")


def _position(kernel: Kernel, x: Buffer, lines: Lines, order: Order) -> Value:
    """Position of the best element of the thread's line. A thread without an element of its own starts with the line's last."""
    size, threads = lines.sizes[1], lines.share.threads
    best = Best.of(kernel, 1, order)
    first = kernel.name_value("first", minimum(lines.own, size - 1) if threads > size else lines.own)
    best.begin(1, lambda _: x[lines.at(first)])
    best.positions[0] = first.cast(int32)

    def append(position: Value) -> None:
        best.append(order.key(x[lines.at(position)]), position.cast(int32))

    with kernel.loop(size // threads - 1, "i") as i:
        append((i + 1) * threads + lines.own)
    if size > threads and size % threads:
        with kernel.when(lines.own < size % threads):
            append(size - size % threads + lines.own)
    return _joined(kernel, best, lines)


def _joined(kernel: Kernel, best: Best, lines: Lines) -> Value:
    """Position of the best of all threads of the line: in each round half of them take over another one's result."""
    share = lines.share
    if share.threads == 1:
        return best.positions[0]
    numbers = kernel.shared("numbers", best.order.element, (share.block,))
    positions = kernel.shared("positions", int32, (share.block,))
    half = share.threads
    while half > 1:
        with kernel.when(lines.own < half):
            numbers[lines.thread] = best.numbers[0]
            positions[lines.thread] = best.positions[0]
        kernel.barrier()
        half //= 2
        with kernel.when(lines.own < half):
            other = lines.slot(lines.own + half)
            best.join(numbers[other], positions[other])
    with kernel.when(lines.own.equals(0)):
        positions[lines.thread] = best.positions[0]
    kernel.barrier()
    return positions[lines.slot(0)]
