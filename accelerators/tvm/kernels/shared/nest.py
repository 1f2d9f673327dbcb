"""Nests of loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from accelerators.tvm.kernels.language import Kernel, Operand


@contextmanager
def nest(kernel: Kernel, sizes: Sequence[int], is_shared: bool, name: str = "d") -> Iterator[list[Operand]]:
    """A block for each position of an array of these sizes: nested loops, or one loop over all positions that threads share.
    Counters have this name and a number."""
    with ExitStack() as loops:
        if not is_shared or math.prod(sizes) == 1:
            yield [loops.enter_context(kernel.loop(size, f"{name}{d}")) if size != 1 else 0 for d, size in enumerate(sizes)]
            return
        task = loops.enter_context(kernel.loop(math.prod(sizes), "task", "parallel"))
        indices: list[Operand] = []
        for d, size in enumerate(sizes):
            index = task // math.prod(sizes[d + 1 :])
            indices.append((index % size if d else index) if size != 1 else 0)
        yield indices
