"""Quantized models on the device `cpu`."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from graph.interpret import interpret
from tests.accelerators.tvm.running import Array, compiled, normals

pytest.importorskip("tvm")


def integers(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Integers of every size that the element type has."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def dequantized(array: Array, scale: float | Array, point: int | Array | None = None, axis: int = 1) -> pt.Node:
    """The constant as numbers."""
    points = () if point is None else (pt.constant(np.asarray(point, array.dtype)),)
    return pt.op("DequantizeLinear", pt.constant(array), pt.constant(np.asarray(scale, np.float32)), *points, axis=axis)


def test_a_weight_of_any_size_is_packed_for_its_kernel_when_it_is_compiled() -> None:
    weight = dequantized(integers(0, (1024, 512), "int8"), 0.01)
    graph = pt.apply_pass(pt.Graph([pt.op("MatMul", pt.variable("x", "float32", (3, 1024)), weight)]), "InferShape")
    x = normals(0)(3, 1024)
    model = compiled(graph)
    (kernel,) = model.kernels()
    assert kernel.text.startswith("kernel gemm")
    assert np.allclose(model.run([x], [None])[0], interpret(graph, [x])[0], rtol=1e-4, atol=1e-3)
