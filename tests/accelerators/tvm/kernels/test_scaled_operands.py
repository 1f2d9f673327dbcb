"""Products of two values that are multiplied or divided by constants before: the product is scaled once, in the same kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import partita as pt
from tests.accelerators.tvm.lockstep import run
from tests.accelerators.tvm.planned import MACHINES, kernels
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")


def one(value: float) -> pt.Node:
    return pt.constant(np.float32(value))


SCALED: list[tuple[Any, float, Any, float]] = [
    (lambda x: pt.op("Mul", x, one(0.75)), 0.75, lambda y: y, 1.0),
    (lambda x: x, 1.0, lambda y: pt.op("Mul", one(-3.0), y), -3.0),
    (lambda x: pt.op("Div", x, one(8.0)), 0.125, lambda y: pt.op("Mul", y, one(0.3)), 0.3),
    (lambda x: pt.op("Mul", x, one(0.25)), 0.25, lambda y: pt.op("Div", y, one(0.5)), 2.0),
]


@pytest.mark.parametrize("number", range(len(SCALED)))
@pytest.mark.parametrize("rows", [5, 70])
def test_a_product_is_scaled_by_both_factors(number: int, rows: int) -> None:
    left, first, right, second = SCALED[number]
    random = np.random.default_rng(number)
    x, y = (random.integers(-9, 9, (2, *sizes)).astype(np.float32) for sizes in ((rows, 24), (24, 33)))
    nodes = [pt.variable(name, "float32", array.shape) for name, array in (("x", x), ("y", y))]
    graph = pt.apply_pass(pt.Graph([pt.op("MatMul", left(nodes[0]), right(nodes[1]))], nodes), "InferShape")
    wanted = (x.astype("d") * first) @ (y.astype("d") * second)
    model = compiled(graph)
    assert len(model.launches) == 1
    np.testing.assert_allclose(model.run([x, y], [None])[0], wanted, rtol=1e-6, atol=1e-6)
    ((_, draft),) = kernels(graph, MACHINES["tf32"], "f32")
    assert draft is not None and draft.kernel is not None
    arrays = {x.size: x, y.size: y, 1: np.zeros(1, np.float32)}  # the constants are part of the kernel, and not read
    read = [buffer.shape for buffer in draft.kernel.arguments if buffer.role == "input"]
    (made,) = run(draft.kernel, [arrays[math.prod(shape)] for shape in read])  # type: ignore[arg-type]
    np.testing.assert_allclose(made.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)
