"""The functions that a kernel may call, with their signatures; everything else is arithmetic.

Each is an `Intrinsic`: the types of its arguments and result, and the TVM expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.expressions import Call, Load
from partita.accelerators.tvm.kernels.language.types import Type, float16, float32, int8, int16, int32, int64, type_of, uint8
from partita.accelerators.tvm.kernels.language.values import Value

Emit = Callable[[Any, str, Sequence[Any]], Any]
"""Builds TVM's expression from TVM's script module, the result's TVM type and the arguments."""


@attrs.frozen(slots=True, eq=False)
class Intrinsic:
    """A function that a kernel may call."""

    name: str
    """The intrinsic's name in the text of a kernel."""
    result: Callable[[Sequence[Type]], Type | None]
    """The result type for arguments of these types; None if they do not match."""
    takes: str
    """A description of its arguments, for the error."""
    emit: Emit
    """Builds the call as TVM's expression."""
    code: str = ""
    """The called function in LLVM IR, unless TVM or LLVM has it."""

    def __call__(self, *arguments: Value) -> Call:
        """A call of the intrinsic."""
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
    """The signature of vpdpbusd: int32 sums, with four uint8 and four int8 for each."""
    if len(types) != 3 or types[0].element is not int32:
        return None
    wide = types[0].lanes * 4
    return types[0] if types[1:] == [type_of(uint8, wide), type_of(int8, wide)] else None


def _signed_dot(types: Sequence[Type]) -> Type | None:
    """The signature of sdot: int32 sums, with four int8 of either side for each."""
    if len(types) != 3 or types[0].element is not int32:
        return None
    return types[0] if types[1] is types[2] is type_of(int8, types[0].lanes * 4) else None


def _table(types: Sequence[Type]) -> Type | None:
    """The signature of vpermps: a vector, and positions in it."""
    fits = len(types) == 2 and types[0] is type_of(float32, 16) and types[1] is type_of(int32, 16)
    return types[0] if fits else None


def _pairs(types: Sequence[Type]) -> Type | None:
    """The signature of vpmaddwd: two vectors of int16."""
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
    """A call of LLVM's intrinsic for x86."""
    return lambda script, dtype, given: script.call_llvm_pure_intrin(dtype, f"llvm.x86.{name}", *given)


def _generic(name: str) -> Emit:
    """A call of LLVM's portable intrinsic."""
    return lambda script, dtype, given: script.call_llvm_pure_intrin(dtype, f"llvm.{name}", *given)


def _by_width(name: str) -> Emit:
    """A call of LLVM's intrinsic for x86 whose name ends in the bits of the result vector."""
    return lambda script, dtype, given: script.call_llvm_pure_intrin(
        dtype, f"llvm.x86.{name}.{32 * int(dtype.partition('x')[2])}", *given
    )


def _prefetch(script: Any, dtype: str, given: Sequence[Any]) -> Any:
    return script.call_intrin("void", "tirx.prefetch", script.address_of(given[0]), 0, 3, 1)


def _function(name: str, called: str = "") -> Intrinsic:
    """A function of one floating-point value."""
    return Intrinsic(name, _same_float, "one value of floating point", _plain(called or name))


sqrt = _function("sqrt")
exp = _function("exp")
log = _function("log")
floor, ceil, nearest = _function("floor"), _function("ceil"), _function("nearest", "nearbyint")
CIRCULAR = {name: _function(name) for name in ("sin", "cos", "tan")}
"""Trigonometric functions by name; each is a call into the C library."""
power = Intrinsic("power", _two_floats, "two values of one floating-point type", _plain("pow"))
float_remainder = Intrinsic("float_remainder", _two_floats, "two values of one floating-point type", _plain("Mod"))
"""The remainder of the first by the second, with the sign of the first (fmod)."""
quotient = Intrinsic("quotient", _two_whole_numbers, "two whole numbers of one type", _plain("truncdiv"))
"""The quotient, truncated toward zero; the operator // rounds down. The divisor must not be zero."""
remainder = Intrinsic("remainder", _two_whole_numbers, "two whole numbers of one type", _plain("truncmod"))
"""The remainder of `quotient`."""
lane_sum = Intrinsic("lane_sum", _lane_of_vector, "one vector of floating point", _joined("fadd", 0.0))
lane_max = Intrinsic("lane_max", _lane_of_vector, "one vector of floating point", _joined("fmax"))
lane_min = Intrinsic("lane_min", _lane_of_vector, "one vector of floating point", _joined("fmin"))
exactly = Intrinsic("exactly", _same_float, "one value of floating point", _generic("arithmetic.fence"))
"""The value as it was rounded: prevents its fusion into the instruction that reads it."""
vpdpbusd = Intrinsic("vpdpbusd", _dot, "sums, unsigned bytes and signed ones, four for each sum", _by_width("avx512.vpdpbusd"))
usdot = Intrinsic("usdot", _dot, "sums, unsigned bytes and signed ones, four for each sum", _generic("aarch64.neon.usdot"))
sdot = Intrinsic("sdot", _signed_dot, "sums, and signed bytes twice, four for each sum", _generic("aarch64.neon.sdot"))
usmmla = Intrinsic(
    "usmmla", _dot, "sums of two rows and columns, eight unsigned bytes of each row and signed ones of each column",
    _generic("aarch64.neon.usmmla"),
)
"""Adds the products of two rows and two columns to four sums, row by row."""
vpmaddwd = Intrinsic("vpmaddwd", _pairs, "two vectors of i16", _llvm("avx2.pmadd.wd"))
vpermps = Intrinsic("vpermps", _table, "a table of 16 float32, and 16 positions in it as int32", _llvm("avx512.permvar.sf.512"))
"""The elements of a table at these positions, of which only the low four bits are used."""


