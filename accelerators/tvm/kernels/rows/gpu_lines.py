"""Lines shared by the threads of a GPU; a line is the elements along the middle one of three dimensions.

Neighbouring threads read neighbouring elements: along the line if its dimension is the last, else on neighbouring lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, minimum
from partita.accelerators.tvm.machine.gpu import Gpu

EACH = 4
"""Least elements of a line per thread."""

MOST, BLOCK, BESIDE = 256, 128, 32
"""Most threads of a long line; threads of a block with several lines; adjacent lines that a block reads at once."""


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
