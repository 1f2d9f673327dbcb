"""Lines shared by the threads of a GPU: ArgMax, ArgMin, Hardmax and CumSum; a line is the elements along the middle one of three
dimensions.

Neighbouring threads read neighbouring elements: along the line if its dimension is the last, else on neighbouring lines. Elements
are compared as in `lines.py`; the threads of a line combine their results in shared memory. For prefix sums each thread adds
up a few adjacent elements in order. The sum of all elements before its own is computed in shared memory: in each round a thread
adds the value of a thread twice as far before it. A line is processed piece by piece. The order of summation is fixed, but is not
that of `lines.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    constant,
    if_inside,
    int32,
    int64,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.rows.lines import Best, Order, extreme_sought, largest_sought, sizes_summed
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.node import Node

EACH = 4
"""Minimum number of elements of a line per thread."""

MOST, BLOCK, BESIDE = 256, 128, 32
"""Maximum number of threads of a long line; threads of a block with several lines; adjacent lines that a block reads at once."""


@attrs.frozen(slots=True)
class LineShare:
    """The number of threads that share a line, and the lines of a block."""

    threads: int
    """Threads of a line, a power of two."""
    lines: int
    """Lines of a block, a power of two."""

    @classmethod
    def of(cls, sizes: Sequence[int], gpu: Gpu) -> LineShare:
        """More threads for longer lines, and more lines per block as long as every core still has a block."""
        outer, size, inner = sizes
        count, most = outer * inner, min(gpu.threads, MOST)
        threads = lines = 1
        while inner > 1 and lines * 2 <= min(BESIDE, count, most):
            lines *= 2
        while threads * EACH < size and threads * lines * 2 <= most and (inner == 1 or count * threads < gpu.cores * BLOCK):
            threads *= 2
        while threads * lines * 2 <= min(gpu.threads, BLOCK) and count // (lines * 2) >= gpu.cores:
            lines *= 2
        return cls(threads, lines)

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.lines


@attrs.frozen(slots=True, eq=False)
class Lines:
    """A thread's part of its line, within a kernel."""

    share: LineShare
    sizes: tuple[int, int, int]
    thread: Value
    """Number of the thread in the block."""
    own: Value
    """Number of the thread in its line."""
    line: Value
    """Number of the line in the block."""
    outer: Value
    inner: Value
    """Indices of the line in the dimensions before and after it."""
    is_own: Value | None
    """Condition that the line exists; None: it does. A thread without a line reads the last one again, and writes nothing."""

    def at(self, position: Operand) -> tuple[Operand, ...]:
        """The indices of an element of the line."""
        return self.outer, position, self.inner

    def slot(self, other: Operand) -> Value:
        """The number in the block of another thread of the line."""
        return self.line * self.share.threads + other if self.sizes[2] == 1 else self.line + other * self.share.lines

    def write(self, kernel: Kernel, buffer: Buffer, position: tuple[Operand, ...], value: Value) -> None:
        """Store an element if the line exists."""
        with kernel.when(self.is_own):
            buffer[position] = value


@contextmanager
def launch_lines(kernel: Kernel, sizes: tuple[int, int, int], share: LineShare) -> Iterator[Lines]:
    """A launch in which each block has some lines."""
    outer, _, inner = sizes
    count = outer * inner
    with kernel.launch((-(-count // share.lines), 1, 1), share.block) as (block, _, _, thread):
        is_along = inner == 1
        line = kernel.name_value("line", thread // share.threads if is_along else thread % share.lines)
        own = kernel.name_value("own", thread % share.threads if is_along else thread // share.lines)
        number = block * share.lines + line
        is_rest = count % share.lines != 0
        number = kernel.name_value("number", minimum(number, count - 1) if is_rest else number)
        is_own = block * share.lines + line < count if is_rest else None
        yield Lines(share, sizes, thread, own, line, number // inner, number % inner, is_own)


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


def gpu_running_sums(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one CumSum along a constant dimension; None for any other body."""
    sizes = sizes_summed(body)
    if sizes is None:
        return None
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("running_sums", {0: sizes}, [sizes])
    with launch_lines(kernel, sizes, LineShare.of(sizes, machine.gpu)) as lines:
        _write_sums(kernel, body.ops[0], x, y, lines)
    return problem.draft(kernel, "gpu_running_sums")


def _write_sums(kernel: Kernel, node: Node, x: Buffer, y: Buffer, lines: Lines) -> None:
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
