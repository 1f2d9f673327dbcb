"""Reductions over dimensions that are not the last, against numpy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.running import check, compiled, schedules
from tests.drawn import some

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

LIMITS = {"float32": 3e-6, "float64": 1e-12, "float16": 2**-11 * 1.02, "bfloat16": 2**-8 * 1.02}
OPS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare".split()


@some
@given(
    st.sampled_from(OPS),
    st.sampled_from(list(LIMITS)),
    st.lists(st.integers(1, 9), min_size=2, max_size=3),
    st.integers(16, 90),
    st.integers(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_any_sizes(op: str, dtype: str, shape: list[int], inner: int, keep: int, seed: int) -> None:
    x, axes = pt.variable("x", dtype, (*shape, inner)), list(range(len(shape) - 1, 0, -1))
    graph = pt.Graph([pt.op(op, x, pt.constant(np.array(axes)), keepdims=keep)], inputs=[x])
    values = (np.random.default_rng(seed).standard_normal((*shape, inner)) + 1).astype(numpy_dtype(dtype))
    result = check(graph, [values], LIMITS[dtype])
    assert max(shape[1:]) == 1 or schedules(result) == ["reduction"]


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_nan_comes_through(op: str) -> None:
    x = pt.variable("x", "float32", (2, 7, 40))
    graph = pt.Graph([pt.op(op, x, pt.constant(np.array([1])), keepdims=0)], inputs=[x])
    values = np.random.default_rng(1).standard_normal((2, 7, 40)).astype("float32")
    values[0, 3, 5], values[1, 0, 6], values[1, 6, 7], values[:, :, 9] = np.nan, np.nan, np.nan, np.inf
    model = compiled(graph)
    np.testing.assert_array_equal(model.run([values])[0], (np.max if op == "ReduceMax" else np.min)(values, 1))
    assert schedules(model) == ["reduction"]


@some
@given(
    st.sampled_from(OPS),
    st.sampled_from(list(LIMITS)),
    st.lists(st.integers(1, 7), min_size=2, max_size=4),
    st.sampled_from([1, 2, 3, 11, 70, 150]),
    st.integers(1, 2**5 - 1),
    st.integers(0, 2**32 - 1),
)
def test_any_dimensions(op: str, dtype: str, shape: list[int], last: int, chosen: int, seed: int) -> None:
    sizes = (*shape, last)
    axes = [d for d in range(len(sizes)) if chosen >> d & 1] or [0]
    x = pt.variable("x", dtype, sizes)
    graph = pt.Graph([pt.op(op, x, pt.constant(np.array(axes)), keepdims=seed % 2)], inputs=[x])
    values = (np.random.default_rng(seed).standard_normal(sizes) * 0.25 + 1).astype(numpy_dtype(dtype))
    assert set(schedules(check(graph, [values], LIMITS[dtype]))) <= {"reduction", "rows", "chain"}


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
@pytest.mark.thinned(2)
def test_integers(op: str, dtype: str) -> None:
    if dtype == "uint8" and op in ("ReduceSum", "ReduceProd"):
        pytest.skip("ONNX has no sums of bytes")
    options = {"dtype": dtype} if op in ("ReduceSum", "ReduceProd") else {}
    for axes in ([0, 2], [1], [0, 1, 2]):
        x = pt.variable("x", dtype, (3, 5, 19))
        graph = pt.Graph([pt.op(op, x, pt.constant(np.array(axes)), keepdims=0)], inputs=[x])
        values = np.random.default_rng(3).integers(0 if dtype == "uint8" else -99, 99, (3, 5, 19)).astype(dtype)
        model = compiled(graph)
        wanted = getattr(np, op[6:].lower())(values, tuple(axes), **options)
        np.testing.assert_array_equal(model.run([values])[0], wanted)
        assert schedules(model) == ["reduction"]


def test_a_number_of_each_row_is_read_beside_the_sum() -> None:
    """The logarithm of a sum of exponentials: the largest number, read twice, is one for the row each time."""
    x, top = pt.variable("x", "float32", (3, 40)), pt.variable("top", "float32", (3, 1))
    total = pt.op("ReduceSum", pt.op("Exp", pt.op("Sub", x, top)), pt.constant(np.array([-1])))
    arrays = [np.random.default_rng(2).standard_normal(shape).astype("float32") for shape in ((3, 40), (3, 1))]
    assert schedules(check(pt.Graph([pt.op("Add", pt.op("Log", total), top)], inputs=[x, top]), arrays)) == ["rows"]
    other = pt.variable("other", "float32", (3, 1))
    graph = pt.Graph([pt.op("Mul", total, other)], inputs=[x, top, other])
    assert schedules(check(graph, [*arrays, arrays[1] + 2])) == ["rows"]
