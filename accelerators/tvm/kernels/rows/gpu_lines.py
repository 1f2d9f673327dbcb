"""How the threads of a GPU share lines: the numbers along the middle one of three dimensions.

Threads beside each other read numbers beside each other: along the line where nothing stands behind it, else on neighbouring
lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, minimum
from partita.accelerators.tvm.machine.gpu import Gpu

EACH = 4
"""A thread of a line has at least so many of its numbers."""

MOST, BLOCK, BESIDE = 256, 128, 32
"""The threads of a long line at most; those of a block that has several lines; the lines beside each other that a block reads
at once."""


@attrs.frozen(slots=True)
class LineShare:
    """How many threads share a line, and how many lines are in a block."""

    threads: int
    """The threads of a line: a power of two."""
    lines: int
    """The lines of a block: a power of two."""

    @classmethod
    def of(cls, sizes: Sequence[int], gpu: Gpu) -> LineShare:
        """More threads for a longer line, and more lines in a block where that leaves every core one."""
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
        """The threads of a block."""
        return self.threads * self.lines


@attrs.frozen(slots=True, eq=False)
class Lines:
    """One thread's part of its line, while the kernel is written."""

    share: LineShare
    sizes: tuple[int, int, int]
    thread: Value
    """Its number in the block."""
    own: Value
    """Its number among those of its line."""
    line: Value
    """The line's number in the block."""
    outer: Value
    inner: Value
    """Where the line stands in the dimensions before and behind it."""
    is_own: Value | None
    """Is there such a line? None: there is. A thread without one reads the last one again, and writes nothing."""

    def at(self, position: Operand) -> tuple[Operand, ...]:
        """The indices of a number of the line."""
        return self.outer, position, self.inner

    def slot(self, other: Operand) -> Value:
        """The number in the block of another thread of the line."""
        return self.line * self.share.threads + other if self.sizes[2] == 1 else self.line + other * self.share.lines

    def write(self, kernel: Kernel, buffer: Buffer, position: tuple[Operand, ...], value: Value) -> None:
        """Store a number where there is such a line."""
        if self.is_own is None:
            buffer[position] = value
        else:
            with kernel.when(self.is_own):
                buffer[position] = value


@contextmanager
def launch_lines(kernel: Kernel, sizes: tuple[int, int, int], share: LineShare) -> Iterator[Lines]:
    """A launch with a block for some lines."""
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
