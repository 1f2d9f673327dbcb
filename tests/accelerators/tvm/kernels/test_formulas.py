"""Ops of single numbers for every element type that they take: a kernel of ours, and what numpy makes of the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.graph.interpret import interpret
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.planned import MACHINES, kernels
from tests.accelerators.tvm.running import check, compiled, schedules

pytest.importorskip("tvm")

random = np.random.default_rng(17)

WHOLE = "Add Sub Mul BitwiseAnd BitwiseOr BitwiseXor Max Min Less Equal GreaterOrEqual".split()


@pytest.mark.parametrize("dtype", "int8 uint8 int16 int32 int64 uint32".split())
def test_whole_numbers_of_every_size(dtype: str) -> None:
    """All in one model, each op a kernel, over the whole range of the type: sums count on from the other end."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    arrays = [random.integers(low, high, shape, dtype=dtype, endpoint=True) for shape in ((9, 33), (33,))]
    x, y = (pt.variable(name, dtype, array.shape) for name, array in zip("xy", arrays, strict=True))
    values = [*(pt.op(op, x, y) for op in WHOLE), pt.op("BitwiseNot", x), pt.op("Cast", x, to=9)]
    graph = pt.Graph(values, inputs=[x, y])
    model = compiled(graph)
    for op, item, wanted in zip([*WHOLE, "BitwiseNot", "Cast"], model.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(item, wanted, op)
    assert set(schedules(model)) == {"chain"}


@pytest.mark.parametrize("op", "IsNaN IsInf Tan Shrink BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot".split())
def test_all_ops_with_a_formula_are_taken_by_chains(op: str) -> None:
    dtype = "uint32" if op.startswith("Bit") else "float32"
    x, y = (pt.variable(name, dtype, (9, 33)) for name in "xy")
    given = [random.integers(0, 7, (9, 33)).astype(dtype) for _ in "xy"]
    if op in ("IsNaN", "IsInf"):
        given[0][0, :3] = np.nan, np.inf, -np.inf
    is_unary = op in ("IsNaN", "IsInf", "Tan", "Shrink", "BitwiseNot")
    attrs = {"direction": "LEFT"} if op == "BitShift" else {}
    middle = pt.op(op, pt.op("Max", x, y), *([] if is_unary else [y]), **attrs)
    last = pt.op("Where", middle, x, y) if op in ("IsNaN", "IsInf") else pt.op("Max", middle, y)
    graph = pt.Graph([last], inputs=[x, y])
    model = compiled(graph)
    np.testing.assert_allclose(model.run(given)[0], interpret(graph, given)[0], rtol=1e-5)
    assert schedules(model) == ["chain"]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "float32"])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_best_of_many(op: str, dtype: str) -> None:
    """Seven whole numbers took half a minute to compile: the text of the kernel doubled with each."""
    given = [pt.variable(f"x{i}", dtype, (40,)) for i in range(20)]
    graph = pt.Graph([pt.op(op, *given)], inputs=given)
    check(graph, [random.integers(0, 99, 40).astype(dtype) for _ in given])
    ((_, kernel),) = kernels(graph, MACHINES["avx2"], "f32")
    assert isinstance(kernel, Draft) and len(str(kernel.kernel)) < 20_000


def test_truth_values() -> None:
    arrays = [random.integers(0, 2, (5, 64)).astype(bool) for _ in "xy"]
    x, y = (pt.variable(name, "bool", (5, 64)) for name in "xy")
    graph = pt.Graph([pt.op(op, x, y) for op in ("Xor", "And", "Or", "Equal")], inputs=[x, y])
    model = compiled(graph)
    for item, wanted in zip(model.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(item, wanted)
    assert set(schedules(model)) == {"chain"}


@pytest.mark.parametrize("op", "Floor Ceil Round Sin Cos Tan Celu Shrink".split())
def test_functions_of_one_number(op: str) -> None:
    x, values = pt.variable("x", "float32", (3, 40)), (random.standard_normal((3, 40)) * 3).astype("float32")
    values[0, :5] = 0.5, 1.5, 2.5, -0.5, 0.0
    assert schedules(check(pt.Graph([pt.op(op, x)], inputs=[x]), [values])) == ["chain"]


def test_a_mean_of_several() -> None:
    given = [pt.variable(name, "float32", (4, 24)) for name in "xyz"]
    arrays = [random.standard_normal((4, 24)).astype("float32") for _ in given]
    assert schedules(check(pt.Graph([pt.op("Mean", *given)], inputs=given), arrays)) == ["chain"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_number_is_taken_for_known(dtype: str) -> None:
    """x - x and 0 * x are NaN where x is, NaN is not equal to itself, and (x + y) - x is what is left after rounding."""
    numbers = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, 1e4], dtype)
    x, y = (pt.variable(name, dtype, numbers.shape) for name in "xy")
    zero = pt.constant(np.zeros((), dtype))
    values = {
        "x - x": pt.op("Sub", x, x), "x * 0": pt.op("Mul", x, zero), "0 / x": pt.op("Div", zero, x),
        "(x + y) - x": pt.op("Sub", pt.op("Add", x, y), x), "x == x": pt.op("Equal", x, x),
        "where x == x": pt.op("Where", pt.op("Equal", x, x), x, y), "1 / -x": pt.op("Reciprocal", pt.op("Neg", x)),
    }
    graph = pt.Graph(list(values.values()), inputs=[x, y])
    arrays = [numbers, np.full_like(numbers, 1e-4)]
    for name, item, wanted in zip(values, compiled(graph).run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(item, wanted, name)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_result_of_two_bytes_that_is_nan_is_not_equal_to_itself(dtype: str) -> None:
    """Each reader rounds it anew, in a value of its own."""
    numbers = np.array([np.nan, np.inf, 1.0]).astype(numpy_dtype(dtype))
    x, y = (pt.variable(name, dtype, numbers.shape) for name in "xy")
    difference = pt.op("Sub", x, y)
    graph = pt.Graph([pt.op("Equal", difference, difference)], inputs=[x, y])
    assert compiled(graph).run([numbers, numbers])[0].tolist() == [False, False, True]


@pytest.mark.parametrize("opset", [10, 13])
@pytest.mark.parametrize(
    ("low", "high"), [(-0.5, 0.5), (None, 0.5), (-0.5, None), (None, None), (0.5, -0.5), (np.nan, 0.5), (-0.5, np.nan)]
)
def test_a_clip_by_attributes_or_by_inputs(opset: int, low: float | None, high: float | None) -> None:
    """Bounds in either form, or none; NaN as a bound is the result."""
    x = pt.variable("x", "float32", (9, 33))
    if opset < 11:
        bounds = {name: bound for name, bound in (("min", low), ("max", high)) if bound is not None}
        node = pt.op("Clip", x, opset=opset, **bounds)
    else:
        node = pt.op("Clip", x, *(None if bound is None else pt.constant(np.float32(bound)) for bound in (low, high)))
    graph = pt.Graph([pt.op("Neg", node)], opsets={"": opset})
    given = random.standard_normal((9, 33)).astype("float32")
    model = compiled(graph)
    np.testing.assert_array_equal(model.run([given])[0], interpret(graph, [given])[0])
    wanted = given
    if low is not None:
        wanted = np.maximum(wanted, np.float32(low))
    if high is not None:
        wanted = np.minimum(wanted, np.float32(high))
    np.testing.assert_array_equal(model.run([given])[0], -wanted)
    assert schedules(model) == ["chain"]
