"""What a kernel may call, each with its signature; everything else is arithmetic.

An intrinsic is one row: what it takes, what it makes, and what it is for TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.expressions import Call, Load
from partita.accelerators.tvm.kernels.language.types import (
    Type,
    float32,
    int8,
    int16,
    int32,
    int64,
    type_of,
    uint8,
)
from partita.accelerators.tvm.kernels.language.values import Value

Emit = Callable[[Any, str, Sequence[Any]], Any]
"""Makes TVM's expression from TVM's script module, the result's TVM type and the arguments."""


@attrs.frozen(slots=True, eq=False)
class Intrinsic:
    """One function that a kernel may call."""

    name: str
    """The intrinsic's name in the text of a kernel."""
    result: Callable[[Sequence[Type]], Type | None]
    """The type of what it makes of arguments of these types; None where they do not fit."""
    takes: str
    """What it takes, in words, for the error."""
    emit: Emit
    """The call as TVM's expression."""
    code: str = ""
    """The function that is called, as LLVM's text, where it is no function of TVM's or of LLVM's."""

    def __call__(self, *arguments: Value) -> Call:
        """An expression that calls it."""
        types = [argument.type for argument in arguments]
        result = self.result(types)
        if result is None:
            raise CompileError(f"{self.name} takes {self.takes}, not {', '.join(map(str, types)) or 'nothing'}")
        return Call(result, self, arguments)


