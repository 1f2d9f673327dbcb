"""Warp-level instructions of NVIDIA GPUs: products of small matrices, and the copies that feed them.

Each is a CUDA function around one PTX instruction. All 32 threads of a warp have to execute it together. Arguments in memory are
passed by their first element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from partita.accelerators.tvm.kernels.language.intrinsics import Emit, Intrinsic
from partita.accelerators.tvm.kernels.language.types import (
    Element,
    Type,
    bfloat16,
    element_named,
    float16,
    float32,
    index,
    int32,
    type_of,
    uint8,
    uint16,
    uint32,
)
from partita.accelerators.tvm.machine.instructions import WARP_PRODUCTS, WarpProduct

WARP = 32
"""Number of threads of a warp."""

LINE = 16
"""Bytes of a row of the small matrices that are copied."""

PART = 8
"""Number of rows of such a matrix, and of two-byte elements in each."""

HIGH, WIDE, DEEP = 16, 8, 16
"""An instruction multiplies 16 x 16 two-byte elements by 16 x 8, and adds to 16 x 8 sums. With four-byte elements the depth is
half of that, with bytes twice."""

BITS = {8: uint8, 16: uint16, 32: uint32}
"""The element type of copies, by number of bits."""


def _cuda(name: str, parameters: str, body: str, is_pointer: Sequence[bool], result: str = "void") -> Emit:
    """A call of a CUDA function, whose source is part of the call. Arguments marked `is_pointer` are passed by address."""
    source = f"__device__ __forceinline__ {result} {name}({parameters}) {{\n{body}}}\n"

    def emit(script: Any, dtype: str, given: Sequence[Any]) -> Any:
        passed = [script.address_of(value) if pointer else value for value, pointer in zip(given, is_pointer, strict=True)]
        returned = "void" if result == "void" else dtype
        return script.call_intrin(returned, "tirx.cuda.func_call", name, *passed, source)

    return emit


def _multiplying(row: WarpProduct) -> Intrinsic:
    """Adds the product of a left matrix (four words of each thread) and a right one (two words) to the sums (four per thread).

    Thread 4 g + t of a warp has the sums of rows g and g + 8 and columns 2 t and 2 t + 1, row by row. A word is four bytes that
    are neighbours along the depth: two two-byte elements, or one of four bytes. The thread has word t of rows g and g + 8 of the
    left matrix, then word t + 4 of both; and words t and t + 4 of column g of the right one."""
    sums = element_named(row.sums)
    wanted = [type_of(sums), type_of(uint32), type_of(uint32)]
    kind, register, ending = ("float", "f", "f32") if sums is float32 else ("int", "r", "s32")
    types, short = ".".join((ending, *row.types, ending)), row.types[0] if sums is float32 else "".join(row.types)
    held = ", ".join(f'"+{register}"(sums[{i}])' for i in range(4))
    return Intrinsic(
        f"multiply_{short}", lambda types: types[0] if list(types) == wanted else None,
        f"the first of four {sums}, of four uint32 and of two uint32",
        _cuda(
            f"partita_multiply_{short}", f"{kind}* sums, const unsigned* left, const unsigned* right",
            f'  asm volatile("mma.sync.aligned.m16n8k{row.deep}.row.col.{types} '
            '{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
            f"    : {held}\n"
            '    : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));\n',
            (True, True, True),
        ),
    )


MULTIPLY = {(element_named(row.left), element_named(row.right)): _multiplying(row) for row in WARP_PRODUCTS}
"""The instruction by element types of the left and the right matrix: mma.sync m16n8k16, m16n8k8 for float32 rounded to TF32, and
m16n8k32 for bytes, with int32 sums."""


def sums_of(left: Element) -> Element:
    """The element type of sums, by that of the left matrix."""
    return int32 if left.bits == 8 else float32


def _loading(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 2 and types[0] is type_of(uint32) and types[1] in _moved()
    return types[0] if fits else None


def _moved() -> list[Type]:
    return [type_of(element) for element in BITS.values()]


def _load(name: str, form: str) -> Intrinsic:
    return Intrinsic(
        name, _loading, "the first of four uint32, and a number in shared memory",
        _cuda(
            f"partita_{name}", "unsigned* parts, const void* row",
            "  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));\n"
            f'  asm volatile("ldmatrix.sync.aligned.m8n8.x4{form}.shared.b16 {{%0, %1, %2, %3}}, [%4];"\n'
            '    : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3]) : "r"(at) : "memory");\n',
            (True, True),
        ),
    )


load_matrices = _load("load_matrices", "")
"""Loads four matrices of 8 rows of 16 bytes from shared memory. Thread 8 i + r passes the address of row r of matrix i, and
thread 4 g + t gets word t of row g of each: two two-byte elements, or one of four bytes."""

load_turned_matrices = _load("load_turned_matrices", ".trans")
"""The same, transposed, for 8 x 8 two-byte elements: thread 4 g + t gets rows 2 t and 2 t + 1 of column g of each."""


def _copying(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 3 and types[0] in _moved() and types[1].element.bits == types[0].element.bits
    return types[0] if fits and types[2] is type_of(index) else None


def _copy(size: int) -> Intrinsic:
    how = "cg" if size == 16 else "ca"  # Only copies of 16 bytes can bypass L1.
    return Intrinsic(
        f"copy_{size}", _copying, "a number's bits in shared memory, one of as many bits in memory, and a count of bytes",
        _cuda(
            f"partita_copy_{size}", "void* into, const void* from, int bytes",
            "  unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(into));\n"
            f'  asm volatile("cp.async.{how}.shared.global [%0], [%1], {size}, %2;" :: "r"(at), "l"(from), "r"(bytes)'
            ' : "memory");\n',
            (True, True, False),
        ),
    )


COPIES = {size: _copy(size) for size in (16, 8, 4)}
"""Asynchronous copies from global to shared memory by number of bytes: cp.async. The last argument is the number of bytes to
read, all or 0; zeros fill the rest."""

close_copies = Intrinsic(
    "close_copies", lambda types: None if types else type_of(uint32), "nothing",
    _cuda("partita_close_copies", "", '  asm volatile("cp.async.commit_group;" ::: "memory");\n', ()),
)
"""Makes a group of all copies that the thread has begun since the last such call."""


def _waiting(count: int) -> Intrinsic:
    return Intrinsic(
        f"wait_for_copies_but_{count}", lambda types: None if types else type_of(uint32), "nothing",
        _cuda(f"partita_wait_but_{count}", "", f'  asm volatile("cp.async.wait_group {count};" ::: "memory");\n', ()),
    )


WAITS = tuple([_waiting(count) for count in range(4)])
"""WAITS[n] waits until all groups of the thread's copies but the last n are done."""


