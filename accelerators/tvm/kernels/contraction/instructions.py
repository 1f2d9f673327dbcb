"""Instructions that add products to a tile's sums. Each has one description, by which a kernel reads and packs its operands.

A special instruction of a processor is one row of the table, with a portable function that computes the same bits: code that uses
it is compiled, run and checked on every processor."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    bfdot,
    bfmmla,
    dot_bfloat16,
    even_lanes,
    float32,
    fmlal,
    int32,
    int64,
    low_halves,
    maximum,
    named,
    odd_lanes,
    select,
)
from partita.accelerators.tvm.kernels.language.emit import Narrowing
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.element_access import HALVES, read
from partita.accelerators.tvm.machine.instructions import BY_NAME
from partita.accelerators.tvm.machine.machine import Machine

Number = Callable[[Value, Operand], Value]
"""Reads the left operand in a row of the tile, at a step of the depth."""

Add = Callable[[Value, Value, Value], Value]
"""A vector of sums, plus the products of a left operand, spread over all lanes, and a vector of the right matrix."""


@attrs.frozen(slots=True)
class Instruction:
    """One way to add products to sums."""

    name: str
    """Its name in choices."""
    add: Add
    """The function that adds products to sums."""
    group: int = 1
    """Number of neighbours along the depth that are multiplied at once. Their bits are one left operand, and they are adjacent in
    the packed right matrix."""
    rows: int = 1
    """Number of rows that are multiplied at once, by as many columns: sums of two rows are then held by two columns."""
    widens: bool = False
    """True if operands of 16 bits are widened before it."""

    def __str__(self) -> str:
        return self.name

    def left(self, buffer: Buffer, *position: Operand) -> Value:
        """The left operand, from a position on."""
        if self.group == 1:
            return self._one(buffer, position)
        return buffer.vector(self.group, *position).regrouped(int32 if self.group == 2 else int64)

    def steps(self, depth: int) -> int:
        """Number of steps for this depth; the last is padded with zeros."""
        return -(-depth // self.group)

    def right(self, buffer: Buffer, position: Operand, lanes: int) -> Value:
        """The right operand, from a position of the packed matrix on."""
        if self.group == 1:
            return self._one(buffer, (position,), lanes)
        return buffer.vector(self.group * lanes, position).regrouped(int32)

    def _one(self, buffer: Buffer, position: tuple[Operand, ...], lanes: int = 1) -> Value:
        return read(buffer, position, lanes) if self.widens else buffer.vector(lanes, *position)


def _multiply_and_add(total: Value, left: Value, right: Value) -> Value:
    return total + left * right


def _dot_bfloat16_emulated(total: Value, left: Value, right: Value) -> Value:
    """Adds the products of the odd elements first, then those of the even ones. Subnormal numbers are flushed to zero."""

    total = _flushed(total + _odd(left) * _odd(right))
    return _flushed(total + _odd(left << 16) * _odd(right << 16))


def _flushed(x: Value) -> Value:
    return named(x, lambda x: select(maximum(x, 0.0 - x) < 1.1754943508222875e-38, 0.0, x))


def _odd(pair: Value) -> Value:
    """The odd element of a pair."""
    return _flushed((pair & -65536).bits_as(float32))


def _bfdot_emulated(total: Value, left: Value, right: Value) -> Value:
    """Adds the sum of both products; either addition is rounded to odd. Subnormal numbers are flushed to zero."""
    low, high = (_flushed(_odd(left << i) * _odd(right << i)) for i in (16, 0))
    return _sum_to_odd(_flushed(total), _sum_to_odd(low, high))


def _sum_to_odd(a: Value, b: Value) -> Value:
    """The sum, truncated, with its last bit set if it is not exact; the error of the nearest sum is exact too."""

    def rounded(a: Value, b: Value, nearest: Value) -> Value:
        return named(nearest - a, lambda part: named((a - (nearest - part)) + (b - part), lambda error: of(nearest, error)))

    def of(nearest: Value, error: Value) -> Value:
        bits, is_exact = nearest.bits_as(int32), error.equals(0.0)
        away = (bits ^ error.bits_as(int32)) < 0  # The nearest is beyond the sum.
        odd = select(away, bits - 1, bits) | 1
        return _flushed(select(is_exact, bits, odd).bits_as(float32))

    return named(a, lambda a: named(b, lambda b: named(a + b, lambda nearest: rounded(a, b, nearest))))


def _bfmmla_emulated(total: Value, left: Value, right: Value) -> Value:
    """The same for the first pairs of two rows and two columns, then for their second ones."""
    for pairs in (even_lanes, odd_lanes):
        rows, columns = pairs(left, left), pairs(right, right)  # Of the first, of the second, and both again.
        total = _bfdot_emulated(total, low_halves(even_lanes(rows, rows), odd_lanes(rows, rows)), columns)
    return total


def _fmlal_emulated(total: Value, left: Value, right: Value) -> Value:
    """The same rounds once too, fused or not: float32 holds the product of two float16."""
    return total + left.cast(float32) * right.cast(float32)


FMA = Instruction("fma", _multiply_and_add, widens=True)
"""float32 times float32, fused by LLVM if the processor can. Narrower elements are widened first."""

DOT_BFLOAT16 = Instruction("vdpbf16ps", dot_bfloat16, 2)
"""Pairs of bfloat16, two products per sum."""


BFDOT = Instruction("bfdot", bfdot, 2)
"""Arm's, for pairs of bfloat16: two products per sum."""