def _same_float(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 1 and types[0].element.kind == "float"
    return types[0] if fits else None


def _two_floats(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 2 and types[0] is types[1] and types[0].element.kind == "float"
    return types[0] if fits else None


def _two_whole_numbers(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 2 and types[0] is types[1] and types[0].element.is_whole
    return types[0] if fits else None


def _lane_of_vector(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 1 and types[0].lanes > 1 and types[0].element.kind == "float"
    return type_of(types[0].element) if fits else None


def _any_one(types: Sequence[Type]) -> Type | None:
    return types[0] if len(types) == 1 else None


def _dot(types: Sequence[Type]) -> Type | None:
    """Sums, and for each of them the bytes of 32 bits on either side."""
    if len(types) != 3 or types[0].element is not int32:
        return None
    wide = types[0].lanes * 4
    return types[0] if types[1:] == [type_of(uint8, wide), type_of(int8, wide)] else None


def _table(types: Sequence[Type]) -> Type | None:
    """Numbers of a vector, and where in it."""
    fits = len(types) == 2 and types[0] is type_of(float32, 16) and types[1] is type_of(int32, 16)
    return types[0] if fits else None


def _pairs(types: Sequence[Type]) -> Type | None:
    """Two vectors of 16-bit numbers."""
    fits = len(types) == 2 and types[0] is types[1] and types[0].element is int16 and types[0].lanes % 2 == 0
    return type_of(int32, types[0].lanes // 2) if fits else None


def _plain(name: str) -> Emit:
    return lambda script, dtype, given: getattr(script, name)(*given)


def _joined(name: str, *before: float) -> Emit:
    """A reduction over a vector's lanes by LLVM's intrinsic."""

    def emit(script: Any, dtype: str, given: Sequence[Any]) -> Any:
        start = [getattr(script, dtype)(value) for value in before]
        return script.call_llvm_pure_intrin(dtype, f"llvm.vector.reduce.{name}", *start, *given)

    return emit


def _llvm(name: str) -> Emit:
    """A call of LLVM's intrinsic."""
    return lambda script, dtype, given: script.call_llvm_pure_intrin(dtype, f"llvm.x86.{name}", *given)


def _generic(name: str) -> Emit:
    """A call of LLVM's intrinsic for all processors."""
    return lambda script, dtype, given: script.call_llvm_pure_intrin(dtype, f"llvm.{name}", *given)


def _by_width(name: str) -> Emit:
    """A call of LLVM's intrinsic, whose name ends in the bits of the vector that it makes."""
    return lambda script, dtype, given: script.call_llvm_pure_intrin(
        dtype, f"llvm.x86.{name}.{32 * int(dtype.partition('x')[2])}", *given
    )


def _prefetch(script: Any, dtype: str, given: Sequence[Any]) -> Any:
    return script.call_intrin("void", "tirx.prefetch", script.address_of(given[0]), 0, 3, 1)


def _function(name: str, called: str = "") -> Intrinsic:
    """A function of one number."""
    return Intrinsic(name, _same_float, "one value of floating point", _plain(called or name))


sqrt = _function("sqrt")
exp = _function("exp")
log = _function("log")
floor, ceil, nearest = _function("floor"), _function("ceil"), _function("nearest", "nearbyint")
CIRCULAR = {name: _function(name) for name in ("sin", "cos", "tan")}
"""Functions of angles, by name; each is a call into the C library."""
power = Intrinsic("power", _two_floats, "two values of one floating-point type", _plain("pow"))
float_remainder = Intrinsic("float_remainder", _two_floats, "two values of one floating-point type", _plain("Mod"))
"""What is left of the first after whole multiples of the second; it has the sign of the first."""
quotient = Intrinsic("quotient", _two_whole_numbers, "two whole numbers of one type", _plain("truncdiv"))
"""How often the second goes into the first, toward zero; the operator // rounds down. Nothing may be divided by zero."""
remainder = Intrinsic("remainder", _two_whole_numbers, "two whole numbers of one type", _plain("truncmod"))
"""What the quotient leaves of the first."""
lane_sum = Intrinsic("lane_sum", _lane_of_vector, "one vector of floating point", _joined("fadd", 0.0))
lane_max = Intrinsic("lane_max", _lane_of_vector, "one vector of floating point", _joined("fmax"))
lane_min = Intrinsic("lane_min", _lane_of_vector, "one vector of floating point", _joined("fmin"))
exactly = Intrinsic("exactly", _same_float, "one value of floating point", _generic("arithmetic.fence"))
"""The number as it was rounded: it is not worked into the instruction that reads it."""
vpdpbusd = Intrinsic("vpdpbusd", _dot, "sums, unsigned bytes and signed ones, four for each sum", _by_width("avx512.vpdpbusd"))
vpmaddwd = Intrinsic("vpmaddwd", _pairs, "two vectors of i16", _llvm("avx2.pmadd.wd"))
vpermps = Intrinsic("vpermps", _table, "a table of 16 float32, and 16 positions in it as int32", _llvm("avx512.permvar.sf.512"))
"""The numbers of a table at positions, of which the low four bits count."""


def _tile_memory(types: Sequence[Type]) -> Type | None:
    """A tile's number, a number in memory, and how many bytes its rows are apart."""
    return types[1] if len(types) == 3 and types[0] is type_of(int8) and types[2] is type_of(int32) else None


def _tile_numbers(types: Sequence[Type]) -> Type | None:
    return types[0] if len(types) == 3 and all(given is type_of(int8) for given in types) else None


def _tile_load_or_store(name: str) -> Emit:
    """A tile and memory: rows of bytes, so many bytes apart."""
    return lambda script, dtype, given: script.call_llvm_intrin(
        "void", f"llvm.x86.{name}", given[0], script.address_of(given[1]), script.cast(given[2], "int64")
    )


TAKES = "a tile's number, a number in memory and a distance"
tile_load = Intrinsic("tile_load", _tile_memory, TAKES, _tile_load_or_store("tileloadd64"))
tile_store = Intrinsic("tile_store", _tile_memory, TAKES, _tile_load_or_store("tilestored64"))
tile_configure = Intrinsic(
    "tile_configure", _any_one, "the first of 64 bytes that say how large tiles are",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.ldtilecfg", script.address_of(given[0])),
)
tile_release = Intrinsic(
    "tile_release", lambda types: type_of(int32), "nothing",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.tilerelease"),
)
tdpbusd = Intrinsic(
    "tdpbusd", _tile_numbers, "three tiles' numbers",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.tdpbusd", *given),
)
"""Adds the products of the second tile's unsigned bytes and the third's signed ones to the first's sums, four to each."""
tdpbf16ps = Intrinsic(
    "tdpbf16ps", _tile_numbers, "three tiles' numbers",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.tdpbf16ps", *given),
)
"""Adds the products of pairs of bfloat16 to the first tile's sums of float32."""
tile_zero = Intrinsic(
    "tile_zero", _any_one, "a tile's number",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.tilezero", *given),
)
barrier = Intrinsic(
    "barrier", lambda types: None if types else type_of(int32), "nothing",
    lambda script, dtype, given: script.tvm_storage_sync("shared"),
)
"""Threads of a block wait for each other."""
prefetch = Intrinsic("prefetch", _any_one, "the number whose line of the cache is wanted", _prefetch)


def _dot_types(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 3 and types[0] is type_of(float32, 16) and types[1] is types[2] is type_of(int32, 16)
    return types[0] if fits else None


def _extern(name: str) -> Emit:
    return lambda script, dtype, given: script.call_pure_extern(dtype, name, *given)


dot_bfloat16 = Intrinsic(
    "dot_bfloat16",
    _dot_types,
    "16 sums of float32, and twice 16 pairs of bfloat16 as int32",
    _extern("partita_dot_bfloat16"),
    """
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define <16 x float> @partita_dot_bfloat16(<16 x float> %sums, <16 x i32> %left, <16 x i32> %right) alwaysinline {
  %a = bitcast <16 x i32> %left to <32 x bfloat>
  %b = bitcast <16 x i32> %right to <32 x bfloat>
  %made = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %sums, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %made
}
""",
)
"""Both products of each pair, added to the sums: vdpbf16ps of AVX512-BF16. Called by a function of ours, since TVM makes float32
of arguments that are bfloat16."""


ADDRESSES_CODE = """
define i64 @partita_address(ptr %pointer) alwaysinline {
  %address = ptrtoint ptr %pointer to i64
  ret i64 %address
}
define ptr @partita_pointer(i64 %address) alwaysinline {
  %pointer = inttoptr i64 %address to ptr
  ret ptr %pointer
}
"""
"""Addresses as numbers, and back: TVM takes no choice of pointers."""
address = Intrinsic(
    "address", lambda types: type_of(int64) if len(types) == 1 else None, "the number whose address is wanted",
    lambda script, dtype, given: script.call_extern(dtype, "partita_address", script.address_of(given[0])), ADDRESSES_CODE,
)
"""Where a number of a buffer stands in memory."""


def prefetch_of(number: Value) -> Call:
    """A call that fetches the line of the cache in which this number of a buffer stands."""
    if not isinstance(number, Load):
        raise CompileError(f"{number} stands in no buffer: only what does can be fetched ahead")
    return prefetch(number)
