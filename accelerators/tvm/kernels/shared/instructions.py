"""How a tile's sums take up products: each way is one description, which tiles are given."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from accelerators.tvm.kernels.language import Kernel, Operand, Value, float32
from accelerators.tvm.kernels.shared.numbers import HALVES

Number = Callable[[Value, Operand], Value]
"""The left matrix's number in a row of the tile, at a step of the depth."""


@attrs.frozen(slots=True)
class Instruction:
    """One way to add products to sums."""

    name: str
    """What it is called in reports and choices."""
    add: Callable[[Value, Value, Value], Value]
    """A vector of sums, with the products of a single number of the left matrix and a vector of the right one."""


def _multiply_and_add(total: Value, left: Value, right: Value) -> Value:
    return total + left.spread(right.type.lanes) * right


FMA = Instruction("fma", _multiply_and_add)
"""float32 times float32, which LLVM makes one instruction of where the processor has it."""


def widened(kernel: Kernel, dtype: str, rows: int, depth: int) -> Callable[[Number], Number]:
    """What a tile reads of the left matrix: the matrix itself, or, where its numbers are stored narrow, a copy of the tile's
    rows in which each is widened once and not for each vector of the right matrix."""
    if dtype not in HALVES:
        return lambda number: number
    copy = kernel.memory("rows", float32, (rows * depth,))

    def copied(number: Number) -> Number:
        with kernel.loop(rows, "r") as r, kernel.loop(depth, "k") as k:
            copy[r * depth + k] = number(r, k)
        return lambda r, k: copy[r * depth + k]

    return copied
