"""Kernels whose numbers are stored in two bytes and computed with as float32, against numpy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from tests.accelerators.tvm.halves import KINDS, casts_alone, narrowed
from tests.accelerators.tvm.running import check, compiled, error, schedules
from tests.drawn import some

pytest.importorskip("tvm")
ml_dtypes = pytest.importorskip("ml_dtypes")

LIMITS = {"float16": 2**-11, "bfloat16": 2**-8}
"""Half a step of the largest number: what rounding the result once costs."""

SLACK = 1.02
"""Sums in float32 are a little off before they are rounded."""

random = np.random.default_rng(16)
seeds = st.integers(0, 2**32 - 1)
LANES = 16
"""No processor's vector holds more float32 numbers. Products of values with fewer columns go through casts."""

types = pytest.mark.parametrize("dtype", KINDS)


def numbers(dtype: str, *shape: int, seed: int | None = None) -> Any:
    """Random numbers of the type; those of a seed are always the same."""
    draw = random if seed is None else np.random.default_rng(seed)
    return draw.standard_normal(shape).astype(KINDS[dtype])


def scalar(dtype: str, value: float) -> pt.Node:
    """The number as a constant of the type."""
    return pt.constant(np.array(value, KINDS[dtype]))


@some
@given(st.sampled_from(list(KINDS)), st.lists(st.integers(1, 40), min_size=1, max_size=3), seeds, st.data())
def test_a_chain_rounds_once(dtype: str, shape: list[int], seed: int, data: st.DataObject) -> None:
    x, y = (pt.variable(name, dtype, shape) for name in "xy")
    row = pt.constant(numbers(dtype, shape[-1], seed=seed))
    value = pt.op("Sub", pt.op("Mul", x, row), y)
    functions = "Tanh Sigmoid Gelu Erf Relu Abs Neg Softplus HardSwish Elu LeakyRelu".split()
    for op in data.draw(st.lists(st.sampled_from(functions), min_size=1, max_size=4)):
        value = pt.op("Add", pt.op(op, value), y)
    graph = pt.Graph([pt.op("Max", value, scalar(dtype, -0.5))], inputs=[x, y])
    arrays = [numbers(dtype, *shape, seed=seed + i + 1) for i in range(2)]
    assert schedules(check(graph, arrays, LIMITS[dtype] * SLACK)) == ["chain"]


@types
@pytest.mark.parametrize("op", "Exp Tanh Erf Sigmoid Gelu Elu Selu Mish Softplus Sqrt Reciprocal Sign Relu Pow".split())
@pytest.mark.thinned(2)
def test_each_function_is_a_kernel_of_ours(op: str, dtype: str) -> None:
    x = pt.variable("x", dtype, (3, 40))
    values = np.abs(numbers(dtype, 3, 40)) + KINDS[dtype].type(0.5)
    given = [scalar(dtype, 1.5)] if op == "Pow" else []
    result = check(pt.Graph([pt.op(op, x, *given)], inputs=[x]), [values], LIMITS[dtype] * SLACK)
    assert schedules(result) == ["chain"]


@types
def test_what_jumps_reads_numbers_as_they_are_stored(dtype: str) -> None:
    """1 + 1/4096 is 1 in both types, and so equal to it; whole numbers follow the rounded sum."""
    x = pt.variable("x", dtype, (32,))
    total = pt.op("Add", x, scalar(dtype, 2**-12))
    same, whole = pt.op("Equal", total, x), pt.op("Cast", pt.op("Mul", total, scalar(dtype, 2.0**12)), to=6)
    ones = np.ones(32, KINDS[dtype])
    equal, count = compiled(pt.Graph([same, whole], inputs=[x])).run([ones])
    assert equal.all() and (count == 4096).all()


@types
def test_nan_stays_nan(dtype: str) -> None:
    x = pt.variable("x", dtype, (16,))
    values = np.zeros(16, KINDS[dtype])
    values[:6] = [np.nan, np.inf, -np.inf, -0.0, float(ml_dtypes.finfo(KINDS[dtype]).max), 1]
    values[6:8].view(np.uint16)[:] = 0x7FFF, 0xFFFF
    (output,) = compiled(pt.Graph([pt.op("Mul", x, scalar(dtype, 2.0))], inputs=[x])).run([values])
    assert np.isnan(output.astype("f")).tolist() == [True, *[False] * 5, True, True, *[False] * 8]
    np.testing.assert_array_equal(output[1:6].astype("f"), [np.inf, -np.inf, -0.0, np.inf, 2])
    assert np.signbit(output[3].astype("f"))


