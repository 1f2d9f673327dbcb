"""Ops that only move numbers: the same numbers as numpy's, whatever their sizes and element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.running import compiled, schedules
from tests.drawn import some

pytest.importorskip("tvm")

DTYPES = "float32 float16 bfloat16 float64 int8 int64 uint8 bool".split()
shapes = st.lists(st.integers(1, 37), min_size=1, max_size=3).map(tuple)


def same(graph: pt.Graph, arrays: list[Any]) -> None:
    """Every output is what numpy makes of the arrays, by kernels of ours."""
    model = compiled(graph)
    for item, wanted in zip(model.run(arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(item, wanted)
    assert set(schedules(model)) <= {"copies"}, "where nothing moves there is no kernel"


def counted(dtype: str, shape: tuple[int, ...]) -> Any:
    """An array of numbers that differ from their neighbours."""
    return (np.arange(np.prod(shape)) * 7 % 101).reshape(shape).astype(numpy_dtype(dtype))


@some
@given(shapes, st.sampled_from(DTYPES), st.data())
def test_transposes(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    x, order = pt.variable("x", dtype, shape), data.draw(st.permutations(range(len(shape))))
    same(pt.Graph([pt.op("Transpose", x, perm=order)], inputs=[x]), [counted(dtype, shape)])


@some
@given(shapes, st.sampled_from(DTYPES), st.data())
def test_slices_and_splits(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    x, axis = pt.variable("x", dtype, shape), data.draw(st.integers(0, len(shape) - 1))
    first, step = data.draw(st.integers(0, shape[axis] - 1)), data.draw(st.integers(1, 3))
    bounds = [pt.constant(np.array([value])) for value in (first, shape[axis], axis, step)]
    same(pt.Graph([pt.op("Slice", x, *bounds)], inputs=[x]), [counted(dtype, shape)])
    if first:
        sizes = pt.constant(np.array([first, shape[axis] - first]))
        parts = pt.op("Split", x, sizes, axis=axis, n_outputs=2)
        same(pt.Graph([parts[0], parts[1]], inputs=[x]), [counted(dtype, shape)])


@some
@given(shapes, st.sampled_from(DTYPES), st.data())
def test_concatenations_and_broadcasts(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=3))
    sizes = [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]
    given = [pt.variable(f"x{i}", dtype, size) for i, size in enumerate(sizes)]
    same(pt.Graph([pt.op("Concat", *given, axis=axis)], inputs=given), [counted(dtype, size) for size in sizes])
    x = pt.variable("x", dtype, (*shape[:axis], 1, *shape[axis + 1 :]))
    wide = pt.op("Expand", x, pt.constant(np.array([2, *shape])))
    same(pt.Graph([wide], inputs=[x]), [counted(dtype, tuple(map(int, x.output_types[0].shape)))])


@some
@given(shapes, st.sampled_from(DTYPES), st.data())
def test_repetitions(shape: tuple[int, ...], dtype: str, data: st.DataObject) -> None:
    x, counts = pt.variable("x", dtype, shape), data.draw(st.lists(st.integers(1, 4), min_size=len(shape), max_size=len(shape)))
    same(pt.Graph([pt.op("Tile", x, pt.constant(np.array(counts)))], inputs=[x]), [counted(dtype, shape)])


def test_repetitions_along_four_dimensions() -> None:
    """LLVM 22 makes three quarters of these numbers wrong of TVM's own loops, if it may use AVX-512."""
    x = pt.variable("x", "float32", (2, 3, 4, 5))
    same(pt.Graph([pt.op("Tile", x, pt.constant(np.array([7, 6, 4, 2])))], inputs=[x]), [counted("float32", (2, 3, 4, 5))])


def test_a_constant_and_a_value_twice() -> None:
    x, fixed = pt.variable("x", "float32", (3, 20)), np.ones((2, 20), "float32")
    graph = pt.Graph([pt.op("Concat", x, pt.constant(fixed), x, axis=0)], inputs=[x])
    same(graph, [counted("float32", (3, 20))])
    assert schedules(compiled(graph)) == ["copies"]


def test_a_large_transpose_is_shared_by_threads() -> None:
    x = pt.variable("x", "float32", (257, 300))
    graph = pt.Graph([pt.op("Transpose", x, perm=[1, 0])], inputs=[x])
    model = compiled(graph, NUM_THREADS=3)
    np.testing.assert_array_equal(model.run([counted("float32", (257, 300))])[0], counted("float32", (257, 300)).T)
    assert "parallel task" in str(model.kernels()[0].text)


@pytest.mark.parametrize("shape", [(1,), (2,), (2, 3)])
@pytest.mark.parametrize("index", [0, -1])
def test_a_single_index_that_is_constant(shape: tuple[int, ...], index: int) -> None:
    x = pt.variable("x", "float32", shape)
    graph = pt.Graph([pt.op("Gather", x, pt.constant(np.array(index)), axis=0)], inputs=[x])
    same(pt.apply_pass(graph, "InferShape"), [counted("float32", shape)])


@pytest.mark.parametrize("names", [("a", "", "c"), ("", "b", "c"), ("", "b", ""), ("", "", "c")], ids="-".join)
@pytest.mark.parametrize("sizes", [[1, 4, 7], [4, 4, 4], None])
@pytest.mark.parametrize("rows", [2, "N"])
def test_parts_of_which_some_are_left_out(names: tuple[str, ...], sizes: list[int] | None, rows: int | str) -> None:
    x, given = pt.variable("x", "float32", (rows, 12)), counted("float32", (2, 12))
    stated = [] if sizes is None else [pt.constant(np.array(sizes))]
    parts = pt.op("Split", x, *stated, axis=1, n_outputs=3, output_names=names, **({} if stated else {"num_outputs": 3}))
    graph = pt.Graph([pt.op("Neg", parts[i]) for i, name in enumerate(names) if name], [x])
    for array, wanted in zip(pt.compile(graph, "cpu")(given), interpret(graph, [given]), strict=True):
        np.testing.assert_array_equal(array, wanted)
