"""The ops that are taken for an attention: two products with a softmax between, and element-wise ops around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.kernels.attention.pattern import LONGEST, Attention, find_attention
from partita.accelerators.tvm.kernels.contraction.operands import readers_of


def found(change: Any = lambda weights: weights, ops_between: int = 0, extra: Any = lambda weights: []) -> Attention | None:
    """The attention in a graph with a change of the softmax's result."""
    q, k, v = (pt.variable(name, "float32", (1, 2, 20, 32)) for name in "qkv")
    scores = pt.op("MatMul", q, pt.op("Transpose", k, perm=[0, 1, 3, 2]), name="scores")
    value: Any = scores
    for i in range(ops_between):
        value = pt.op("Tanh", value, name=f"between{i}")
    weights = pt.op("Softmax", value, name="weights")
    graph = pt.Graph([pt.op("MatMul", change(weights), v, name="mix"), *extra(weights)])
    graph = pt.apply_pass(graph, "InferShape")
    return find_attention(graph["weights"], readers_of(graph), 21)


@pytest.mark.parametrize(("count", "is_found"), [(0, True), (1, True), (LONGEST, True), (LONGEST + 1, False)])
def test_some_ops_may_be_between(count: int, is_found: bool) -> None:
    attention = found(ops_between=count)
    assert (attention is not None) is is_found
    if attention is not None:
        assert [node.name for node in attention.chain] == [f"between{i}" for i in range(count)]


def number(value: float, *shape: int) -> pt.Node:
    return pt.constant(np.full(shape, value, np.float32))


def guarded(weights: pt.Node) -> pt.Node:
    return pt.op("Where", pt.op("IsNaN", weights), number(0), weights)


@pytest.mark.parametrize("zero", [number(0), number(0, 1), number(0, 1, 1)])
def test_rows_of_nan_may_become_zeros(zero: pt.Node) -> None:
    attention = found(lambda weights: pt.op("Where", pt.op("IsNaN", weights, name="test"), zero, weights, name="where"))
    assert attention is not None and [node.name for node in attention.guard] == ["test", "where"]
    assert found(lambda weights: weights).guard == ()  # type: ignore[union-attr]


GUARDS: dict[str, Any] = {
    "another number": lambda w: pt.op("Where", pt.op("IsNaN", w), number(1), w),
    "several numbers": lambda w: pt.op("Where", pt.op("IsNaN", w), number(0, 20), w),
    "a number that is not constant": lambda w: pt.op("Where", pt.op("IsNaN", w), pt.variable("z", "float32", ()), w),
    "numbers for what is none": lambda w: pt.op("Where", pt.op("IsNaN", w), w, number(0)),
    "another test": lambda w: pt.op("Where", pt.op("IsInf", w), number(0), w),
    "the test of another value": lambda w: pt.op("Where", pt.op("IsNaN", pt.op("Neg", w)), number(0), w),
    "a test that is turned": lambda w: pt.op("Where", pt.op("Not", pt.op("IsNaN", w)), number(0), w),
}


@pytest.mark.parametrize("kind", GUARDS)
def test_other_choices_are_none_of_its_ops(kind: str) -> None:
    assert found(GUARDS[kind]) is None


def test_weights_that_are_also_read_elsewhere_are_no_attention_s() -> None:
    assert found(extra=lambda weights: [pt.op("Neg", weights)]) is None
    assert found(guarded, extra=lambda weights: [pt.op("Neg", weights)]) is None
    assert found(guarded, extra=lambda weights: [pt.op("IsNaN", weights)]) is None
    assert found(guarded) is not None
