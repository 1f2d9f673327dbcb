"""Symbols that have to be equal: compiled once, and a call in which they are not is right all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.sizes.extent import Extent, symbol
from tests.accelerators.tvm.any_size import check, numbers, specialized

HEADS, DEPTH = 2, 16


def decoder() -> pt.Graph:
    """One layer with a past, in which each past and the mask have symbols of their own, as torch's exporter writes them."""
    x = pt.variable("x", "float32", ("batch", "new", HEADS * DEPTH))
    mask = pt.variable("mask", "float32", ("seen_batch", "seen"))
    pasts = [pt.variable(name, "float32", ("batch", HEADS, f"past_{name}", DEPTH)) for name in ("keys", "values")]
    split = pt.op("Concat", pt.op("Shape", mask, end=1), pt.constant(np.array([-1, HEADS, DEPTH])), axis=0)
    query, *new = [
        pt.op("Transpose", pt.op("Reshape", pt.op("MatMul", x, pt.constant(numbers(32, 32) / 6)), split), perm=[0, 2, 1, 3])
        for _ in range(3)
    ]
    keys, values = (pt.op("Concat", past, part, axis=2) for past, part in zip(pasts, new, strict=True))
    scores = pt.op("MatMul", query, pt.op("Transpose", keys, perm=[0, 1, 3, 2]))
    masked = pt.op("Add", scores, pt.op("Unsqueeze", mask, pt.constant(np.array([1, 2]))))
    mixed = pt.op("MatMul", pt.op("Softmax", masked, axis=-1), values)
    return pt.Graph([mixed, keys, values], [x, mask, *pasts])


def call(batch: int, new: int, past: int) -> dict[str, Any]:
    """Inputs of these sizes."""
    return {
        "x": numbers(batch, new, HEADS * DEPTH), "mask": numbers(batch, past + new),
        "keys": numbers(batch, HEADS, past, DEPTH), "values": numbers(batch, HEADS, past, DEPTH),
    }


def test_a_decoder_without_a_session_is_compiled_once() -> None:
    """A prompt has no past, and later steps have more and more of it."""
    check(decoder(), [call(*sizes) for sizes in [(1, 7, 0), (1, 1, 7), (1, 1, 8), (2, 9, 0), (2, 1, 9), (1, 1, 1), (2, 3, 100)]])


def test_sizes_that_are_not_equal_are_compiled_alone() -> None:
    """One row for several is broadcast, which the kernels for any size do not do."""
    x = pt.variable("x", "float32", ("N", 4))
    row = pt.variable("row", "float32", ("M", 4))
    summed = pt.Graph([pt.op("Add", x, row)], [x, row])
    model, reference = pt.compile(summed, "cpu"), pt.compile(summed, "reference")
    assert "compiled once for any size" in " ".join(model.report.notes)
    for rows in ((3, 3), (3, 1), (1, 3), (1, 1)):
        feed = {"x": numbers(rows[0], 4), "row": numbers(rows[1], 4)}
        np.testing.assert_array_equal(model(feed)[0], reference(feed)[0])
    assert len(specialized(model).sizes) == 2


def test_sizes_that_do_not_go_together_are_an_error() -> None:
    model, good = pt.compile(decoder(), "cpu"), call(1, 1, 5)
    model(good)
    for wrong in ({"values": numbers(1, HEADS, 4, DEPTH)}, {"mask": numbers(1, 5)}, {"mask": numbers(1, 7)}):
        with pytest.raises(pt.PartitaError):
            model({**good, **wrong})


def test_a_past_that_another_op_reads_is_compiled_alone_where_it_is_empty() -> None:
    x, past = (pt.variable(name, "float32", ("batch", name, 8)) for name in ("new", "past"))
    joined = pt.op("Concat", past, x, axis=1)
    graph = pt.Graph([joined, pt.op("ReduceSum", past, pt.constant(np.array([1])))], [x, past])
    model = check(graph, [{"new": numbers(2, 3, 8), "past": numbers(2, past, 8)} for past in (1, 4)])
    new = numbers(2, 3, 8)
    together, total = model({"new": new, "past": numbers(2, 0, 8)})
    np.testing.assert_array_equal(together, new)
    np.testing.assert_array_equal(total, np.zeros((2, 1, 8)))
    assert len(specialized(model).sizes) == 1 and specialized(model).stood_in == 0


def test_a_size_that_has_to_be_a_number() -> None:
    x = pt.variable("x", "float32", ("N", "D"))
    model = check(pt.Graph([pt.op("MatMul", x, pt.constant(numbers(24, 32)))]), [{"x": numbers(n, 24)} for n in (1, 5)])
    with pytest.raises(pt.PartitaError):
        model(numbers(5, 23))


def test_the_least_of_sizes_that_are_one_less() -> None:
    a, b = symbol("s0"), symbol("s1")
    rows, falls = a * b - a, a - b
    assert isinstance(rows, Extent) and isinstance(falls, Extent)
    assert rows.least == 0 and falls.least is None


def _reshaped(y: pt.Node) -> list[pt.Node]:
    return [pt.op("Reshape", y, pt.constant(np.array(shape))) for shape in ((2, 3), (3, 2))]


def _expanded(y: pt.Node) -> list[pt.Node]:
    return [pt.op("ReduceSum", pt.op("Sin", pt.op("Expand", y, pt.constant(np.array([count, 6]))))) for count in (2, 4)]


def _split(y: pt.Node) -> list[pt.Node]:
    parts = [pt.op("Split", y, pt.constant(np.array([first, 6 - first])), axis=0, n_outputs=2) for first in (1, 2)]
    return [pt.op("ReduceMax", pt.op("Sin", part[i]), keepdims=0) for part in parts for i in range(2)]


@pytest.mark.parametrize("build", [_reshaped, _expanded, _split])
def test_ops_of_one_value_that_fits_one_size_stay_apart(build: Any) -> None:
    """They differ in the shapes that they are given, not in the inputs that are given them."""
    x = pt.variable("x", "float32", ("N",))
    fixed = [pt.op("Reshape", pt.op("Relu", x), pt.constant(np.array([6])))]
    check(pt.Graph([*build(pt.op("Relu", x)), *fixed], [x]), [{"x": numbers(6)}])
