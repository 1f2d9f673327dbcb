"""CumSum in a kernel of ours: along any dimension, from either end, with or without each number's own part."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.any_size import check, numbers, random


def summed(x: pt.Node, axis: int, exclusive: int = 0, reverse: int = 0) -> pt.Node:
    return pt.op("CumSum", x, pt.constant(np.array(axis)), exclusive=exclusive, reverse=reverse)


WAYS = [(axis, exclusive, reverse) for axis in (0, 1, -1) for exclusive in (0, 1) for reverse in (0, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_running_sums_are_those_of_the_reference(dtype: str) -> None:
    data = random.integers(-9, 10, (3, 5, 131)).astype(dtype)
    x = pt.variable("x", dtype, data.shape)
    graph = pt.Graph([summed(x, *way) for way in WAYS], [x])
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    for way, a, b in zip(WAYS, model(data), reference(data), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=str(way))
    assert {kernel.schedule for kernel in model.kernels()} == {"running sums"}


def test_running_sums_of_any_length() -> None:
    """As the positions of the words that a mask leaves are counted; also along a dimension with others behind it."""
    mask, x = pt.variable("mask", "int64", ("N", "S")), pt.variable("x", "float32", ("N", "S", "M"))
    masked_positions = pt.op("Mul", summed(mask, 1), mask)
    graph = pt.Graph([masked_positions, summed(x, 1), summed(x, 2, 1, 1)], [mask, x])
    sizes = [(1, 1, 1), (2, 5, 3), (3, 17, 64), (1, 40, 65), (2, 3, 200)]
    check(graph, [{"mask": random.integers(0, 2, (n, s)), "x": numbers(n, s, m)} for n, s, m in sizes], 1e-4)
