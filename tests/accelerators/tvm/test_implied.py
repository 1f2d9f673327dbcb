"""Values that the sizes around a node say, and that TVM compiles only as constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.prepare.inferred_operands import fold_implied

pytest.importorskip("tvm")

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def graph(op: str, said: Any, *shapes: tuple[int, ...], given: tuple[int, ...] = X.shape, **attrs: Any) -> pt.Graph:
    """The op with a variable where it reads `said`, its results' sizes stated."""
    x = pt.variable("x", "float32", given)
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


SPELLINGS = {
    "reshape": ("Reshape", [-1, 4], [(6, 4)], {}, [[6, 4], [6, -1]], [[4, 6], [-1, -1], [0, 4], [6, 5], [6, 0], [-1, 0]]),
    "taken over": ("Reshape", [0, 12], [(2, 12)], {}, [[2, -1], [-1, 12]], [[3, 8], [0, 0], [12, 2]]),
    "zero allowed": ("Reshape", [2, 12], [(2, 12)], {"allowzero": 1}, [[-1, 12]], [[0, 12]]),
    "expand": ("Expand", [5, 1, 3, 1], [(5, 2, 3, 4)], {}, [[5, 2, 3, 4]], [[1, 2, 3, 4], [5, 2, 3, 8], [4, 1, 1, 1]]),
    "tile": ("Tile", [1, 2, 3], [(2, 6, 12)], {}, [], [[1, 1, 1], [3, 2, 1], [0, 2, 3], [-1, 2, 3]]),
    "split": ("Split", [1, 3], [(2, 3, 1), (2, 3, 3)], {"axis": 2}, [], [[3, 1], [2, 2], [1, 4]]),
    "axes": ("ReduceSum", [0, 2], [(1, 3, 1)], {}, [[2, 0], [-1, -3], [-1, 0]], [[0, 1], [0, 0], [2, 2], [1, 2], [0, 5]]),
    "squeeze": ("Squeeze", [0], [(6, 1, 4)], {"given": (1, 6, 1, 4)}, [[-4]], [[2], [1], [4]]),
    "unsqueeze": ("Unsqueeze", [0], [(1, 2, 3, 4)], {}, [[-4]], [[1], [3], [-1]]),
}
"""An op, a value, the sizes of its results, its attributes; the value written in other ways; other values."""


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_value_that_says_something_else_is_an_error(name: str) -> None:
    op, said, shapes, attrs, same, others = SPELLINGS[name]
    stated = graph(op, said, *shapes, **attrs)
    model = pt.compile(stated, "cpu", strict=True)
    x = X.reshape(attrs.get("given", X.shape))
    outcomes = [model(x, np.array(value)) for value in (said, *same)]
    wanted = pt.compile(stated, "reference")(x, np.array(said))
    assert all((a == b).all() for outcome in outcomes for a, b in zip(outcome, wanted, strict=True))
    for value in others:
        with pytest.raises(pt.RunError, match=rf"node 'y' \({op}\): the sizes of its results ask for \["):
            model(x, np.array(value))


def test_axes_that_sizes_leave_open_go_elsewhere() -> None:
    """Either axis may be the new one: `cpu` could not tell whether the value is right."""
    stated = graph("Unsqueeze", [0], (1, 1, 4), given=(1, 4))
    assert accelerator("cpu").query(stated) == {"y": "the sizes of 'y' depend on values: those of 'said'"}


def test_a_model_of_any_size_looks_at_such_values_too() -> None:
    x, said = pt.variable("x", "float32", X.shape), pt.variable("said", "int64", (2,))
    rows = pt.variable("rows", "float32", ("N", 4))
    stated = pt.op("Reshape", x, said, name="y").evolve(output_types=(pt.TensorType("float32", (6, 4)),))
    model = pt.compile(pt.Graph([pt.op("Relu", stated), pt.op("Relu", rows)], inputs=[x, said, rows]), "cpu")
    ones = np.ones((3, 4), np.float32)
    assert model(X, np.array([6, 4]), ones)[0].shape == (6, 4)
    with pytest.raises(pt.RunError, match="ask for"):
        model(X, np.array([4, 6]), ones)


def test_names_that_the_checks_might_have_are_free() -> None:
    x, said = pt.variable("x", "float32", X.shape), pt.variable("said", "int64", (2,))
    y = pt.op("Reshape", x, said, name="y").evolve(output_types=(pt.TensorType("float32", (6, 4)),))
    graph = pt.Graph([pt.op("Neg", y, name="y_implied")], [x, said], output_names=["0_said_otherwise"])
    assert (pt.compile(graph, "cpu")(X, np.array([-1, 4]))["0_said_otherwise"] == -X.reshape(6, 4)).all()


def test_what_sizes_leave_open_stays() -> None:
    x, axes = pt.variable("x", "float32", (2, 3, 3)), pt.variable("axes", "int64", (1,))
    node = pt.op("ReduceSum", x, axes, keepdims=0).evolve(output_types=(pt.TensorType("float32", (2, 3)),))
    open_graph = pt.Graph([node], inputs=[x, axes])
    assert fold_implied(open_graph) is open_graph