def _one_float(types: Sequence[Type]) -> Type | None:
    return types[0] if list(types) == [type_of(float32)] else None


def _exchanging(distance: int) -> Intrinsic:
    name = f"from_{distance}_beside"
    return Intrinsic(
        name, _one_float, "one float32",
        _cuda(
            f"partita_{name}", "float number", f"  return __shfl_xor_sync(0xffffffffu, number, {distance});\n", (False,), "float"
        ),
    )


BESIDE = _exchanging(1), _exchanging(2)
"""Exchanges among four neighbouring threads: each gets the value of the thread 1 or 2 away (shfl.sync.bfly). Both together
reduce over the four, for instance the sums of a row of a product."""

power_of_two = Intrinsic(
    "power_of_two", _one_float, "one float32",
    _cuda(
        "partita_power_of_two", "float number",
        '  float power;\n  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(number));\n  return power;\n', (False,), "float",
    ),
)
"""2 ** x, accurate to about 22 bits: ex2.approx."""


def _two_floats(types: Sequence[Type]) -> Type | None:
    return type_of(uint32) if list(types) == [type_of(float32)] * 2 else None


def _packing(element: Element) -> Intrinsic:
    name = f"pack_{element.short}"
    return Intrinsic(
        name, _two_floats, "two float32",
        _cuda(
            f"partita_{name}", "float low, float high",
            f'  unsigned both;\n  asm("cvt.rn.{element.short}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));\n'
            "  return both;\n",
            (False, False), "unsigned",
        ),
    )


round_to_tf32 = Intrinsic(
    "round_to_tf32", lambda types: types[0] if list(types) == [type_of(uint32)] else None, "the bits of a float32",
    _cuda(
        "partita_round_to_tf32", "unsigned number",
        '  unsigned rounded;\n  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(number)));\n'
        "  return rounded;\n",
        (False,), "unsigned",
    ),
)
"""A float32 rounded to TF32, which has a mantissa of ten bits: cvt.rna."""

PACK = {element: _packing(element) for element in (float16, bfloat16)}
"""Rounds two float32 to 16 bits each, and packs them into a word, the first in its low half: cvt.rn."""