BFMMLA = Instruction("bfmmla", bfmmla, 4, 2)
"""Arm's, for two rows and two columns of four bfloat16: the bits are those of two steps of bfdot."""

FMLAL = Instruction("fmlal", fmlal)
"""Arm's, for float16: the bits are those of FMA."""


@attrs.frozen(slots=True)
class Way:
    """A special instruction, with its emulation and the processors on which it is slow."""

    instruction: Instruction
    """The instruction, under its name in `machine/instructions.py`."""
    emulated: Add
    """The same in portable code."""
    slow: tuple[str, ...] = ()
    """Processors, by LLVM's name, on which float32 is faster."""
    several: str = ""
    """The instruction for several rows that its processors have too, and that some kernels use."""


WAYS = (
    Way(DOT_BFLOAT16, _dot_bfloat16_emulated, ("cooperlake", "sapphirerapids", "emeraldrapids")),
    Way(BFDOT, _bfdot_emulated, several="bfmmla"),
)
"""The instructions that kernels use on some processors."""


def instruction_for(dtype: str, machine: Machine) -> Instruction:
    """The instruction that sums products of two matrices of this element type."""
    used = machine.instruction(dtype)
    way = next((way for way in WAYS if used is not None and used.name in (way.instruction.name, way.several)), None)
    if used is None or way is None or machine.lanes != BY_NAME[used.name].lanes:
        return FMA
    is_fast = used.is_asked or machine.arch not in way.slow
    candidates = [way.instruction, FMA] if is_fast else [FMA, way.instruction]
    chosen = choose("instruction", candidates, candidates.index)
    return attrs.evolve(chosen, add=way.emulated) if used.is_emulated and chosen is way.instruction else chosen


def instruction_for_rows(dtype: str, depth: int, machine: Machine) -> Instruction | None:
    """The instruction for several rows at once; None if the machine has none, or the depth does not consist of its groups."""
    used = machine.instruction(dtype)
    if used is None or used.name != BFMMLA.name or depth % BFMMLA.group or machine.lanes != BY_NAME[used.name].lanes:
        return None
    return attrs.evolve(BFMMLA, add=_bfmmla_emulated) if used.is_emulated else BFMMLA


def instruction_for_stored(dtype: str, machine: Machine) -> Instruction:
    """The instruction if the right matrix is read as it is stored: FMA would widen float16 in each step."""
    used = machine.instruction(dtype)
    if used is None or used.name != FMLAL.name or machine.lanes != BY_NAME[used.name].lanes:
        return instruction_for(dtype, machine)
    return attrs.evolve(FMLAL, add=_fmlal_emulated) if used.is_emulated else FMLAL


def in_lanes(instruction: Instruction, lanes: int, machine: Machine) -> Instruction:
    """The instruction for vectors of `lanes` lanes: for fewer than the processor's it is emulated by portable code, to the same
    bits."""
    way = next((way for way in WAYS if way.instruction == instruction), None)
    return instruction if way is None or lanes == machine.lanes else attrs.evolve(instruction, add=way.emulated)


def is_faster(dtype: str, machine: Machine) -> bool:
    """True if the processor has an instruction by which products of this element type are faster than those of float32."""
    used = machine.instruction(dtype)
    if used is None or used.is_emulated:
        return False
    return used.name == "amx-bf16" or instruction_for(dtype, machine) is not FMA


def narrowing_of(machine: Machine) -> Narrowing:
    """The mode in which the machine's kernels round to bfloat16."""
    used = machine.instruction("bfloat16")
    if used is None or not BY_NAME[used.name].flushes or machine.lanes != BY_NAME[used.name].lanes:
        return "exact"
    return "flushed" if used.is_emulated else "native"


def widened(kernel: Kernel, dtype: str, rows: int, depth: int, lanes: int) -> Callable[[Number], Number]:
    """The reader of a tile's left operand: the matrix itself, or, if it is stored in 16 bits, a copy of the tile's rows, widened
    once and not for each vector of the right matrix."""
    if dtype not in HALVES:
        return lambda number: number
    length = depth if isinstance(depth, int) else as_index(depth)
    copy = kernel.memory("rows", float32, (rows * length,))

    def copied(number: Number) -> Number:
        with kernel.loop(rows, "r") as r:
            with kernel.loop(length // lanes, "v") as v, kernel.lanes(lanes) as lane:
                copy[r * length + (v * lanes + lane)] = number(r, v * lanes + lane)
            with kernel.loop(length % lanes, "e") as e:
                copy[r * length + (length // lanes * lanes + e)] = number(r, length // lanes * lanes + e)
        return lambda r, k: copy[r * length + k]

    return copied
