"""The language of kernels: what is written, what is refused where it is written, and what comes out of it."""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable
from importlib import import_module

import numpy as np
import pytest

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language import (
    Kernel,
    Value,
    address,
    bfloat16,
    constant,
    emit,
    exp,
    float16,
    float32,
    if_inside,
    int8,
    int32,
    int64,
    lane_sum,
    maximum,
    minimum,
    named,
    select,
    uint8,
    vpdpbusd,
    vpmaddwd,
)
from partita.accelerators.tvm.kernels.language.intrinsics import sqrt
from partita.accelerators.tvm.kernels.shared import functions

tvm = pytest.importorskip("tvm")


def run(kernel: Kernel, *arrays: np.ndarray) -> None:
    """Compile the kernel for this processor and run it on these arrays."""
    function = tvm.tirx.build(tvm.IRModule({"main": emit(kernel)}), target="llvm")
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    function["main"](*tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        array[...] = tensor.numpy()


def written(body: Callable[[Kernel], None]) -> list[str]:
    """The lines of a kernel with this body."""
    kernel = Kernel("k")
    body(kernel)
    return str(kernel).splitlines()


# -- text --------------------------------------------------------------------------------------------------


def test_text_reads_like_the_loops() -> None:
    kernel = Kernel("scaled")
    x, y = kernel.input("x", float32, (64, 16)), kernel.output("y", float32, (64, 16))
    with kernel.tasks(64, "row", parallel=True) as row:
        acc = kernel.registers("acc", float32, (2,), 8)
        with kernel.unroll(2, "v") as v:
            acc[v] = x.vector(8, row, v * 8) * 2.0
        middle = kernel.name_value("middle", row * 3 % 64)
        with kernel.when((middle > 3) & (row < 10)):
            y[middle, 0] = maximum(acc[0], 0.0)
        with kernel.otherwise(), kernel.lanes(16) as lane:
            y[middle, lane] = named(x[row, lane] + 1.0, lambda t: t * (t - 1.0) / t)
    assert str(kernel).splitlines() == [
        "kernel scaled(x: f32[64, 16]) -> (y: f32[64, 16])",
        "  parallel row < 64:",
        "    acc: f32[16] on the stack",
        "    unrolled v < 2:",
        "      acc[v * 8 ..8] = x[row, v * 8 ..8] * all(2.0)",
        "    middle := row * 3 % 64",
        "    if middle > 3 and row < 10:",
        "      y[middle, 0 ..8] = max(acc[0 ..8], all(0.0))",
        "    else:",
        "      lanes l < 16:",
        "        y[middle, l] = let t = x[row, l] + 1.0 in t * (t - 1.0) / t",
    ]


def test_operators_bind_as_in_python() -> None:
    def body(kernel: Kernel) -> None:
        y = kernel.output("y", int32, (8,))
        with kernel.loop(8, "i") as i:
            n = i.cast(int32)
            y[i] = (n + 1) * 2 - (n - (n - 3)) // 2 + (n << 1 & 7 | n ^ 1) % 5
    assert written(body)[-1] == "    y[i] = (i32(i) + 1) * 2 - (i32(i) - (i32(i) - 3)) // 2 + (i32(i) << 1 & 7 | i32(i) ^ 1) % 5"


OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift, "+": operator.add, "-": operator.sub, "*": operator.mul,
    "//": operator.floordiv, "%": operator.mod,
}
LAST: dict[str, Callable[[Value, Value], Value]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": Value.equals, "!=": Value.differs,
    "&": operator.and_, "|": operator.or_,
}


def test_of_any_two_operators_python_reads_the_same_with_no_fewer_parentheses() -> None:
    a, b, c = (constant(number, int32) for number in (1, 2, 3))
    for one, other in itertools.product(OPERATORS, OPERATORS | LAST):
        if one == "^" and other in "&|":
            continue  # bits are joined less tightly than they are compared
        second = (OPERATORS | LAST)[other]
        inner = OPERATORS[one](a, b)
        texts = {f"(1 {one} 2) {other} 3": second(inner, c), f"3 {other} (1 {one} 2)": second(c, inner)}
        for meant, value in texts.items():
            assert str(value) == ast.unparse(ast.parse(meant)), meant