def _tile_memory(types: Sequence[Type]) -> Type | None:
    """The signature of tile loads and stores: a tile's index, an element in memory, and the distance of rows in bytes."""
    return types[1] if len(types) == 3 and types[0] is type_of(int8) and types[2] is type_of(int32) else None


def _tile_numbers(types: Sequence[Type]) -> Type | None:
    return types[0] if len(types) == 3 and all(given is type_of(int8) for given in types) else None


def _tile_load_or_store(name: str) -> Emit:
    """A load or store of a tile: rows of bytes, a distance apart."""
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
"""Adds the products of the second tile's unsigned bytes and the third's signed ones to the first tile's sums, four to each."""
tdpbf16ps = Intrinsic(
    "tdpbf16ps", _tile_numbers, "three tiles' numbers",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.tdpbf16ps", *given),
)
"""Adds the products of pairs of bfloat16 to the first tile's float32 sums."""
tile_zero = Intrinsic(
    "tile_zero", _any_one, "a tile's number",
    lambda script, dtype, given: script.call_llvm_intrin("void", "llvm.x86.tilezero", *given),
)
barrier = Intrinsic(
    "barrier", lambda types: None if types else type_of(int32), "nothing",
    lambda script, dtype, given: script.tvm_storage_sync("shared"),
)
"""Synchronizes the threads of a block."""
prefetch = Intrinsic("prefetch", _any_one, "the number whose line of the cache is wanted", _prefetch)


def _dot_types(lanes: int) -> Callable[[Sequence[Type]], Type | None]:
    def result(types: Sequence[Type]) -> Type | None:
        fits = len(types) == 3 and types[0] is type_of(float32, lanes) and types[1] is types[2] is type_of(int32, lanes)
        return types[0] if fits else None

    return result


def _extern(name: str) -> Emit:
    return lambda script, dtype, given: script.call_pure_extern(dtype, name, *given)