@st.composite
def products(draw: st.DrawFn) -> tuple[str, int, int, int, bool, bool]:
    """Element type, rows, depth, columns; whether the right matrix is transposed, and whether it is a constant."""
    rows, depth, fixed = draw(st.integers(1, 70)), draw(st.integers(1, 70)), draw(st.booleans())
    columns = draw(st.integers(1 if fixed else LANES, 70))
    return draw(st.sampled_from(list(KINDS))), rows, depth, columns, draw(st.booleans()), fixed


@some
@given(products(), seeds)
def test_a_product_sums_in_float32(case: tuple[str, int, int, int, bool, bool], seed: int) -> None:
    dtype, rows, depth, columns, turned, fixed = case
    x, bias = pt.variable("x", dtype, (rows, depth)), pt.constant(numbers(dtype, columns, seed=seed))
    array = numbers(dtype, *((columns, depth) if turned else (depth, columns)), seed=seed + 1)
    w = pt.constant(array) if fixed else pt.variable("w", dtype, array.shape)
    right = pt.op("Transpose", w, perm=[1, 0]) if turned else w
    y = pt.op("Gelu", pt.op("Add", pt.op("MatMul", x, right), bias))
    graph = pt.Graph([y], inputs=[x] if fixed else [x, w])
    arrays = [numbers(dtype, rows, depth, seed=seed + 2), *([] if fixed else [array])]
    assert schedules(check(graph, arrays, LIMITS[dtype] * SLACK)) == ["gemm" if fixed else "product"]


@types
def test_kernels_are_ours_and_weights_are_stored_once(dtype: str) -> None:
    x, array = pt.variable("x", dtype, (20, 64)), numbers(dtype, 64, 96)
    dense = pt.op("Relu", pt.op("Gemm", x, pt.constant(array), pt.constant(numbers(dtype, 96)), alpha=0.3, beta=0.7))
    result = check(pt.Graph([dense], inputs=[x]), [numbers(dtype, 20, 64)], LIMITS[dtype] * SLACK)
    assert schedules(result) == ["gemm"]
    assert sum(weight.nbytes for weight in result.export_weights()) <= (array.size + 96) * 2 * 1.01
    thin = pt.Graph([pt.op("MatMul", x, pt.constant(array[:, :2]))], inputs=[x])
    assert schedules(check(thin, [numbers(dtype, 20, 64)], LIMITS[dtype] * SLACK)) == ["gemm"]


@pytest.mark.parametrize(("dtype", "limit"), [pytest.param("float16", 4e-3, marks=pytest.mark.slow), ("bfloat16", 3e-2)])
def test_convolutions_stored_narrow_run_in_blocks(dtype: str, limit: float) -> None:
    def conv(value: pt.Node, outs: int, ins: int, taps: int = 3, **more: Any) -> pt.Node:
        return pt.op("Conv", value, pt.constant(numbers(dtype, outs, ins, taps, taps)), pt.constant(numbers(dtype, outs)), **more)

    x = pt.variable("x", dtype, (2, 3, 18, 17))
    first = pt.op("Relu", conv(x, 40, 3, pads=[1] * 4))
    joined = pt.op("Concat", conv(first, 32, 10, group=4, pads=[1] * 4), conv(first, 32, 40, 1), axis=1)
    pooled = pt.op("MaxPool", pt.op("Relu", conv(joined, 64, 1, group=64, pads=[1] * 4)), kernel_shape=[2, 2], strides=[2, 2])
    mean = pt.op("GlobalAveragePool", pt.op("Sigmoid", pooled))
    graph = pt.apply_pass(pt.Graph([mean], inputs=[x], opsets={"": 22}), "InferShape")
    result = check(graph, [numbers(dtype, 2, 3, 18, 17)], limit)
    assert set(schedules(result)) == {"blocked convolution", "concat", "depthwise", "blocked pool"}
    assert {str(weight.dtype) for weight in result.export_weights()} == {dtype}


def test_images_are_made_larger_and_normed_as_they_are_stored() -> None:
    """Each was computed between casts of whole images to float32, by weights in float32."""
    x = pt.variable("x", "bfloat16", (1, 20, 5, 6))
    spread = pt.op("ConvTranspose", x, pt.constant(numbers("bfloat16", 20, 12, 3, 3)), strides=[2, 2], pads=[1] * 4)
    larger = pt.op("Resize", x, None, pt.constant(np.array([1, 1, 2, 3], "float32")), mode="linear")
    graph = pt.apply_pass(pt.Graph([spread, larger, pt.op("LRN", x, size=5)], inputs=[x], opsets={"": 22}), "InferShape")
    model = check(graph, [numbers("bfloat16", 1, 20, 5, 6)], LIMITS["bfloat16"] * SLACK)
    assert not casts_alone(model) and {"interleave", "resize", "lrn"} <= set(schedules(model))
    stored = sum(weight.nbytes for weight in model.export_weights() if weight.dtype == KINDS["bfloat16"])
    assert stored <= 4 * 2 * 2 * 20 * 16 * 2, "two by two taps for each of four phases"


