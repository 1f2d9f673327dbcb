"""Each kind of kernel against numpy in double precision, on random shapes."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.running import check, compiled, normals, schedules

pytest.importorskip("tvm")

normal = normals(7)
SHAPES = [(4, 7, 64), (3, 17), (2, 3, 5), (1, 1000), (5, 1, 24)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_chain(shape: tuple[int, ...]) -> None:
    x, row = pt.variable("x", "float32", shape), pt.constant(normal(shape[-1]))
    y = pt.op("Add", pt.op("Mul", pt.op("Sigmoid", x), row), pt.op("Tanh", x))
    g = pt.Graph([pt.op("Gelu", y)], inputs=[x])
    assert schedules(check(g, [normal(*shape)])) == ["chain"]


FUNCTIONS = "Exp Tanh Erf Sigmoid Gelu Elu Selu HardSwish Softsign LeakyRelu Sqrt Reciprocal Abs Neg Relu".split()


@pytest.mark.parametrize("op", FUNCTIONS)
def test_each_function(op: str) -> None:
    x = pt.variable("x", "float32", (3, 40))
    values = normal(3, 40) * 3
    g = pt.Graph([pt.op(op, x)], inputs=[x])
    assert schedules(check(g, [np.abs(values) + 0.1 if op in ("Sqrt", "Reciprocal") else values])) == ["chain"]


@pytest.mark.parametrize("op", "Exp Tanh Erf Sigmoid Relu Gelu Elu".split())
def test_nan_stays_nan(op: str) -> None:
    x = pt.variable("x", "float32", (8,))
    values = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 100, -100, 88.5], "float32")
    (output,) = compiled(pt.Graph([pt.op(op, x)], inputs=[x])).run([values])
    assert np.isnan(output).tolist() == [True, False, op == "Gelu", *[False] * 5]
    assert np.isinf(output[5]) == (op == "Exp")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(op: str, shape: tuple[int, ...]) -> None:
    x = pt.variable("x", "float32", shape)
    result = check(pt.Graph([pt.op(op, x, axis=-1)], inputs=[x]), [normal(*shape) * 5])
    assert schedules(result) == ["rows"]


def test_softmax_of_a_masked_row() -> None:
    x = pt.variable("x", "float32", (2, 20))
    values = normal(2, 20)
    values[:, 11:] = -np.inf
    (output,) = compiled(pt.Graph([pt.op("Softmax", x)], inputs=[x])).run([values])
    assert (output[:, 11:] == 0).all() and np.allclose(output.sum(1), 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normalization(shape: tuple[int, ...]) -> None:
    x, scale, bias = pt.variable("x", "float32", shape), pt.constant(normal(shape[-1])), pt.constant(normal(shape[-1]))
    layer = pt.op("LayerNormalization", x, scale, bias, epsilon=1e-5)
    assert schedules(check(pt.Graph([layer], inputs=[x]), [normal(*shape) + 3], 1e-5)) == ["rows"]


def test_normalization_over_two_dimensions_with_values_for_weights() -> None:
    x, scale = pt.variable("x", "float32", (3, 6, 9)), pt.variable("scale", "float32", (6, 9))
    g = pt.Graph([pt.op("LayerNormalization", x, scale, axis=1)], inputs=[x, scale])
    assert schedules(check(g, [normal(3, 6, 9), normal(6, 9)])) == ["rows"]


@pytest.mark.parametrize("op", "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL2 ReduceSumSquare".split())
@pytest.mark.parametrize("keep", [0, 1])
def test_reduction(op: str, keep: int) -> None:
    x = pt.variable("x", "float32", (3, 5, 71))
    g = pt.Graph([pt.op(op, x, pt.constant(np.array([-1])), keepdims=keep)], inputs=[x])
    assert schedules(check(g, [normal(3, 5, 71)])) == ["rows"]


@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_largest_of_nothing_but_minus_infinity(dtype: str, axes: list[int]) -> None:
    x = pt.variable("x", dtype, (2, 5, 40))
    g = pt.Graph([pt.op("ReduceMax", x, pt.constant(np.array(axes)), keepdims=0)], inputs=[x])
    values = normal(2, 5, 40).astype(dtype)
    values[0], values[:, :, 3] = -np.inf, -np.inf
    (output,) = compiled(g).run([values])
    assert np.array_equal(output, values.max(tuple(axes)))


def test_several_results_of_one_chain() -> None:
    x = pt.variable("x", "float32", (6, 33))
    y = pt.op("Exp", x)
    g = pt.Graph([y, pt.op("Mul", y, x)], inputs=[x])
    check(g, [normal(6, 33)])


def test_a_chain_with_several_results_is_one_kernel() -> None:
    x, y = pt.variable("x", "float32", (5, 64)), pt.variable("y", "float32", (64,))
    shared = pt.op("Exp", pt.op("Neg", x))
    results = [pt.op("Add", shared, y), pt.op("Sqrt", shared), shared, pt.op("Greater", shared, x)]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("float32") for shape in ((5, 64), (64,))]
    assert schedules(check(pt.Graph(results, inputs=[x, y]), arrays)) == ["chain"]
