"""Sizes that follow from values which shape inference does not compute: they are static once constants are folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import TensorType

Sizes = Callable[[pt.Node], pt.Node]


def c(*values: float, dtype: Any = np.int64) -> pt.Node:
    return pt.constant(np.array(values, dtype))


def halves(s: pt.Node) -> pt.Node:
    return pt.op("Floor", pt.op("Mul", pt.op("Cast", s, to=1), c(0.4, 0.5, dtype=np.float32)))


SIZES: dict[str, Sizes] = {
    "remainders": lambda s: pt.op("Mod", s, c(4, 4)),
    "powers": lambda s: pt.op("Pow", s, c(2, 1)),
    "parts": halves,
    "sums": lambda s: pt.op("CumSum", s, pt.constant(np.array(0))),
    "the largest": lambda s: pt.op("TopK", s, c(2), axis=0, n_outputs=2),
    "a position": lambda s: pt.op("ArgMax", s, axis=0),
    "one of several": lambda s: pt.op("OneHot", s, c(8), c(1, 2)),
}


def sized(sizes: Sizes, x: pt.Node) -> pt.Graph:
    """A value of sizes that are computed from those of the input, and one whose sizes follow from the first one's."""
    first = pt.op("ConstantOfShape", pt.op("Reshape", pt.op("Cast", sizes(pt.op("Shape", x)), to=7), c(-1)))
    count = pt.op("Mod", pt.op("Shape", first), c(3))
    second = pt.op("Tile", pt.op("Relu", first), count)
    return pt.Graph([second, pt.op("Exp", x)], [x], opsets={"": 21})


def static(graph: pt.Graph) -> list[tuple[int, ...] | None]:
    kinds = [entry.type for entry in graph.outputs]
    return [kind.shape if isinstance(kind, TensorType) and kind.is_static else None for kind in kinds]  # type: ignore[misc]


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_are_computed_become_static(name: str) -> None:
    graph = sized(SIZES[name], pt.variable("x", "float32", (2, 6)))
    found = pt.apply_pass(graph, "InferSizes", family="tvm")
    assert static(found) == [np.shape(array) for array in interpret(graph, [np.ones((2, 6), np.float32)])]


@pytest.mark.parametrize("name", SIZES)
def test_nothing_is_folded_while_inputs_have_any_size(name: str) -> None:
    graph = sized(SIZES[name], pt.variable("x", "float32", ("N", 6)))
    found = pt.apply_pass(graph, "InferSizes", family="tvm")
    assert static(found) == [None, None] and [node.op for node in found.nodes] == [node.op for node in graph.nodes]
