"""Values that the sizes around a node say, and that TVM compiles only as constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from accelerators.tvm.prepare.implied import name_implied

pytest.importorskip("tvm")

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def graph(op: str, said: Any, *shapes: tuple[int, ...], **attrs: Any) -> pt.Graph:
    """The op with a variable where it reads `said`, its results' sizes stated."""
    x = pt.variable("x", "float32", X.shape)
    value = pt.variable("said", "int64", np.shape(said))
    node = pt.op(op, x, value, name="y", n_outputs=len(shapes), **attrs)
    types = tuple(pt.TensorType("float32", shape) for shape in shapes)
    node = node.evolve(output_types=types)
    return pt.Graph(list(node.outputs), inputs=[x, value])


CASES = {
    "reduce": (("ReduceSum", [1], (2, 1, 4)), {}),
    "reduce away": (("ReduceMax", [2, 0], (3,)), {"keepdims": 0, "opset": 21}),
    "expand": (("Expand", [5, 2, 3, 4], (5, 2, 3, 4)), {}),
    "tile": (("Tile", [1, 2, 3], (2, 6, 12)), {}),
    "split": (("Split", [1, 3], (2, 3, 1), (2, 3, 3)), {"axis": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_values_said_by_sizes(name: str) -> None:
    (op, said, *shapes), attrs = CASES[name]
    result = graph(op, said, *shapes, **attrs)
    arrays = [X, np.array(said)]
    wanted = pt.compile(result, "reference")(*arrays)
    outcome = pt.compile(result, "cpu")(*arrays)
    assert all((a == b).all() and a.shape == b.shape for a, b in zip(outcome, wanted, strict=True))


def test_what_sizes_leave_open_stays() -> None:
    x, axes = pt.variable("x", "float32", (2, 3, 3)), pt.variable("axes", "int64", (1,))
    node = pt.op("ReduceSum", x, axes, keepdims=0).evolve(output_types=(pt.TensorType("float32", (2, 3)),))
    open_graph = pt.Graph([node], inputs=[x, axes])
    assert name_implied(open_graph) is open_graph
