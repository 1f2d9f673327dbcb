"""Norms and softmax in pieces, and ops around them, as one kernel each; against numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from tests.accelerators.tvm.running import check, compiled, normals, number, schedules
from tests.drawn import some

pytest.importorskip("tvm")

normal = normals(17)
AXIS = pt.constant(np.array([-1]))

shapes = st.lists(st.integers(1, 6), min_size=1, max_size=2).flatmap(
    lambda rows: st.integers(2, 90).map(lambda columns: (*rows, columns))
)


def spelled_layer_norm(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    centred = pt.op("Sub", x, pt.op("ReduceMean", x, AXIS))
    variance = pt.op("ReduceMean", pt.op("Pow", centred, number(2)), AXIS)
    node = pt.op("Div", centred, pt.op("Sqrt", pt.op("Add", variance, number(1e-5))))
    return [pt.op("Add", pt.op("Mul", node, scale), y)]


def residual_and_norm(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    total = pt.op("Add", x, y)
    return [pt.op("LayerNormalization", total, scale, scale), total]


def spelled_rms_norm(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    mean = pt.op("ReduceMean", pt.op("Mul", x, x), AXIS)
    over = pt.op("Reciprocal", pt.op("Sqrt", pt.op("Add", mean, number(1e-6))))
    return [pt.op("Mul", pt.op("Mul", x, over), scale)]


def masked_softmax(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    return [pt.op("Mul", pt.op("Softmax", pt.op("Add", pt.op("Mul", x, number(0.3)), scale), axis=-1), y)]


def spelled_softmax(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    power = pt.op("Exp", pt.op("Sub", x, pt.op("ReduceMax", x, AXIS)))
    return [pt.op("Div", power, pt.op("ReduceSum", power, AXIS))]


def two_reductions_at_once(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    high, low = pt.op("ReduceMax", x, AXIS), pt.op("ReduceMin", pt.op("Mul", x, y), AXIS)
    return [pt.op("Sub", high, low), pt.op("Sigmoid", pt.op("Sub", x, high))]


def softmax_and_its_powers(x: pt.Node, y: pt.Node, scale: pt.Node) -> list[pt.Node]:
    """Both are kept in a result's row: the powers where they will stand anyhow."""
    power = pt.op("Exp", pt.op("Sub", x, pt.op("ReduceMax", x, AXIS)))
    return [pt.op("Div", power, pt.op("ReduceSum", power, AXIS)), power, pt.op("Mul", power, y)]


PROGRAMS = [
    spelled_layer_norm, residual_and_norm, spelled_rms_norm, masked_softmax, spelled_softmax, two_reductions_at_once,
    softmax_and_its_powers,
]


@pytest.mark.parametrize("program", PROGRAMS)
@some
@given(shape=shapes)
@pytest.mark.thinned(2)
def test_rows_of_any_sizes(program: Callable[..., list[pt.Node]], shape: tuple[int, ...]) -> None:
    x, y = pt.variable("x", "float32", shape), pt.variable("y", "float32", shape)
    g = pt.Graph(program(x, y, pt.constant(normal(shape[-1]))), inputs=[x, y])
    assert schedules(check(g, [normal(*shape) * 2 + 1, normal(*shape)], 2e-5)) == ["rows"]


def test_rows_shared_out_among_threads() -> None:
    x, y = pt.variable("x", "float32", (50, 700)), pt.variable("y", "float32", (50, 700))
    g = pt.Graph(residual_and_norm(x, y, pt.constant(normal(700))), inputs=[x, y])
    assert schedules(check(g, [normal(50, 700), normal(50, 700)], 1e-5, NUM_THREADS=3)) == ["rows"]


def test_a_masked_row_in_pieces() -> None:
    x = pt.variable("x", "float32", (2, 30))
    values = normal(2, 30)
    values[0], values[1, 5:] = -np.inf, -np.inf
    (output,) = compiled(pt.Graph(masked_softmax(x, number(1.0), number(0.0)), inputs=[x])).run([values])
    assert np.isnan(output[0]).all() and (output[1, 5:] == 0).all() and abs(output[1].sum() - 1) < 1e-6


@pytest.mark.parametrize("op", ["ReduceSum", "Softmax", "LayerNormalization"])
def test_a_row_of_what_a_row_was_reduced_to(op: str) -> None:
    """The reduction of one number is that of one number, however wide the rows are that it came from."""
    x = pt.variable("x", "float32", (2, 3, 40))
    one = pt.op("Add", pt.op("ReduceMean", x, AXIS), number(3))
    given = {"ReduceSum": [AXIS], "Softmax": [], "LayerNormalization": [pt.constant(normal(1))]}[op]
    check(pt.Graph([pt.op(op, one, *given), one], inputs=[x]), [normal(2, 3, 40)])


@pytest.mark.parametrize("shape", [(1, 3, 5), (2, 3, 2, 2), (3, 1, 9, 7), (2, 5, 4, 6, 7), (1, 9, 1, 9), (2, 1, 3)])
def test_the_norm_of_each_channel(shape: tuple[int, ...]) -> None:
    """One kernel, whose scales are those of the channels, however long the last dimension is."""
    x, (scale, bias) = pt.variable("x", "float32", shape), [pt.variable(name, "float32", shape[1:2]) for name in "sb"]
    inputs = [100 + normal(*shape), normal(shape[1]), normal(shape[1])]
    by_constant = pt.op("InstanceNormalization", x, pt.constant(inputs[1]), bias, epsilon=0.1)
    for norm in (pt.op("InstanceNormalization", x, scale, bias), by_constant):
        graph = pt.apply_pass(pt.Graph([norm], [x, scale, bias]), "InferShape")
        assert schedules(check(graph, inputs, 1e-4)) == ["rows"]
