"""The meaning of the instructions that add products to sums, and the choice of one by element type.

Each is a row of `machine/instructions.py`, which has its operand layout and its cost. Here it gets two functions: the instruction
itself, and portable code that computes the same bits, so that its users are compiled, run and checked on every processor. Sums of
bytes are exact, so that all instructions for them compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Registers,
    Value,
    bfdot,
    bfmmla,
    constant,
    dot_bfloat16,
    element_named,
    even_lanes,
    float32,
    fmlal,
    int8,
    int16,
    int32,
    int64,
    low_halves,
    maximum,
    named,
    odd_lanes,
    sdot,
    select,
    uint8,
    uint32,
    uint64,
    usdot,
    usmmla,
    vpdpbusd,
    vpermps,
    vpmaddwd,
)
from partita.accelerators.tvm.kernels.language.buffers import Index
from partita.accelerators.tvm.kernels.language.emit import Narrowing
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.kernels.shared.element_access import HALVES, read
from partita.accelerators.tvm.machine.instructions import BY_NAME, Special, Used
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.types import Array

Number = Callable[[Value, Operand], Value]
"""Reads the left operand in a row of the tile, at a step of the depth."""

Add = Callable[[Value, Value, Value], Value]
"""A vector of sums, plus the products of a left operand, spread over all lanes, and a vector of the right matrix."""


@attrs.frozen(slots=True)
class Instruction:
    """An instruction as a machine executes it: by itself, or in portable code."""

    row: Special
    """Its row of the table."""
    lanes: int
    """Sums of a vector; 0: as many as the tile's."""
    function: Add | None
    """The function that adds products to a vector of sums; None: a loop over the lanes, or tile registers."""
    less: Callable[[Value, Value], Value] | None = None
    """Adds to sums what `function` adds too much, by a vector of the right matrix. It is the same for all rows, so that a kernel
    may sum it up once."""

    def __str__(self) -> str:
        return self.row.name

    @property
    def group(self) -> int:
        """Neighbours along the depth that are multiplied at once."""
        return self.row.group

    @property
    def rows(self) -> int:
        """Rows that are multiplied at once."""
        return self.row.rows

    @property
    def widens(self) -> bool:
        """True if operands of 16 bits are widened before it."""
        return self.row.left == "float32"

    @property
    def left_element(self) -> Element:
        """The element type in which it takes the left matrix."""
        return element_named(self.row.left)

    @property
    def right_element(self) -> Element:
        """The element type in which it takes the right matrix."""
        return element_named(self.row.right)

    @property
    def word(self) -> Element:
        """The integers by which the neighbours of a step are read."""
        return int32 if self.group * self.left_element.bits == 32 else int64

    @property
    def right_size(self) -> int:
        """Elements of the right matrix that a step of one vector takes."""
        return self.lanes * self.group

    @property
    def is_exact(self) -> bool:
        """True if it adds up integers."""
        return self.row.multiplies == "int8"

    @property
    def is_by_columns(self) -> bool:
        """True if the neighbours of a column are adjacent; else those of all columns with the same place in the group are."""
        return self.row.name != "plain"

    def add(self, total: Value, left: Value, right: Value) -> Value:
        """A vector of sums, plus the products of a left operand, spread over all lanes, and a vector of the right matrix."""
        assert self.function is not None
        return self.function(total, left, right)

    def left(self, buffer: Buffer, *position: Operand) -> Value:
        """The left operand, from a position on."""
        if self.group == 1:
            return self._one(buffer, position)
        return buffer.vector(self.group, *position).regrouped(self.word)

    def steps(self, depth: int) -> int:
        """Number of steps for this depth; the last is padded with zeros."""
        return -(-depth // self.group)

    def right(self, buffer: Buffer, position: Operand, lanes: int = 0) -> Value:
        """The right operand, from a position of the packed matrix on."""
        lanes = lanes or self.lanes // self.rows
        if self.group == 1:
            return self._one(buffer, (position,), lanes)
        numbers = buffer.vector(self.group * lanes, position)
        return numbers.cast(self.right_element) if self.is_exact else numbers.regrouped(int32)

    def _one(self, buffer: Buffer, position: tuple[Operand, ...], lanes: int = 1) -> Value:
        return read(buffer, position, lanes) if self.widens else buffer.vector(lanes, *position)

    def pack(self, numbers: Array) -> Array:
        """[..., column, neighbour] in the order of the instruction."""
        ordered = numbers if self.is_by_columns else numbers.swapaxes(-1, -2)
        return np.ascontiguousarray(ordered).reshape(*numbers.shape[:-2], self.right_size)

    def position(self, column: Operand, neighbour: int) -> Operand:
        """Position of a neighbour in a column within its step."""
        return column * self.group + neighbour if self.is_by_columns else neighbour * self.lanes + column

    def step(self, kernel: Kernel, acc: Registers, at: Index, left: Value, right: Buffer, first: Value) -> None:
        """Adds a step's products of bytes to the vector of sums at a position of the tile. `left` is a word that all columns
        share, or a vector with 32 bits for each column."""
        if self.function is not None:
            columns = self.right(right, first)
            total = acc[at] if self.less is None else acc[at] - self.less(constant(0, int32, self.lanes), columns)
            acc[at] = self.function(total, left if left.type.lanes > 1 else left.spread(self.lanes), columns)
            return
        numbers_of = self._numbers(kernel, left)
        with kernel.lanes(self.lanes) as lane:
            total = acc.lane(at, lane)
            for i, number in enumerate(numbers_of(lane)):
                total = total + number * right[first + self.position(lane, i)].cast(int32)
            acc.set_lane(at, lane, total)

    def _numbers(self, kernel: Kernel, left: Value) -> Callable[[Value], list[Value]]:
        """A function that splits the word of a column into elements."""

        def apart(word: Value) -> list[Value]:
            bits, size = word.bits_as(uint32 if self.word is int32 else uint64), self.left_element.bits
            return [((bits >> (size * i)) & ((1 << size) - 1)).cast(self.left_element).cast(int32) for i in range(self.group)]

        if left.type.lanes == 1:
            shared = apart(left)
            return lambda lane: shared
        words = kernel.registers("words", int32, (1,), self.lanes)
        words[0] = left
        return lambda lane: apart(words.lane(0, lane))


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

def _vnni(total: Value, left: Value, right: Value) -> Value:
    return vpdpbusd(total, left.regrouped(uint8), right)


def _usdot(total: Value, left: Value, right: Value) -> Value:
    return usdot(total, left.regrouped(uint8), right)


def _sdot(total: Value, left: Value, right: Value) -> Value:
    """The products of signed bytes, which are 128 less than the unsigned ones."""
    return sdot(total, (left ^ _SIGNS).regrouped(int8), right)


def _sdot_less(total: Value, right: Value) -> Value:
    """The products of -128."""
    return sdot(total, constant(-128, int8, right.type.lanes), right)


_SIGNS = 0x80808080 - (1 << 32)
"""The highest bits of four bytes."""


def _usmmla(total: Value, left: Value, right: Value) -> Value:
    return usmmla(total, left.regrouped(uint8), right)


def _words(total: Value, left: Value, right: Value) -> Value:
    """The products in 16-bit integers, two products of which fit 32 bits."""
    return total + vpmaddwd(left.regrouped(int16), right)


@attrs.frozen(slots=True)
class Meaning:
    """The functions of an instruction."""

    add: Add | None = None
    """The instruction itself; None for one that keeps its sums in tiles, and for portable code."""
    portable: Add | None = None
    """The same bits in portable code; None: a loop over the lanes."""
    less: Callable[[Value, Value], Value] | None = None
    """Adds to a sum the surplus that the instruction adds to it."""


MEANINGS: Mapping[str, Meaning] = {
    "avx512-vnni": Meaning(_vnni),
    "avx-vnni": Meaning(_vnni),
    "avx2": Meaning(_words),
    "usmmla": Meaning(_usmmla),
    "usdot": Meaning(_usdot),
    "sdot": Meaning(_sdot, less=_sdot_less),
    "vdpbf16ps": Meaning(dot_bfloat16, _dot_bfloat16_emulated),
    "bfmmla": Meaning(bfmmla, _bfmmla_emulated),
    "bfdot": Meaning(bfdot, _bfdot_emulated),
    "fma": Meaning(_multiply_and_add, _multiply_and_add),
    "fmlal": Meaning(fmlal, _fmlal_emulated),
}
"""By the names of the table. Portable code for bytes is the loop of `Instruction.step`, that of tile registers is in
`amx.py`."""


@cache
def instruction_named(name: str, is_emulated: bool = False, lanes: int = 0) -> Instruction:
    """The instruction of a row; `lanes` is the number of sums if the row has none of its own."""
    row, meaning = BY_NAME[name], MEANINGS.get(name, Meaning())
    if is_emulated:
        return Instruction(row, row.lanes or lanes, meaning.portable)
    return Instruction(row, row.lanes or lanes, meaning.add, meaning.less)


FMA = instruction_named("fma")
"""float32 times float32, fused by LLVM if the processor can. Narrower elements are widened first."""


def instruction_for(dtype: str, machine: Machine, takes_groups: bool = True) -> Instruction:
    """The instruction that sums products of two matrices of this element type, whose neighbours along the depth may be adjacent
    (`takes_groups`) or not."""
    used = machine.instruction(dtype) if takes_groups else None
    row = used and (BY_NAME[used.row.single] if used.row.single else used.row)
    if not used or not row or row.group == 1 or row.has_tiles or machine.lanes != used.row.lanes:
        return FMA
    special, is_fast = instruction_named(row.name), used.is_asked or machine.arch not in row.slow
    candidates = [special, FMA] if is_fast else [FMA, special]
    chosen = choose("instruction", candidates, candidates.index)
    return instruction_named(row.name, True) if used.is_emulated and chosen is special else chosen


def instruction_for_rows(dtype: str, depth: int, machine: Machine) -> Instruction | None:
    """The instruction for several rows at once; None if the machine has none, or the depth does not consist of its groups. Bytes
    are padded to these."""
    used = machine.instruction(dtype)
    if used is None or used.row.rows == 1:
        return None
    fits = dtype == "int8" or (depth % used.row.group == 0 and machine.lanes == used.row.lanes)
    return instruction_named(used.name, used.is_emulated) if fits else None


def instruction_for_stored(dtype: str, machine: Machine) -> Instruction:
    """The instruction if the right matrix is read as it is stored: FMA would widen float16 in each step."""
    used = machine.instruction(dtype)
    if used is None or used.row.group > 1 or used.row.left != dtype or machine.lanes != used.row.lanes:
        return instruction_for(dtype, machine)
    return instruction_named(used.name, used.is_emulated)


def instruction_for_bytes(machine: Machine) -> Instruction:
    """The instruction that sums products of bytes in vectors, also of few rows."""
    used = machine.instruction("int8") or Used("plain")
    return instruction_named(used.row.single or used.name, used.is_emulated, machine.lanes)


def plain_bytes(lanes: int) -> Instruction:
    """Sums of products of bytes in portable code, for `lanes` columns."""
    return instruction_named("plain", lanes=lanes)


def instruction_in_tiles(dtype: str, machine: Machine) -> Instruction | None:
    """The instruction that keeps its sums in tile registers; None if the machine has none for this element type."""
    used = machine.instruction(dtype)
    return instruction_named(used.name, used.is_emulated) if used is not None and used.row.has_tiles else None


def in_lanes(instruction: Instruction, lanes: int, machine: Machine) -> Instruction:
    """The instruction for vectors of `lanes` lanes: for fewer than the processor's it is emulated by portable code, to the same
    bits."""
    return instruction if instruction.group == 1 or lanes == machine.lanes else instruction_named(str(instruction), True)


def is_faster(dtype: str, machine: Machine) -> bool:
    """True if the processor has an instruction by which products of this element type are faster than those of float32."""
    used = machine.instruction(dtype)
    if used is None or used.is_emulated:
        return False
    return used.row.has_tiles or instruction_for(dtype, machine) is not FMA


def products_of_words(instruction: Instruction, first: Value, second: Value) -> Value:
    """The products of 16-bit elements, added in pairs, by an instruction for those."""
    if instruction.function is not None:
        return vpmaddwd(first, second)
    (a, b), (c, d) = _apart(first), _apart(second)
    return a * c + b * d


def _apart(numbers: Value) -> tuple[Value, Value]:
    """The even and the odd elements."""
    bits = numbers.regrouped(uint32)
    return (bits & 0xFFFF).cast(int16).cast(int32), (bits >> 16).cast(int16).cast(int32)


def lookup_for(lanes: int, machine: Machine) -> Callable[[Value, Value], Value] | None:
    """The instruction that looks half bytes up in a table of 16 float32; None if the machine has none for vectors of so many
    lanes. Arithmetic computes the same."""
    used = machine.instruction("int4")
    return None if used is None or used.is_emulated or lanes != used.row.lanes else vpermps


def narrowing_of(machine: Machine) -> Narrowing:
    """The mode in which the machine's kernels round to bfloat16."""
    used = machine.instruction("bfloat16")
    if used is None or not used.row.flushes or machine.lanes != used.row.lanes:
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