# -- what it computes --------------------------------------------------------------------------------------


def test_vectors_loops_and_conditions_compute_what_they_say() -> None:
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (12, 16)), kernel.output("y", float32, (12,))
    with kernel.loop(12, "row") as row:
        acc = kernel.registers("acc", float32, (2,), 8)
        for v in range(2):
            acc[v] = x.vector(8, row, v * 8)
        with kernel.when(row % 3 >= 1):
            y[row] = lane_sum(acc[0] + acc[1])
        with kernel.otherwise():
            y[row] = minimum(acc.lane(0, 2), acc.lane(1, 7)) * constant(3.0, float32)
    given, result = np.random.default_rng(0).standard_normal((12, 16)).astype("float32"), np.zeros(12, "float32")
    run(kernel, given, result)
    expected = np.where(np.arange(12) % 3 >= 1, given.sum(1), np.minimum(given[:, 2], given[:, 15]) * 3)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_memory_and_guarded_reads() -> None:
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (10,)), kernel.output("y", float32, (12,))
    copy = kernel.memory("copy", float32, (12,))
    with kernel.loop(12, "i") as i:
        copy[i] = if_inside((i >= 1) & (i < 11), x[i - 1], -1.0)
    with kernel.loop(12, "i") as i:
        y[i] = select(copy[i] < 0.0, 0.0 - copy[i], sqrt(copy[i]))
    result = np.zeros(12, "float32")
    run(kernel, np.arange(10, dtype="float32"), result)
    np.testing.assert_allclose(result, [1, *np.sqrt(np.arange(10)), 1], rtol=1e-6)


