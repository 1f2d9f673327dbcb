"""Ops that change no element: a transform may lose them without computing anything else."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.provenance import hands_on

X = pt.variable("x", "float32", (2, 3))
ZERO, ONE, MIXED = (pt.constant(np.array(value, np.float32)) for value in ([0, 0, 0], [1, 1, 1], [0, 1, 0]))


def ints(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


@pytest.mark.parametrize(
    ("node", "answer"),
    [
        (pt.op("Transpose", X, perm=[1, 0]), True),
        (pt.op("Reshape", X, ints(3, 2)), True),
        (pt.op("Cast", X, to=10), True),
        (pt.op("Identity", X), True),
        (pt.op("Relu", X), False),
        (pt.op("Relu", X, domain="my.ops"), False),
        (pt.op("Identity", X, domain="my.ops"), False),
        (pt.op("Sum", X), True),
        (pt.op("Max", X), True),
        (pt.op("Sum", X, X), False),
        (pt.op("Max", X, X), False),
        (pt.op("Concat", X, axis=0), True),
        (pt.op("Concat", X, X, axis=0), False),
        (pt.op("Slice", X, ints(0), ints(2), ints(0)), True),
        (pt.op("Slice", X, ints(0), ints(1), ints(0)), False),
        (pt.op("Pad", X, ints(0, 0, 0, 0)), True),
        (pt.op("Pad", X, ints(0, 0, 0, 1)), False),
        (pt.op("Add", X, ZERO), True),
        (pt.op("Add", ZERO, X), True),
        (pt.op("Add", X, ONE), False),
        (pt.op("Add", X, MIXED), False),
        (pt.op("Add", X, X), False),
        (pt.op("Sub", X, ZERO), True),
        (pt.op("Sub", ZERO, X), False),
        (pt.op("Sub", X, ONE), False),
        (pt.op("Mul", X, ONE), True),
        (pt.op("Mul", ONE, X), True),
        (pt.op("Mul", X, ZERO), False),
        (pt.op("Div", X, ONE), True),
        (pt.op("Div", ONE, X), False),
        (pt.op("Pow", X, ONE), True),
        (pt.op("Pow", ONE, X), False),
        (pt.op("Pow", X, ZERO), False),
    ],
    ids=str,
)
def test_an_op_hands_its_elements_on(node: pt.Node, answer: bool) -> None:
    graph = pt.Graph([node], opsets={"": 21, "my.ops": 1})
    typed = graph if node.domain else pt.apply_pass(graph, "InferShape")
    (op,) = [each for each in typed.nodes if each.is_op]
    assert hands_on(op) is answer


def test_a_copy_without_known_types_may_have_changed() -> None:
    assert not hands_on(pt.op("Slice", pt.variable("y"), ints(0), ints(1), ints(0)))
