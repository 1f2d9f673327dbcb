"""Bodies that kernels recognize by their constants: chains, and images put together of constant blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.chain import find_chain
from partita.accelerators.tvm.kernels.window.pool import has_constant_blocks

X = pt.variable("x", "float32", (3, 2))


def typed(node: pt.Node, **opsets: int) -> pt.Graph:
    return pt.apply_pass(pt.Graph([node], opsets={"": 21, **opsets}), "InferShape", strict=False)


@pytest.mark.parametrize("constant", [2.0, [2.0], [[2.0]], [2.0, 3.0]])
def test_a_chain_has_constants(constant: Any) -> None:
    number = pt.constant(np.array(constant, np.float32))
    found = find_chain(make_body(typed(pt.op("Relu", pt.op("Mul", pt.op("Add", X, number), X)))))
    assert found is not None and [node.op for node in found] == ["Add", "Mul", "Relu"]


def test_a_chain_has_results_of_one_shape() -> None:
    assert find_chain(make_body(typed(pt.op("Add", pt.op("Exp", pt.variable("y", "float32", (2,))), X)))) is None
    assert find_chain(make_body(typed(pt.op("Exp", pt.op("Transpose", X))))) is None
    assert find_chain(make_body(typed(pt.op("Exp", pt.variable("y", "float32", (2, 0)))))) is None


def sizes(*numbers: int) -> pt.Node:
    return pt.constant(np.array(numbers))


COLUMNS, WORDS = pt.variable("c", "float32", (1, 8, 12)), pt.variable("c", "int64", (1, 8, 12))


@pytest.mark.parametrize(
    ("node", "answer"),
    [
        (pt.op("Col2Im", COLUMNS, sizes(4, 5), sizes(2, 2), name="it"), True),
        (pt.op("Col2Im", WORDS, sizes(4, 5), sizes(2, 2), name="it"), True),
        (pt.op("Col2Im", pt.variable("c", "bool", (1, 8, 12)), sizes(4, 5), sizes(2, 2), name="it"), False),
        (pt.op("Col2Im", COLUMNS, pt.variable("sizes", "int64", (2,)), sizes(2, 2), name="it"), False),
        (pt.op("Col2Im", COLUMNS, sizes(4, 5), pt.variable("sizes", "int64", (2,)), name="it"), False),
        (pt.op("Col2Im", COLUMNS, sizes(4, 5), sizes(2, 2), name="it", pads=[-1, 0, 0, 0]), False),
        (pt.op("Reshape", COLUMNS, sizes(4, 24), name="it"), False),
        (pt.op("Slice", COLUMNS, sizes(0, 0), sizes(1, 2), name="it"), False),
    ],
)
def test_blocks_of_an_image_are_constant(node: pt.Node, answer: bool) -> None:
    assert has_constant_blocks(typed(node)["it"]) is answer
