"""What the 32 threads of a warp do together on an NVIDIA GPU: products of small matrices, and the moves that feed them.

Each is a function of CUDA around one instruction of PTX. All threads of a warp come to it at once. Arguments that stand in memory
are given by their first number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.kernels.language.intrinsics import Emit, Intrinsic
from partita.accelerators.tvm.kernels.language.types import (
    Element,
    Type,
    bfloat16,
    float16,
    float32,
    index,
    int8,
    int32,
    type_of,
    uint8,
    uint16,
    uint32,
)

WARP = 32
"""The threads of a warp."""

LINE = 16
"""The bytes in a row of the small matrices that are moved."""

PART = 8
"""The rows of such a matrix, and the numbers of two bytes in each."""

HIGH, WIDE, DEEP = 16, 8, 16
"""One instruction multiplies 16 x 16 numbers of two bytes by 16 x 8, and adds to 16 x 8 sums. Of numbers of four bytes it takes
half the depth, of bytes twice as much."""

BITS = {8: uint8, 16: uint16, 32: uint32}
"""What numbers of so many bits are while they are only moved."""


def _cuda(name: str, parameters: str, body: str, is_pointer: Sequence[bool], result: str = "void") -> Emit:
    """A call of a function in CUDA's text, which travels with the call. Some of its arguments are the addresses of numbers."""
    source = f"__device__ __forceinline__ {result} {name}({parameters}) {{\n{body}}}\n"

    def emit(script: Any, dtype: str, given: Sequence[Any]) -> Any:
        passed = [script.address_of(value) if pointer else value for value, pointer in zip(given, is_pointer, strict=True)]
        returned = "void" if result == "void" else dtype
        return script.call_intrin(returned, "tirx.cuda.func_call", name, *passed, source)

    return emit


@attrs.frozen(slots=True)
class _Form:
    """What the instruction says of the matrices that it multiplies."""

    left: str
    right: str
    deep: int
    sums: Element = float32

    @property
    def sum_words(self) -> tuple[str, str, str]:
        """The sums' type in CUDA, the kind of register that holds one, and their type in PTX."""
        return ("float", "f", "f32") if self.sums is float32 else ("int", "r", "s32")


def _multiplying(short: str, form: _Form) -> Intrinsic:
    """Sums, four of each thread, with the products of a left matrix, four words of each, and a right one, two words of each.

    Thread 4 g + t of a warp has the sums of rows g and g + 8 and columns 2 t and 2 t + 1, row by row. Of the left matrix it has
    words of neighbours along the depth, which are four bytes, two numbers of two bytes, or one of four: of rows g and g + 8 word
    t, then of both word t + 4; of the right one those of column g, word t and word t + 4."""
    wanted = [type_of(form.sums), type_of(uint32), type_of(uint32)]
    kind, register, ending = form.sum_words
    types = f"{ending}.{form.left}.{form.right}.{ending}"
    held = ", ".join(f'"+{register}"(sums[{i}])' for i in range(4))
    return Intrinsic(
        f"multiply_{short}", lambda types: types[0] if list(types) == wanted else None,
        f"the first of four {form.sums}, of four uint32 and of two uint32",
        _cuda(
            f"partita_multiply_{short}", f"{kind}* sums, const unsigned* left, const unsigned* right",
            f'  asm volatile("mma.sync.aligned.m16n8k{form.deep}.row.col.{types} '
            '{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"\n'
            f"    : {held}\n"
            '    : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));\n',
            (True, True, True),
        ),
    )


_BYTES = {uint8: "u8", int8: "s8"}
"""What PTX calls bytes."""

MULTIPLY = {
    (float16, float16): _multiplying("f16", _Form("f16", "f16", 16)),
    (bfloat16, bfloat16): _multiplying("bf16", _Form("bf16", "bf16", 16)),
    (float32, float32): _multiplying("tf32", _Form("tf32", "tf32", 8)),
    **{
        (left, right): _multiplying(_BYTES[left] + _BYTES[right], _Form(_BYTES[left], _BYTES[right], 32, int32))
        for left in _BYTES for right in _BYTES
    },
}
"""The instruction for products of the left matrix's element type and the right one's: mma.sync m16n8k16, m16n8k8 for float32
rounded to TF32, and m16n8k32 for bytes, whose sums are whole numbers."""


def sums_of(left: Element) -> Element:
    """The element type of the sums of products by numbers of this type."""
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
"""Reads four matrices of 8 rows of 16 bytes from shared memory. Thread 8 i + r says where row r of matrix i begins, and thread
4 g + t gets the four bytes t of row g of each: two numbers of two bytes, or one of four."""

load_turned_matrices = _load("load_turned_matrices", ".trans")
"""The same for 8 x 8 numbers of two bytes, but thread 4 g + t gets those of rows 2 t and 2 t + 1 in column g of each."""


def _copying(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 3 and types[0] in _moved() and types[1].element.bits == types[0].element.bits
    return types[0] if fits and types[2] is type_of(index) else None


def _copy(size: int) -> Intrinsic:
    how = "cg" if size == 16 else "ca"  # Only copies of 16 bytes can pass by the first cache.
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
"""Copies of so many bytes from memory to shared memory, which go on while the thread does: cp.async. So many bytes are read, all
or none, and zeros fill up the rest."""

close_copies = Intrinsic(
    "close_copies", lambda types: None if types else type_of(uint32), "nothing",
    _cuda("partita_close_copies", "", '  asm volatile("cp.async.commit_group;" ::: "memory");\n', ()),
)
"""The thread's copies since the last such call are a group."""


def _waiting(count: int) -> Intrinsic:
    return Intrinsic(
        f"wait_for_copies_but_{count}", lambda types: None if types else type_of(uint32), "nothing",
        _cuda(f"partita_wait_but_{count}", "", f'  asm volatile("cp.async.wait_group {count};" ::: "memory");\n', ()),
    )


WAITS = tuple([_waiting(count) for count in range(4)])
"""The thread waits until all groups of its copies but the last so many are done."""


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
"""A thread of each four beside each other gets the number of its neighbour, and that of the thread two beside it: shfl.sync.bfly.
One after the other they bring together what the four have, as the sums of a row of a product."""

power_of_two = Intrinsic(
    "power_of_two", _one_float, "one float32",
    _cuda(
        "partita_power_of_two", "float number",
        '  float power;\n  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(number));\n  return power;\n', (False,), "float",
    ),
)
"""Two to the power of a number, to some 22 bits: ex2.approx."""


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
"""A float32 rounded to the ten bits behind the point that the instruction for it looks at: cvt.rna."""

PACK = {element: _packing(element) for element in (float16, bfloat16)}
"""Two numbers rounded to two bytes each, the first in the low ones: cvt.rn."""
