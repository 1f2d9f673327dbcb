"""Scales and shifts of channels, before and after they are folded."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.kernels.shared.element_access import float32_shape
from partita.accelerators.tvm.layouts.folding import fold_scales
from partita.graph.interpret import interpret
from tests.accelerators.tvm.running import normals
from tests.close import assert_close

RNG = np.random.default_rng(5)
normal = normals(RNG)


def channels(*shape: int) -> pt.Node:
    return pt.constant(RNG.uniform(0.5, 2, shape).astype("float32"))


def folded(output: pt.Node, x: pt.Node) -> list[str]:
    """The ops that are left; what they compute is what was computed before."""
    before = pt.apply_pass(pt.Graph([output], inputs=[x]), "InferShape")
    after = fold_scales(before)
    given = normal(*(float32_shape(x[0]) or ()))
    for item, wanted in zip(interpret(after, [given]), interpret(before, [given]), strict=True):
        assert_close(item, wanted, atol=1e-4, rtol=1e-4)
    return [str(node.op) for node in after.nodes if node.is_op]


def norm(x: pt.Node, count: int) -> pt.Node:
    return pt.op("BatchNormalization", x, *(channels(count) for _ in range(4)))


@pytest.mark.parametrize("bias", [True, False])
def test_into_the_convolution_before(bias: bool) -> None:
    x = pt.variable("x", "float32", (1, 3, 8, 8))
    weights = [channels(4, 3, 3, 3), *([channels(4)] if bias else [])]
    y = pt.op("Add", pt.op("Mul", pt.op("Conv", x, *weights), channels(4, 1, 1)), channels(1, 4, 1, 1))
    second = pt.op("Conv", pt.op("Relu", pt.op("Div", pt.op("Sub", y, channels(1)), channels(4, 1, 1))), channels(2, 4, 1, 1))
    assert folded(pt.op("Mul", channels(2, 1, 1), second), x) == ["Conv", "Relu", "Conv"]


def test_a_run_without_a_convolution_is_one_scale_and_one_shift() -> None:
    x = pt.variable("x", "float32", (2, 4, 5, 5))
    y = pt.op("Add", pt.op("Mul", norm(pt.op("MaxPool", x, kernel_shape=[2, 2]), 4), channels(4, 1, 1)), channels(4, 1, 1))
    assert folded(pt.op("Relu", y), x) == ["MaxPool", "Mul", "Add", "Relu"]


def test_what_is_read_twice_stays() -> None:
    x = pt.variable("x", "float32", (1, 3, 8, 8))
    result = pt.op("Conv", x, channels(4, 3, 3, 3))
    assert folded(pt.op("Add", pt.op("Mul", result, channels(4, 1, 1)), result), x) == ["Conv", "Mul", "Add"]


def test_a_constant_along_another_dimension_is_no_scale() -> None:
    x = pt.variable("x", "float32", (1, 4, 4, 4))
    result = pt.op("Conv", x, channels(4, 4, 1, 1))
    assert folded(pt.op("Mul", result, channels(4)), x) == ["Conv", "Mul"]


def test_a_bias_that_is_left_out_or_computed() -> None:
    x, scale = pt.variable("x", "float32", (1, 4, 4, 4)), channels(4, 1, 1)
    bias = pt.op("ReduceMax", x, pt.constant(np.array([0, 2, 3])), keepdims=0)
    assert folded(pt.op("Mul", pt.op("Conv", x, channels(4, 4, 1, 1), None), scale), x) == ["Conv"]
    assert folded(pt.op("Mul", pt.op("Conv", x, channels(4, 4, 1, 1), bias), scale), x) == ["ReduceMax", "Conv", "Mul"]


def test_weights_that_are_computed_and_ops_of_another_domain_stay() -> None:
    x, scale = pt.variable("x", "float32", (4, 4, 1, 1)), channels(4, 1, 1)
    assert folded(pt.op("Mul", pt.op("Conv", x, x), scale), x) == ["Conv", "Mul"]
    assert folded(pt.op("Mul", pt.op("Relu", x), scale), x) == ["Relu", "Mul"]
    far = pt.constant(np.full((4, 1, 1), 1e38, np.float32))
    large = pt.constant(np.full((4, 4, 1, 1), 1e3, np.float32))
    graph = pt.apply_pass(pt.Graph([pt.op("Mul", pt.op("Conv", x, large), far)], inputs=[x]), "InferShape")
    assert [node.op for node in fold_scales(graph).nodes if node.is_op] == ["Conv", "Mul"], "the weights would be infinite"