def test_which_buffer_is_read_is_chosen_while_running() -> None:
    kernel = Kernel("either")
    sources = [kernel.input(name, float32, (4, 8)) for name in ("a", "b")]
    y = kernel.output("y", float32, (8, 8))
    addresses = kernel.stack("addresses", int64, (2,))
    for i, source in enumerate(sources):
        addresses[i] = address(source[0, 0])
    with (
        kernel.tasks(8, "row", parallel=True) as row,
        kernel.seen_at("seen", addresses[row % 2], float32, (4, 8)) as seen,
        kernel.lanes(8) as lane,
    ):
        y[row, lane] = seen[row // 2, lane]
    assert "    seen: f32[4, 8] at addresses[row % 2]:" in str(kernel).splitlines()
    a, b = (np.arange(32, dtype=np.float32).reshape(4, 8) + start for start in (0, 100))
    result = np.empty((8, 8), np.float32)
    run(kernel, a, b, result)
    assert np.array_equal(result, np.stack([a, b], 1).reshape(8, 8))


@pytest.mark.parametrize("element", [float16, bfloat16], ids=str)
def test_element_types_are_values_of_a_kernel(element) -> None:
    """The same loops for another element type: read and written narrow, computed in float32."""
    import ml_dtypes

    kernel = Kernel("k")
    x, y = kernel.input("x", element, (32,)), kernel.output("y", element, (32,))
    with kernel.loop(32, "i") as i:
        y[i] = (x[i].cast(float32) * x[i].cast(float32) + 0.5).cast(element)
    dtype = np.float16 if element is float16 else ml_dtypes.bfloat16
    given, result = np.linspace(-2, 2, 32).astype(dtype), np.zeros(32, dtype)
    run(kernel, given, result)
    expected = (given.astype("float32") ** 2 + np.float32(0.5)).astype(dtype)
    np.testing.assert_array_equal(result.astype("float32"), expected.astype("float32"))


def test_a_named_value_of_bfloat16_is_its_number() -> None:
    import ml_dtypes

    kernel = Kernel("k")
    x, y = kernel.input("x", bfloat16, (32,)), kernel.output("y", float32, (32,))
    with kernel.loop(2, "v") as v:
        y[v * 8] = named(x.vector(8, v * 8).cast(float32), lambda t: t * t + t)
    with kernel.loop(16, "i") as i:
        y[i + 16] = named(x[i + 16].cast(float32), lambda t: t * t + t)
    given, result = np.linspace(-2, 2, 32).astype(ml_dtypes.bfloat16), np.zeros(32, "float32")
    run(kernel, given, result)
    wide = given.astype("float32")
    np.testing.assert_allclose(result, wide * wide + wide, rtol=1e-6)


def test_whole_numbers_are_cast_and_their_bits_read() -> None:
    kernel = Kernel("k")
    x, y = kernel.input("x", int8, (8,)), kernel.output("y", int32, (8,))
    with kernel.loop(8, "i") as i:
        y[i] = x[i].cast(int32) * x[i].bits_as(uint8).cast(int32)
    given, result = np.array([-128, -3, -1, 0, 1, 2, 77, 127], "int8"), np.zeros(8, "int32")
    run(kernel, given, result)
    np.testing.assert_array_equal(result, given.astype("int32") * given.view("uint8").astype("int32"))


def test_a_size_that_is_known_only_while_running() -> None:
    kernel = Kernel("k")
    rows = kernel.size("rows")
    x, y = kernel.input("x", float32, (rows, 4)), kernel.output("y", float32, (rows,))
    with kernel.loop(rows, "row") as row:
        y[row] = x[row, 0] + x[row, 3]
    assert str(kernel).splitlines()[0] == "kernel k(x: f32[rows, 4]) -> (y: f32[rows])"
    function = tvm.tirx.build(tvm.IRModule({"main": emit(kernel)}), target="llvm")
    for count in (1, 7, 30):
        given, result = np.random.default_rng(count).random((count, 4), "float32"), tvm.runtime.empty((count,), "float32")
        function["main"](tvm.runtime.tensor(given), result)
        np.testing.assert_allclose(result.numpy(), given[:, 0] + given[:, 3], rtol=1e-6)


# -- what is refused where it is written -------------------------------------------------------------------


def floats(kernel: Kernel) -> Value:
    return kernel.input("x", float32, (8, 8))[0, 0]


WRONG = {
    "two types": (lambda k: floats(k) + k.input("n", int32, (8,))[0], "x[0, 0] + n[0]: the one is f32, the other i32"),
    "two widths": (lambda k: floats(k) + k.input("v", float32, (8,)).vector(8, 0), "the one is f32, the other f32x8"),
    "an operator": (lambda k: floats(k) % 2.0, "f32 has no operator %"),
    "a division": (lambda k: k.input("n", int32, (8,))[0] / 2, "i32 has no operator /"),
    "half a whole number": (lambda k: k.input("n", int32, (8,))[0] + 0.5, "0.5 is not a value of i32"),
    "truth now": (lambda k: bool(floats(k) > 1.0), "is known only while the kernel runs"),
    "equality": (lambda k: floats(k) == 1.0, "Write .equals()"),
    "a choice": (lambda k: select(floats(k), 1.0, floats(k)), "cannot choose between values"),
    "a signature": (lambda k: exp(k.input("n", int32, (8,))[0]), "exp takes one value of floating point, not i32"),
    "lanes of a number": (lambda k: lane_sum(floats(k)), "lane_sum takes one vector of floating point, not f32"),
    "spreading a vector": (lambda k: k.input("v", float32, (8,)).vector(8, 0).spread(8), "f32x8 is a vector already"),
    "bits": (lambda k: floats(k).bits_as(int8), "the bits of f32 cannot be read as i8"),
    "bits of several": (
        lambda k: k.input("v", uint8, (8,)).vector(2, 0).regrouped(int32),
        "the 16 bits of u8x2 cannot be read as numbers of type i32",
    ),
    "sums of bytes": (lambda k: vpdpbusd(floats(k)), "vpdpbusd takes sums, unsigned bytes and signed ones, four for each"),
    "sums of pairs": (lambda k: vpmaddwd(floats(k), floats(k)), "vpmaddwd takes two vectors of i16, not f32, f32"),
    "indices": (lambda k: k.input("v", float32, (8, 2))[3], "has 2 dimensions, and 1 indices are given"),
    "outside": (lambda k: k.input("v", float32, (8, 2))[3, 2], "index 2 is outside of a dimension of 2 of buffer v"),
    "a float as a place": (lambda k: k.input("v", float32, (8,))[floats(k)], "x[0, 0] is f32, where index is needed"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_does_not_fit_is_an_error_where_it_is_written(kind: str) -> None:
    write, message = WRONG[kind]
    with pytest.raises(CompileError, match=re.escape(message)):
        write(Kernel("k"))


def test_a_name_is_known_in_its_block_only() -> None:
    kernel = Kernel("k")
    y = kernel.output("y", float32, (8,))
    with kernel.loop(8, "i") as i:
        inner = kernel.stack("inner", float32, (4,))
        inner[0] = 1.0
    with pytest.raises(CompileError, match="kernel k uses i where it is not known"):
        y[i] = 1.0
    with pytest.raises(CompileError, match="kernel k uses inner where it is not known"):
        y[0] = inner[0]
    with pytest.raises(CompileError, match="kernel k uses inner where it is not known"):
        inner[0] = 1.0


def test_values_of_another_kernel_are_not_known() -> None:
    other, kernel = Kernel("other"), Kernel("k")
    x, y = other.input("x", float32, (8,)), kernel.output("y", float32, (8,))
    with pytest.raises(CompileError, match="kernel k uses x where it is not known"):
        y[0] = x[0]


def test_inputs_are_not_written_and_buffers_come_first() -> None:
    kernel = Kernel("k")
    x = kernel.input("x", float32, (8,))
    with pytest.raises(CompileError, match="kernel k writes to x, which is an input"):
        x[0] = 1.0
    kernel.stack("s", float32, (1,))
    with pytest.raises(CompileError, match="buffer y comes after the first statement of kernel k"):
        kernel.output("y", float32, (8,))


def test_blocks_are_closed_and_counts_known() -> None:
    kernel = Kernel("k")
    y = kernel.output("y", float32, (8,))
    with pytest.raises(CompileError, match=re.escape("otherwise() stands right after the block of a when()")), kernel.otherwise():
        y[0] = 1.0
    with kernel.loop(8, "i") as i:
        with pytest.raises(CompileError, match="kernel k is not written to its end"):
            str(kernel)
        message = "how often it is vectorized has to be known, and i is not"
        with pytest.raises(CompileError, match=message), kernel.loop(i, "l", "vectorized"):
            y[0] = 1.0


def test_a_loop_over_nothing_is_not_there() -> None:
    def body(kernel: Kernel) -> None:
        y = kernel.output("y", float32, (8,))
        with kernel.loop(0, "i") as i:
            y[i] = 1.0
        y[0] = 2.0
    assert written(body) == ["kernel k() -> (y: f32[8])", "  y[0] = 2.0"]


def test_a_value_read_again_is_written_once() -> None:
    """Each step reads the one before twice: written out at each place, twelve steps would be 4,096 exponentials."""
    kernel = Kernel("steps")
    x, y = kernel.input("x", float32, (16,)), kernel.output("y", float32, (16,))
    with kernel.lanes(16) as lane:
        number = x[lane]
        for _ in range(12):
            number = number * functions.exp(0.0 - number * number)
        y[lane] = number
    assert len(emit(kernel).script()) < 60_000
    given, result = np.linspace(-2, 2, 16).astype("float32"), np.zeros(16, "float32")
    run(kernel, given, result)
    wanted = given.astype("float64")
    for _ in range(12):
        wanted = wanted * np.exp(-wanted * wanted)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_a_value_read_again_by_two_statements_of_a_vector_is_there_for_both() -> None:
    """The second one's memory was for one lane, allocated within the vector's loop: all lanes wrote to it, and outside."""
    kernel = Kernel("both")
    x, y, z = kernel.input("x", float32, (16,)), kernel.output("y", float32, (16,)), kernel.output("z", float32, (2, 16))
    with kernel.loop(2, "i") as i, kernel.lanes(16) as lane:
        number = x[lane]
        for _ in range(6):
            number = number * functions.exp(0.0 - number * number)
        y[lane] = number
        z[i, lane] = number + i.cast(float32)
    given, result, other = np.linspace(-2, 2, 16).astype("float32"), np.zeros(16, "float32"), np.zeros((2, 16), "float32")
    run(kernel, given, result, other)
    wanted = given.astype("float64")
    for _ in range(6):
        wanted = wanted * np.exp(-wanted * wanted)
    np.testing.assert_allclose(result, wanted, rtol=1e-5)
    np.testing.assert_allclose(other, [wanted, wanted + 1], rtol=1e-5)


def test_what_is_read_again_under_a_condition_stays_there() -> None:
    kernel = Kernel("guarded")
    x, y = kernel.input("x", float32, (8,)), kernel.output("y", float32, (8,))

    def far(i: Value) -> Value:
        number = functions.exp(x[i * 1_000_000_000])
        return number * number

    with kernel.loop(8, "i") as i:
        y[i] = if_inside(i < 1, far(i), functions.exp(x[i]))
    given, result = np.linspace(-3, 0, 8).astype("float32"), np.zeros(8, "float32")
    run(kernel, given, result)
    wanted = np.exp(given.astype("float64"))
    wanted[0] *= wanted[0]
    np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_one_bfloat16_fills_a_vector() -> None:
    """Read in a loop along a vector, under a name, or spread: the bits are stored, whichever way they come."""
    import ml_dtypes

    kernel = Kernel("k")
    x, y = kernel.input("x", bfloat16, (3,)), kernel.output("y", bfloat16, (3, 48))
    with kernel.loop(3, "i") as i:
        with kernel.lanes(16) as lane:
            y[i, lane] = x[i]
        number = kernel.name_value("number", x[i])
        with kernel.lanes(16) as lane:
            y[i, lane + 16] = number
        y[i, 32] = number.spread(16)
    given = np.array([1.5, -2.0, np.nan], ml_dtypes.bfloat16)
    result = np.zeros((3, 48), ml_dtypes.bfloat16)
    run(kernel, given, result)
    np.testing.assert_array_equal(result.astype("float32"), np.repeat(given.astype("float32")[:, None], 48, 1))


def test_a_kernel_is_large_beyond_a_number_of_expressions_and_refused_beyond_another(monkeypatch: pytest.MonkeyPatch) -> None:
    emitting = import_module("partita.accelerators.tvm.kernels.language.emit")  # the package has its function by this name
    kernel = Kernel("k")
    x, y = kernel.input("x", float32, (8,)), kernel.output("y", float32, (8,))
    with kernel.loop(8, "i") as i:
        y[i] = x[i] * 2.0 + x[7 - i]

    def count(many: int, most: int) -> int | None:
        """The expressions of a kernel that is large."""
        monkeypatch.setattr(emitting, "MANY", many)
        monkeypatch.setattr(emitting, "MOST", most)
        attributes = emit(kernel).attrs
        return int(attributes[emitting.LARGE]) if emitting.LARGE in attributes else None

    expressions = count(0, 1000)
    assert expressions is not None and 5 <= expressions <= 20
    assert [count(many, expressions) for many in (expressions - 1, expressions)] == [expressions, None]
    with pytest.raises(emitting.TooMuchCode, match=f"more than {expressions - 1} expressions"):
        count(0, expressions - 1)


def test_a_number_in_one_lane_is_itself() -> None:
    number = constant(3.0, float32)
    assert number.spread(1) is number and str(number.spread(4)) == "all(3.0)"
    with pytest.raises(CompileError, match="is a vector already"):
        number.spread(4).spread(1)
