"""The polynomials against double precision, in units of the last place of the true value."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from partita.graph.types import Array, numpy_dtype
from tests.accelerators.tvm.running import compiled, error, schedules

pytest.importorskip("tvm")


FUNCTIONS = {
    "Exp": (np.exp, -87.3, 88.3, 1.5),
    "Tanh": (np.tanh, -9.0, 9.0, 6.0),
    "Erf": (np.vectorize(math.erf), -4.5, 4.5, 7.0),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -80.0, 30.0, 3.0),
}
"""For each op: the function, the numbers between which it is tried, and how many units it may be off."""


def units_off(result: Array, wanted: Array) -> Array:
    """How far, in units of the last place."""
    return np.abs(result.astype(np.float64) - wanted) / np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_units_of_the_last_place(op: str) -> None:
    function, low, high, limit = FUNCTIONS[op]
    small = np.geomspace(1e-6, high, 30_000), -np.geomspace(1e-6, -low, 30_000)
    values = np.concatenate([np.linspace(low, high, 200_000), *small]).astype("float32")
    x = pt.variable("x", "float32", values.shape)
    (output,) = compiled(pt.Graph([pt.op(op, x)], inputs=[x])).run([values])
    assert units_off(output, function(values.astype(np.float64))).max() <= limit


def test_an_exponential_to_its_ends() -> None:
    """Near the largest number the polynomial is asked for more than half a power of two; beyond, all is infinite or nothing."""
    near, ends = np.linspace(88.3, 88.72, 4000), [88.73, 1e4, np.inf, -88.0, -1e4, -np.inf, np.nan, 0.0]
    values = np.concatenate([near, ends]).astype("float32")
    x = pt.variable("x", "float32", values.shape)
    (output,) = compiled(pt.Graph([pt.op("Exp", x)], inputs=[x])).run([values])
    assert units_off(output[:4000], np.exp(values[:4000].astype(np.float64))).max() <= 4.0
    np.testing.assert_array_equal(output[4000:], np.array([np.inf, np.inf, np.inf, 0, 0, 0, np.nan, 1], "float32"))


def test_a_logarithm_to_its_ends() -> None:
    values = np.concatenate([np.geomspace(1e-45, 3.4e38, 60_000), np.linspace(0.5, 2, 60_000)]).astype("float32")
    ends = np.array([0, -0.0, -1, np.inf, -np.inf, np.nan, 1], "float32")
    x = pt.variable("x", "float32", (len(values) + 7,))
    model = compiled(pt.Graph([pt.op("Log", x)], inputs=[x]))
    (output,) = model.run([np.concatenate([values, ends])])
    assert schedules(model) == ["chain"]
    assert units_off(output[:-7], np.log(values.astype(np.float64))).max() <= 1.0
    np.testing.assert_array_equal(output[-7:], [-np.inf, -np.inf, np.nan, np.inf, np.nan, np.nan, 0])


def test_the_exponentials_of_a_softmax() -> None:
    """Numbers apart from the largest by up to 87: each weight is the exponential times one over the sum."""
    values = np.linspace(-86.5, 0, 4000).astype("float32").reshape(1, -1)
    x = pt.variable("x", "float32", values.shape)
    model = compiled(pt.Graph([pt.op("Softmax", x, axis=-1)], inputs=[x]))
    assert schedules(model) == ["rows"]
    (output,) = model.run([values])
    wanted = np.exp(values.astype(np.float64)) / np.exp(values.astype(np.float64)).sum()
    normal = wanted > 1.2e-38
    assert units_off(output, wanted)[normal].max() <= 3.0


STEPS: dict[str, Callable[[pt.Node], pt.Node]] = {
    "Swish": lambda x: pt.op("Mul", x, pt.op("Sigmoid", x)),
    "Mish": lambda x: pt.op("Mish", x),
    "HardSwish": lambda x: pt.op("HardSwish", x),
    "Elu": lambda x: pt.op("Elu", x),
    "Gelu": lambda x: pt.op("Gelu", x, approximate="tanh"),
}
"""Functions that read their number several times."""


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 2e-6), ("bfloat16", 0.02)])
@pytest.mark.parametrize("step", STEPS)
def test_functions_behind_a_product_are_compiled_in_seconds(step: str, dtype: str, limit: float) -> None:
    """Two of them took minutes: what the second reads was written out wherever it reads it."""
    kind = numpy_dtype(dtype)
    x, draw = pt.variable("x", dtype, (24, 64)), np.random.default_rng(0)
    y = pt.op("MatMul", x, pt.constant((draw.standard_normal((64, 48)) / 8).astype(kind)))
    for _ in range(3):
        y = STEPS[step](y)
    graph, begun = pt.Graph([y]), time.process_time()
    model = compiled(graph)
    assert time.process_time() - begun < 20
    given = draw.standard_normal((24, 64)).astype(kind)
    assert error(model.run([given])[0], interpret(graph, [given])[0]) <= limit


@pytest.mark.parametrize("last", ["Softmax", "ReduceSum"])
def test_functions_before_a_row_are_compiled_in_seconds(last: str) -> None:
    x = pt.variable("x", "float32", (6, 40))
    y = pt.op("Mish", pt.op("Mul", pt.op("Mish", x), pt.op("Softplus", x)))
    graph = pt.Graph([pt.op("Softmax", y) if last == "Softmax" else pt.op("ReduceSum", y, pt.constant(np.array([1])))])
    given, begun = np.random.default_rng(0).standard_normal((6, 40)).astype("f"), time.process_time()
    model = compiled(graph)
    assert time.process_time() - begun < 20
    assert error(model.run([given])[0], interpret(graph, [given])[0]) <= 2e-6
