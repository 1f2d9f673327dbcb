"""Positions in flat buffers that depend on indices which a kernel reads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, int64, select
from partita.accelerators.tvm.kernels.shared.element_access import Shape


def index_read(kernel: Kernel, indices: Buffer, name: str, position: Operand, size: int) -> Value:
    """The named index at a position; negative ones count from the end of the dimension."""
    index = indices[position].cast(int64)
    return kernel.name_value(name, select(index < 0, index + size, index).as_index())


def summed(terms: Sequence[Operand]) -> Operand:
    """The sum of one or more terms."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def steps_of(shape: Shape) -> Shape:
    """The distance in a flat buffer between neighbours along each dimension."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
