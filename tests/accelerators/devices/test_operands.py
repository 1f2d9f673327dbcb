"""Operands that engines' rules read of single ops: scales, sizes that they may leave as they are, the lengths of conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.engines.operands import (
    condition_lengths,
    has_scales,
    known_scales,
    may_leave_a_size,
    may_leave_all_sizes,
    scaled_sizes,
)

NONE = pt.constant(np.zeros(0, np.float32))
GIVEN = pt.variable("scales", "float32", (4,))


def scales(*factors: float) -> pt.Node:
    return pt.constant(np.array(factors, np.float32))


def resize(*inputs: pt.Node | None, shape: Any = (1, 3, 4, 5), op: str = "Resize", **attributes: Any) -> pt.Node:
    return pt.op(op, pt.variable("x", "float32", shape), *inputs, **attributes)


@pytest.mark.parametrize(
    ("node", "has", "known"),
    [
        (resize(None, scales(1, 1, 2, 3)), True, [1, 1, 2, 3]),
        (resize(None, GIVEN), True, None),
        (resize(None, NONE, pt.variable("s", "int64", (4,))), False, []),
        (resize(scales(1, 1, 2, 3), opset=10), True, [1, 1, 2, 3]),
        (resize(scales(1, 1, 2, 3), op="Upsample", opset=9), True, [1, 1, 2, 3]),
        (resize(op="Upsample", opset=7, scales=[1.0, 1.0, 2.0, 3.0]), True, [1, 1, 2, 3]),
    ],
)
def test_scales_of_a_resize(node: pt.Node, has: bool, known: list[float] | None) -> None:
    assert has_scales(node) is has
    found = known_scales(node)
    assert (None if found is None else found.tolist()) == known


def test_a_resize_by_sizes_alone_has_no_scales() -> None:
    assert not has_scales(resize(None, None, pt.variable("s", "int64", (4,))))
    assert not has_scales(pt.op("Relu", GIVEN))


def test_the_sizes_that_are_scaled() -> None:
    assert scaled_sizes(resize(None, GIVEN), None) == (1, 3, 4, 5)
    assert scaled_sizes(resize(None, GIVEN, axes=[3, 2]), None) == (5, 4)
    assert scaled_sizes(resize(None, GIVEN, shape=("N", 3)), None) == ("N", 3)
    unknown = resize(None, GIVEN, shape=None)
    assert (scaled_sizes(unknown, None), scaled_sizes(unknown, np.ones(2))) == ((), (None, None))


@pytest.mark.parametrize(
    ("shape", "factors", "one", "every"),
    [
        ((1, 3, 4, 5), (1, 1, 1, 1), False, False),
        ((1, 3, 4, 5), (1, 1, 2, 2), False, False),
        ((1, 3, 4, 5), (1, 1, 1.1, 2), True, False),
        ((1, 3, 4, 5), (1, 1, 1.1, 1.1), True, True),
        ((1, 3, 4, 5), (1, 1, 1, 1.1), True, True),
        ((1, 3, 4, 5), (1, 1, 1.25, 1.1), True, False),
        ((1, 3, 4, 5), (1, 1, 1.24, 1.1), True, True),
        ((1, 3, 1, 1), (1, 1, 1.5, 1.5), False, False),
        ((1, 3, 2, 2), (1, 1, 0.9, 0.9), False, False),
        (("N", 3, "H", "W"), (1, 1, 1.4, 1.4), True, True),
        (("N", 3, "H", "W"), (1, 1, 1.5, 1.4), True, False),
        (("N", 3, "H", "W"), (1, 1, 0.9, 1.4), True, False),
        (("N", 3, "H", "W"), (1, 1, 2, 2), False, False),
        (None, (1, 1, 1.2, 1.2), True, True),
    ],
)
def test_scales_that_may_leave_a_size_as_it_was(shape: Any, factors: tuple[float, ...], one: bool, every: bool) -> None:
    node, array = resize(None, scales(*factors), shape=shape), np.array(factors, np.float32)
    assert (may_leave_a_size(node, array), may_leave_all_sizes(node, array)) == (one, every)


@pytest.mark.parametrize(
    ("shape", "condition", "axis", "lengths"),
    [
        ((4, 6), (3,), 0, (3, 4)),
        ((4, 6), (3,), 1, (3, 6)),
        ((4, 6), (3,), -1, (3, 6)),
        ((4, 6), (3,), None, (3, 24)),
        ((4, "N"), ("M",), 1, ("M", "N")),
        ((4, "N"), (3,), None, (3, None)),
        ((4, 6), None, 0, (None, 4)),
        (None, (3,), 0, (3, None)),
    ],
)
def test_lengths_of_conditions(shape: Any, condition: Any, axis: int | None, lengths: tuple[Any, Any]) -> None:
    attributes = {} if axis is None else {"axis": axis}
    node = pt.op("Compress", pt.variable("x", "float32", shape), pt.variable("c", "bool", condition), **attributes)
    assert condition_lengths(node) == lengths


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_beyond_the_rank_has_no_length(axis: int) -> None:
    node = pt.op("Compress", pt.variable("x", "float32", (4, 6)), pt.variable("c", "bool", (3,)), axis=axis)
    assert condition_lengths(node) == (3, None)
