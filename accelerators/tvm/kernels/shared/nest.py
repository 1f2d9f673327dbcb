"""Nests of loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS
from partita.accelerators.tvm.sizes.extent import Extent, known_least


def is_shared_out(amount: int, machine: Machine, least: int = STEPS) -> bool | Value:
    """True if so much work is split among the threads; for a dynamic amount a condition that is evaluated at run time. On a GPU,
    whose threads wait for nobody, any work is split."""
    is_enough = machine.threads > 1 and (machine.is_gpu or known_least(amount) >= least)
    if is_enough or machine.threads == 1 or not isinstance(amount, Extent):
        return is_enough
    factor = math.gcd(*amount.terms.values())  # The amount itself may overflow indices of 32 bits.
    return as_index(amount // factor) >= math.ceil(least / factor)


@contextmanager
def nest(kernel: Kernel, sizes: Sequence[Operand], is_shared: bool | Value, name: str = "d") -> Iterator[list[Operand]]:
    """A block for each position of an array of these sizes: nested loops, or one parallel loop over all positions. Loop variables
    are `name` plus a number."""
    with ExitStack() as loops:
        if is_shared is False or all(map(_is_one, sizes)):
            named = [(size, f"{name}{d}") for d, size in enumerate(sizes)]
            yield [0 if _is_one(size) else loops.enter_context(kernel.loop(size, counter)) for size, counter in named]
            return
        task = loops.enter_context(kernel.tasks(math.prod(sizes), "task", is_shared))
        indices: list[Operand] = []
        for d, size in enumerate(sizes):
            index = task // math.prod(sizes[d + 1 :])
            indices.append((index % size if d else index) if not _is_one(size) else 0)
        yield indices


def _is_one(size: Operand) -> bool:
    """True if the size is statically 1."""
    return isinstance(size, int) and size == 1
