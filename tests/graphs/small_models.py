"""Small networks with seeded weights: a few convolutions, and one block of a transformer."""

from __future__ import annotations

import numpy as np

import partita as pt
from partita.graph.types import Array


class Weights:
    """Draws weights such that signals keep their size."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, *shape: int, fan_in: int | None = None) -> pt.Node:
        size = fan_in or int(np.prod(shape[1:]))
        return pt.constant((self.random.standard_normal(shape) / np.sqrt(max(size, 1))).astype("float32"))

    def bias(self, *shape: int) -> pt.Node:
        """Numbers near one."""
        return pt.constant(self.random.standard_normal(shape).astype("float32"))


def convolutions(seed: int = 0, batch: int = 1) -> pt.Graph:
    """A residual network of three convolutions and a classifier."""
    w = Weights(seed)
    x = pt.variable("x", "float32", (batch, 3, 12, 12))
    y = pt.op("Relu", pt.op("Conv", x, w(8, 3, 3, 3), w.bias(8), name="first", pads=[1, 1, 1, 1]))
    y = pt.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    z = pt.op("Relu", pt.op("Conv", y, w(8, 8, 3, 3), w.bias(8), name="second", pads=[1, 1, 1, 1]))
    y = pt.op("Relu", pt.op("Conv", pt.op("Add", y, z), w(16, 8, 3, 3), name="third", pads=[1, 1, 1, 1]))
    flat = pt.op("Flatten", pt.op("GlobalAveragePool", y))
    return pt.Graph([pt.op("Gemm", flat, w(10, 16), w.bias(10), transB=1, name="scores")], name="convolutions")


def transformer(seed: int = 0, width: int = 16, tokens: int = 6) -> pt.Graph:
    """One block: attention of one head, and two layers after it."""
    w = Weights(seed)
    x = pt.variable("x", "float32", (1, tokens, width))
    ones, zeros = pt.constant(np.ones(width, "f")), pt.constant(np.zeros(width, "f"))
    normed = pt.op("LayerNormalization", x, ones, zeros)
    query, keys, values = (
        pt.op("MatMul", normed, w(width, width, fan_in=width), name=name) for name in ("query", "keys", "values")
    )
    products = pt.op("MatMul", query, pt.op("Transpose", keys, perm=[0, 2, 1]))
    chances = pt.op("Softmax", pt.op("Mul", products, pt.constant(np.float32(width**-0.5))), axis=-1)
    seen = pt.op("MatMul", pt.op("MatMul", chances, values), w(width, width, fan_in=width), name="mixed")
    y = pt.op("Add", x, seen)
    wide = pt.op("MatMul", pt.op("LayerNormalization", y, ones, zeros), w(width, 4 * width, fan_in=width), name="up")
    down = pt.op("MatMul", pt.op("Gelu", wide), w(4 * width, width, fan_in=4 * width), name="down")
    return pt.Graph([pt.op("Add", y, down)], name="transformer", opsets={"": 21})


def sensitive() -> pt.Graph:
    """Two products, the second of numbers of which a few are a thousand times the others: rounding takes all small ones away."""
    w = Weights(3)
    x = pt.variable("x", "float32", (4, 32))
    y = pt.op("Relu", pt.op("MatMul", x, w(32, 32, fan_in=32), name="steady"))
    sizes = np.ones(32, np.float32)
    sizes[0] = 5000.0
    wild = pt.op("Mul", y, pt.constant(sizes))
    back = np.array(w(32, 8, fan_in=32).value) / sizes[:, None]
    return pt.Graph([pt.op("MatMul", wild, pt.constant(back), name="delicate")], name="sensitive")


def inputs_of(graph: pt.Graph, count: int = 2) -> list[Array]:
    """Numbers for the one input, several times."""
    shape = graph.inputs[0].output_types[0].shape  # type: ignore[union-attr]
    return [np.random.default_rng(seed).standard_normal(shape).astype("float32") for seed in range(count)]