@pytest.mark.slow
def test_images_made_smaller_are_gathered_as_they_are_stored() -> None:
    x = pt.variable("x", "bfloat16", (1, 3, 8, 6))
    smaller = pt.op("Resize", x, None, pt.constant(np.array([1, 1, 0.5, 0.5], "float32")), mode="linear")
    graph = pt.apply_pass(pt.Graph([smaller], inputs=[x], opsets={"": 22}), "InferShape")
    assert not casts_alone(check(graph, [numbers("bfloat16", 1, 3, 8, 6)], LIMITS["bfloat16"] * SLACK))


@types
def test_many_products_of_values(dtype: str) -> None:
    q, k = pt.variable("q", dtype, (2, 3, 20, 24)), pt.variable("k", dtype, (2, 32, 3, 24))
    turned = pt.op("Transpose", k, perm=[0, 2, 3, 1])
    scores = pt.op("Mul", pt.op("MatMul", q, turned), scalar(dtype, 0.125))
    graph = pt.Graph([pt.op("Tanh", scores)], inputs=[q, k])
    arrays = [numbers(dtype, 2, 3, 20, 24), numbers(dtype, 2, 32, 3, 24)]
    assert schedules(check(graph, arrays, LIMITS[dtype] * SLACK)) == ["product"]


@types
@pytest.mark.parametrize("op", "Softmax LogSoftmax ReduceMean ReduceMax ReduceL2 LayerNormalization".split())
def test_ops_on_rows(op: str, dtype: str) -> None:
    x, beside = pt.variable("x", dtype, (5, 71)), []
    if op.startswith("Reduce"):
        beside = [pt.constant(np.array([-1]))]
    elif op == "LayerNormalization":
        beside = [pt.constant(numbers(dtype, 71)) for _ in "sb"]
    graph = pt.Graph([pt.op(op, x, *beside)], inputs=[x])
    assert schedules(check(graph, [numbers(dtype, 5, 71)], LIMITS[dtype] * SLACK)) == ["rows"]


@types
def test_what_a_row_keeps_has_all_digits(dtype: str) -> None:
    """The powers of a softmax are kept for its second pass: in float32, though the result's row is narrower."""
    x, y = (pt.variable(name, dtype, (3, 100)) for name in "xy")
    graph = pt.Graph([pt.op("Softmax", pt.op("Tanh", pt.op("Add", x, y)))], inputs=[x, y])
    result = check(graph, [numbers(dtype, 3, 100) for _ in "xy"], LIMITS[dtype] * SLACK)
    assert schedules(result) == ["rows"]


def perceptron() -> pt.Graph:
    """Layers with a norm, activations and residual additions, as exporters write them."""
    draw = np.random.default_rng(3)

    def weights(*shape: int) -> pt.Node:
        return pt.constant((draw.standard_normal(shape) / shape[0] ** 0.5).astype("float32"))

    x = pt.variable("x", "float32", (12, 48))
    value = x[0]
    for _ in range(3):
        inner = pt.op("Gelu", pt.op("Add", pt.op("MatMul", value, weights(48, 96)), weights(96)))
        value = pt.op("Add", value, pt.op("MatMul", inner, weights(96, 48)))[0]
        value = pt.op("LayerNormalization", value, weights(48), weights(48))[0]
    return pt.apply_pass(pt.Graph([pt.op("MatMul", value, weights(48, 10))], inputs=[x]), "InferShape")


@pytest.mark.parametrize(("dtype", "limit"), [("float16", 4e-3), ("bfloat16", 3e-2)])
def test_a_whole_model_stored_narrow(dtype: str, limit: float) -> None:
    wide = perceptron()
    model, x = compiled(narrowed(wide, dtype)), random.standard_normal((12, 48)).astype("float32")
    (result,), (wanted,) = model.run([x.astype(KINDS[dtype])]), compiled(wide).run([x])
    assert result.dtype == KINDS[dtype] and error(result, wanted) <= limit
    assert schedules(model).count("gemm") == 7 and not {"generic", "parallel"} & set(schedules(model))


@pytest.mark.slow
def test_a_model_of_the_zoo_in_float16() -> None:
    wide = pt.load("zoo:squeezenet")
    x = random.standard_normal((1, 3, 224, 224)).astype("float32")
    (result,), (wanted,) = pt.compile(narrowed(wide, "float16"), "cpu")(x.astype("float16")), pt.compile(wide, "cpu")(x)
    assert error(result, wanted) <= 1e-2
