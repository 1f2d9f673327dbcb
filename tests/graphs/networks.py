"""Small models that compute something worth comparing."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph import Graph, constant, op, variable


def conv_relu() -> Graph:
    weights = np.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(np.float32)
    conv = op("Conv", variable("x", "float32", (1, 3, 16, 16)), constant(weights, name="w"), name="conv", kernel_shape=[3, 3])
    return Graph([op("Relu", conv, name="relu")], name="small")


def small_net(size: int = 8, seed: int = 0, name: str = "small") -> Graph:
    """Conv, Relu, MatMul, Softmax over an image of that size."""
    random = np.random.default_rng(seed)
    x = variable("x", "float32", (1, 3, size, size))
    kernel = constant(random.standard_normal((8, 3, 3, 3), np.float32), name="kernel")
    value = op("Relu", op("Conv", x, kernel, name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), name="relu")
    value = op("ReduceMean", value, constant(np.array([2, 3]), name="axes"), name="mean", keepdims=0)
    weight = constant(random.standard_normal((8, 40), np.float32), name="weight")
    return Graph([op("Softmax", op("MatMul", value, weight, name="matmul"), name="soft"), value], name=name)


def dynamic_net() -> Graph:
    """MatMul and Relu over any number of rows."""
    x = variable("x", "float32", ("N", 16))
    weight = constant(np.random.default_rng(1).standard_normal((16, 20), np.float32), name="weight")
    return Graph([op("Relu", op("MatMul", x, weight, name="matmul"), name="relu")], name="dynamic")


def inputs_of(graph: Graph, seed: int = 3, n: int = 5) -> Any:
    """An array that fits the graph's one input."""
    shape = [dim if isinstance(dim, int) else n for dim in graph.inputs[0][0].type.shape]
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
