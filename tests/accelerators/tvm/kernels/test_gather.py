"""Ops that read at indices: the same numbers as numpy's, whatever their sizes, axes and element types."""

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
sizes = st.integers(1, 40)


def same(op: str, data: Any, chosen: Any, threads: int, **attributes: Any) -> None:
    """The op gives what numpy does, by a kernel of ours; with indices that are computed, and with constant ones."""
    x = pt.variable("x", data.dtype.name, data.shape)
    i = pt.variable("i", chosen.dtype.name, chosen.shape)
    for indices, inputs, arrays in ((i, [x, i], [data, chosen]), (pt.constant(chosen), [x], [data])):
        graph = pt.apply_pass(pt.Graph([pt.op(op, x, indices, **attributes)], inputs=inputs), "InferShape")
        model = compiled(graph, NUM_THREADS=threads)
        np.testing.assert_array_equal(model.run(arrays)[0], interpret(graph, arrays)[0])
        if len(inputs) == 2:
            assert "gather" in schedules(model)


def counted(dtype: str, shape: tuple[int, ...]) -> Any:
    """An array of numbers that differ from their neighbours."""
    return (np.arange(np.prod(shape)) * 7 % 101).reshape(shape).astype(numpy_dtype(dtype))


def indices_below(data: st.DataObject, size: int, shape: tuple[int, ...]) -> Any:
    """Indices into a dimension of this size, some of them counted from its end."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return random.integers(-size, size, shape).astype(data.draw(st.sampled_from(("int32", "int64"))))


@some
@given(st.lists(sizes, min_size=1, max_size=3), st.lists(sizes, max_size=2), st.sampled_from(DTYPES), st.booleans(), st.data())
def test_slices_along_an_axis(shape: list[int], count: list[int], dtype: str, large: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    given = counted(dtype, (*shape[:-1], shape[-1] * (40 if large else 1)))
    same("Gather", given, indices_below(data, given.shape[axis], tuple(count)), 2, axis=axis)


@some
@given(st.lists(sizes, min_size=1, max_size=3), st.sampled_from(DTYPES), st.data())
def test_an_index_for_each_number(shape: list[int], dtype: str, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    shorter = [data.draw(st.integers(1, size)) for size in shape]
    shorter[axis] = data.draw(sizes)
    given = counted(dtype, tuple(shape))
    same("GatherElements", given, indices_below(data, shape[axis], tuple(shorter)), 2, axis=axis)


@some
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.sampled_from(DTYPES), st.data())
def test_rows_of_indices(shape: list[int], dtype: str, data: st.DataObject) -> None:
    batch = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(st.integers(1, len(shape) - batch))
    rows = (*shape[:batch], data.draw(sizes))
    chosen = np.stack([indices_below(data, size, rows) for size in shape[batch : batch + count]], -1).astype("int64")
    same("GatherND", counted(dtype, tuple(shape)), chosen, 2, batch_dims=batch)
