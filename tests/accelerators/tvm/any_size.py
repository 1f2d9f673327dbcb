"""What the tests of kernels for any size share."""

from __future__ import annotations

from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.building.specialized import SpecializedSubgraph

random = np.random.default_rng(18)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return random.standard_normal(shape).astype(np.float32)


def specialized(model: Any) -> SpecializedSubgraph:
    (unit,) = model.units
    assert isinstance(unit.compiled, SpecializedSubgraph)
    return unit.compiled


def check(graph: pt.Graph, feeds: list[dict[str, np.ndarray[Any, Any]]], tolerance: float = 2e-5) -> Any:
    """Right for each of these, against the reference, with one compilation."""
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for feed in feeds:
        for a, b in zip(model(feed), reference(feed), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max(initial=0.0))))
    assert specialized(model).sizes == (), "no size was compiled by itself"
    return model


def attention(mask: bool) -> pt.Graph:
    """Two heads over one value, as exporters write it, with its shapes worked out in the graph."""
    x = pt.variable("x", "float32", ("N", "S", 32))
    sizes = pt.op("Shape", x, end=2)
    split = pt.op("Concat", sizes, pt.constant(np.array([2, 16])), axis=0)
    parts = []
    for _ in range(3):
        projected = pt.op("MatMul", x, pt.constant(numbers(32, 32)))
        parts.append(pt.op("Transpose", pt.op("Reshape", projected, split), perm=[0, 2, 1, 3]))
    query, key, value = parts
    scores = pt.op("Mul", pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2])), pt.constant(np.float32(0.25)))
    inputs = [x]
    if mask:
        given_mask = pt.variable("mask", "float32", ("N", 1, 1, "S"))
        inputs.append(given_mask)
        scores = pt.op("Add", scores, given_mask)
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value)
    joined = pt.op("Concat", sizes, pt.constant(np.array([32])), axis=0)
    return pt.Graph([pt.op("Reshape", pt.op("Transpose", mixed, perm=[0, 2, 1, 3]), joined)], inputs)