dot_bfloat16 = Intrinsic(
    "dot_bfloat16",
    _dot_types(16),
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
"""Adds both products of each pair to the sums: vdpbf16ps of AVX512-BF16. It is wrapped in a function of LLVM IR, since TVM
converts bfloat16 arguments to float32."""


_BFLOAT_CODE = """
declare <4 x float> @llvm.aarch64.neon.NAME(<4 x float>, <8 x bfloat>, <8 x bfloat>)
define <4 x float> @partita_FUNCTION(<4 x float> %sums, <4 x i32> %left, <4 x i32> %right) alwaysinline {
  %a = bitcast <4 x i32> %left to <8 x bfloat>
  %b = bitcast <4 x i32> %right to <8 x bfloat>
  %made = call <4 x float> @llvm.aarch64.neon.NAME(<4 x float> %sums, <8 x bfloat> %a, <8 x bfloat> %b)
  ret <4 x float> %made
}
"""


def _bfloat16_of_arm(name: str, called: str, takes: str) -> Intrinsic:
    code = _BFLOAT_CODE.replace("NAME", called).replace("FUNCTION", name)
    return Intrinsic(name, _dot_types(4), takes, _extern(f"partita_{name}"), code)


bfdot = _bfloat16_of_arm("bfdot", "bfdot.v4f32.v8bf16", "4 sums of float32, and twice 4 pairs of bfloat16 as int32")
"""Adds both products of each pair, and that sum to the sums; both additions are rounded to odd."""
bfmmla = _bfloat16_of_arm("bfmmla", "bfmmla", "sums of two rows and columns, and four bfloat16 of each as int32")
"""Adds, like bfdot, the first pairs of two rows and two columns, then the second ones; four sums, stored row by row."""


def _half_products(types: Sequence[Type]) -> Type | None:
    fits = len(types) == 3 and types[0] is type_of(float32, 4) and types[1] is types[2] is type_of(float16, 4)
    return types[0] if fits else None


fmlal = Intrinsic(
    "fmlal", _half_products, "4 sums of float32, and twice 4 float16", _extern("partita_fmlal"),
    """
declare <4 x float> @llvm.aarch64.neon.fmlal.v4f32.v8f16(<4 x float>, <8 x half>, <8 x half>)
declare <8 x half> @llvm.arithmetic.fence.v8f16(<8 x half>)
define <4 x float> @partita_fmlal(<4 x float> %sums, <4 x half> %left, <4 x half> %right) alwaysinline {
  %first = extractelement <4 x half> %left, i32 0
  %one = insertelement <8 x half> poison, half %first, i32 0
  %kept = call <8 x half> @llvm.arithmetic.fence.v8f16(<8 x half> %one)
  %a = shufflevector <8 x half> %kept, <8 x half> poison, <8 x i32> zeroinitializer
  %b = shufflevector <4 x half> %right, <4 x half> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %made = call <4 x float> @llvm.aarch64.neon.fmlal.v4f32.v8f16(<4 x float> %sums, <8 x half> %b, <8 x half> %a)
  ret <4 x float> %made
}
""",
)
"""Adds the products of one float16 and four, which float32 holds exactly, to the sums; the one is the first of its vector. The
fence keeps it in a lane: LLVM would load it into all lanes, which takes a vector instruction."""


def _two_vectors(types: Sequence[Type]) -> Type | None:
    return types[0] if len(types) == 2 and types[0] is types[1] and types[0].lanes == 4 else None


def _shuffle(name: str, takes: str, *lanes: int) -> Intrinsic:
    """A vector of four lanes of two vectors, which are numbered one after another."""
    listed = ", ".join(f"i32 {lane}" for lane in lanes)
    code = f"""
define <4 x TYPE> @partita_{name}_KIND(<4 x TYPE> %a, <4 x TYPE> %b) alwaysinline {{
  %made = shufflevector <4 x TYPE> %a, <4 x TYPE> %b, <4 x i32> <{listed}>
  ret <4 x TYPE> %made
}}
"""
    kinds = {"i32": "int32x4", "float": "float32x4"}
    both = "".join(code.replace("TYPE", kind).replace("KIND", dtype) for kind, dtype in kinds.items())

    def emit(script: Any, dtype: str, given: Sequence[Any]) -> Any:
        return script.call_pure_extern(dtype, f"partita_{name}_{dtype}", *given)

    return Intrinsic(name, _two_vectors, takes, emit, both)


low_halves = _shuffle("low_halves", "two vectors of four lanes", 0, 1, 4, 5)
"""The first two elements of either vector."""
high_halves = _shuffle("high_halves", "two vectors of four lanes", 2, 3, 6, 7)
"""The last two elements of either vector."""
even_lanes = _shuffle("even_lanes", "two vectors of four lanes", 0, 2, 4, 6)
odd_lanes = _shuffle("odd_lanes", "two vectors of four lanes", 1, 3, 5, 7)


def _two_words(types: Sequence[Type]) -> Type | None:
    return type_of(int32, 4) if len(types) == 2 and types[0] is types[1] is type_of(int64) else None


both_rows = Intrinsic(
    "both_rows", _two_words, "two words of 64 bits", _extern("partita_both_rows"),
    """
define <4 x i32> @partita_both_rows(i64 %a, i64 %b) alwaysinline {
  %low = insertelement <2 x i64> poison, i64 %a, i32 0
  %both = insertelement <2 x i64> %low, i64 %b, i32 1
  %made = bitcast <2 x i64> %both to <4 x i32>
  ret <4 x i32> %made
}
""",
)
"""The bits of two words, one after the other."""


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
"""Conversions between pointers and integers: TVM cannot select between pointers."""
address = Intrinsic(
    "address", lambda types: type_of(int64) if len(types) == 1 else None, "the number whose address is wanted",
    lambda script, dtype, given: script.call_extern(dtype, "partita_address", script.address_of(given[0])), ADDRESSES_CODE,
)
"""The address of an element of a buffer."""


def prefetch_of(number: Value) -> Call:
    """A call that prefetches the cache line of this element of a buffer."""
    if not isinstance(number, Load):
        raise CompileError(f"{number} is not in a buffer, and cannot be fetched ahead")
    return prefetch(number)
