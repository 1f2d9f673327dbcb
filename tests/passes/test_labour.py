"""How much work it would be to compute a node by numpy, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

import partita as pt
from partita.passes.fold_constants import labour

Inputs = list[tuple[int | str | None, ...] | None]
CASES: list[tuple[str, Inputs, dict[str, Any], float]] = [
    ("Relu", [(9, 9)], {}, 0),
    ("MatMul", [(9, 9), (9, 9)], {}, 0),
    ("TfIdfVectorizer", [(9,)], {}, math.inf),
    ("LRN", [(1, 2, 3, 4)], {"size": 5}, 5 * (24 + 1000)),
    ("GRU", [(3, 2, 4), (1, 6, 4), (1, 6, 2)], {}, 50_000 * 3 * 2),
    ("LSTM", [(3, 2, 4), (1, 8, 4), (1, 8, 2)], {}, 50_000 * 3 * 2),
    ("RNN", [(7, 1, 4), (1, 2, 4), (1, 2, 2)], {}, 50_000 * 7),
    ("MaxPool", [(2, 3, 4)], {"kernel_shape": [2]}, 6 * (4 + 2) + 2 * (24 + 1000)),
    ("MaxPool", [(1, 1, 4, 5)], {"kernel_shape": [2, 3], "pads": [1, 0, 2, 4]}, 9 * 12 + 6 * (20 + 1000)),
    ("MaxPool", [(1, 1, 4, 4)], {"kernel_shape": [2, 2]}, 6 * 6 + 4 * (16 + 1000)),
    ("AveragePool", [(1, 1, 4)], {"kernel_shape": [3], "pads": [-1, 2], "dilations": [5]}, 4 + 1 + 2 + 15 + 3 * (4 + 1000)),
    ("Conv", [(1, 2, 5, 6), (3, 2, 3, 2)], {"pads": [1, 0, 2, 1], "dilations": [2, 1]}, 2 * 14 * 9 + 6 * (60 + 1000)),
    ("ConvInteger", [(1, 2, 5), (3, 2, 3)], {}, 2 * 8 + 3 * (10 + 1000)),
    ("QLinearConv", [(1, 2, 5), (), (), (3, 2, 4), (), (), (), ()], {}, 2 * 9 + 4 * (10 + 1000)),
    ("Conv", [(1, 2, 5)], {}, 2 + 10 + 1000),
    ("Conv", [(1, 2, 5), None], {}, 2 + 10 + 1000),
    ("LRN", [(None, 2, 3)], {"size": 5}, 5 * 1000),
    ("Einsum", [("N", 3), (3, 4)], {"equation": "ij,jk->ik"}, math.inf),
    ("Einsum", [(2, 3), (3, 4)], {"equation": "ij,jk->ik"}, 2 * 3 * 4),
]


@pytest.mark.parametrize(("op", "inputs", "attributes", "expected"), CASES)
def test_numbers_that_are_looked_at(op: str, inputs: Inputs, attributes: dict[str, Any], expected: float) -> None:
    given = [pt.variable(f"x{i}", "float32", shape) for i, shape in enumerate(inputs) if shape is not None]
    node = pt.op("Sum", *given, name="n")
    present = iter(node.inputs)
    node = node.evolve(op=op, attrs=attributes, inputs=tuple([None if shape is None else next(present) for shape in inputs]))
    assert labour(node) == expected
    assert labour(node.evolve(domain="my")) == 0
