"""Models for guard pages: each kind of kernel in odd sizes, each op of ONNX alone, and ONNX's own node tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import partita as pt
from partita.graph.errors import GraphError, PartitaError
from tests.fuzz.models.builder import Builder, Case, Skip
from tests.fuzz.models.generate import RECIPES

TAILS = (1, 3, 7, 15, 17, 31, 33, 63, 65)
"""Sizes on both sides of whole vectors."""


def subject(name: str, seed: int) -> Case | None:
    """The model of a name (a kind of kernel, an op, or "node " and a node test's name); None where there is none for the seed."""
    if name.startswith("node "):
        return node_case(name[5:])
    rng = random.Random(f"{name} {seed}")
    if name in KINDS:
        return KINDS[name](rng)
    for _ in range(20):
        b = Builder(rng, rng.choice((17, 21, 22)))
        try:
            RECIPES[name](b, name)
        except (Skip, GraphError):
            continue
        return b.case()
    return None


def filled(*outputs: pt.Node, rng: random.Random) -> Case:
    """The graph with random inputs."""
    graph = pt.Graph(list(outputs), name="guarded")
    numbers = np.random.default_rng(rng.getrandbits(32))
    feeds = [
        numbers.standard_normal([int(d) for d in node[0].type.shape]).astype(node[0].type.dtype)
        for node in graph.inputs
    ]
    return Case(graph, feeds)


def constant(rng: random.Random, *shape: int, dtype: str = "float32") -> pt.Node:
    """Random weights."""
    return pt.constant(np.random.default_rng(rng.getrandbits(32)).standard_normal(shape).astype(dtype))


def product(rng: random.Random) -> Case:
    """A matrix product, its right side constant or not, with what follows fused into it."""
    m, k, n = rng.choice((1, 2, 5, 13, 37)), rng.choice(TAILS), rng.choice(TAILS)
    right = constant(rng, k, n) if rng.random() < 0.6 else pt.variable("w", "float32", (k, n))
    result = pt.op("MatMul", pt.variable("x", "float32", (m, k)), right)
    result = pt.op("Add", result, constant(rng, n)) if rng.random() < 0.5 else result
    return filled(pt.op("Relu", result) if rng.random() < 0.5 else result, rng=rng)


def batches(rng: random.Random) -> Case:
    """Products of many small matrices."""
    m, k, n = (rng.choice((1, 3, 7, 17)) for _ in range(3))
    return filled(
        pt.op("MatMul", pt.variable("x", "float32", (2, 3, m, k)), pt.variable("y", "float32", (2, 3, k, n))),
        rng=rng,
    )


def convolution(rng: random.Random, group: int = 1, kernel: int = 3) -> Case:
    """A convolution with all kinds of borders."""
    channels, out = rng.choice((1, 3, 8, 16, 17)) * group, rng.choice((1, 5, 16, 19, 32)) * group
    stride, dilation = rng.choice((1, 1, 2)), rng.choice((1, 1, 2)) if kernel > 1 else 1
    pad = rng.choice((0, 1)) if kernel > 1 else 0
    size = (rng.choice((7, 9, 14, 17)), rng.choice((8, 11, 15, 31)))
    x = pt.variable("x", "float32", (rng.choice((1, 2)), channels, *size))
    weights = constant(rng, out, channels // group, kernel, kernel)
    result = pt.op(
        "Conv", x, weights, constant(rng, out), kernel_shape=[kernel] * 2, strides=[stride] * 2, dilations=[dilation] * 2,
        pads=[pad] * 4, group=group,
    )
    return filled(pt.op("Relu", result) if rng.random() < 0.5 else result, rng=rng)


def depthwise(rng: random.Random) -> Case:
    """A filter for each channel."""
    channels = rng.choice((3, 8, 16, 17, 33))
    x = pt.variable("x", "float32", (1, channels, rng.choice((7, 12, 15)), rng.choice((9, 14, 31))))
    stride = rng.choice((1, 2))
    return filled(
        pt.op(
            "Conv",
            x,
            constant(rng, channels, 1, 3, 3),
            kernel_shape=[3, 3],
            pads=[1] * 4,
            strides=[stride] * 2,
            group=channels,
        ),
        rng=rng,
    )


def pools(rng: random.Random) -> Case:
    """Windows over an image."""
    x = pt.variable(
        "x", "float32", (1, rng.choice((3, 16, 17)), rng.choice((7, 12)), rng.choice((9, 15, 16)))
    )
    pads = [rng.choice((0, 1))] * 4
    op = rng.choice(("MaxPool", "AveragePool"))
    return filled(pt.op(op, x, kernel_shape=[3, 3], strides=[rng.choice((1, 2))] * 2, pads=pads), rng=rng)


def attention(rng: random.Random) -> Case:
    """Softmax of a product, and another product."""
    heads, rows, keys, size = (
        rng.choice((1, 3)),
        rng.choice((1, 5, 17, 33)),
        rng.choice((1, 7, 16, 33)),
        rng.choice((4, 8, 16, 20)),
    )
    q, k, v = (
        pt.variable(n, "float32", (1, heads, r, size)) for n, r in (("q", rows), ("k", keys), ("v", keys))
    )
    scores = pt.op(
        "Mul",
        pt.op("MatMul", q, pt.op("Transpose", k, perm=[0, 1, 3, 2])),
        pt.constant(np.float32(size**-0.5)),
    )
    return filled(pt.op("MatMul", pt.op("Softmax", scores, axis=-1), v), rng=rng)


def rows(rng: random.Random) -> Case:
    """What runs over rows: norms, softmaxes, reductions."""
    size = rng.choice(TAILS)
    x = pt.variable("x", "float32", (rng.choice((1, 3, 5)), size))
    kinds: list[Callable[[], pt.Node]] = [
        lambda: pt.op("Softmax", x),
        lambda: pt.op("LogSoftmax", x),
        lambda: pt.op("LayerNormalization", x, constant(rng, size), constant(rng, size)),
        lambda: pt.op("ReduceMean", x, pt.constant(np.array([1])), keepdims=0),
        lambda: pt.op("ReduceMax", x, pt.constant(np.array([0])), keepdims=0),
        lambda: pt.op("ArgMax", x, axis=1),
        lambda: pt.op("CumSum", x, pt.constant(np.array(1))),
    ]
    return filled(rng.choice(kinds)(), rng=rng)


def chain(rng: random.Random) -> Case:
    """Number by number, several ops in one kernel, in several types."""
    shape = tuple(rng.choice(TAILS) for _ in range(rng.choice((1, 2))))
    dtype = rng.choice(("float32", "float32", "float16", "float64", "int32", "int8", "uint8", "int64"))
    x, y = pt.variable("x", dtype, shape), pt.variable("y", dtype, shape[-1:])
    result = pt.op("Mul", pt.op("Add", x, y), x)
    return filled(pt.op("Sigmoid", result) if dtype == "float32" else pt.op("Max", result, y), rng=rng)


def moves(rng: random.Random) -> Case:
    """What computes nothing: transposes, slices, concatenations, pads."""
    a, b, c = (rng.choice((1, 3, 5, 17)) for _ in range(3))
    x = pt.variable("x", rng.choice(("float32", "int8", "float64", "float16")), (a, b, c))
    kinds: list[Callable[[], pt.Node]] = [
        lambda: pt.op("Transpose", x, perm=rng.sample(range(3), 3)),
        lambda: pt.op("Concat", x, x, axis=rng.randrange(3)),
        lambda: pt.op(
            "Slice",
            x,
            pt.constant(np.array([0, b])),
            pt.constant(np.array([c, -99])),
            pt.constant(np.array([2, 1])),
            pt.constant(np.array([2, -1])),
        ),
        lambda: pt.op("Pad", x, pt.constant(np.array([0, 1, 2, 0, 0, 1]))),
        lambda: pt.op("Tile", x, pt.constant(np.array([2, 1, 3]))),
        lambda: pt.op("Expand", x, pt.constant(np.array([2, a, b, c]))),
    ]
    return filled(rng.choice(kinds)(), rng=rng)


KINDS: dict[str, Callable[[random.Random], Case]] = {
    "product": product,
    "batches": batches,
    "convolution": convolution,
    "pointwise convolution": lambda rng: convolution(rng, kernel=1),
    "grouped convolution": lambda rng: convolution(rng, group=2),
    "depthwise convolution": depthwise,
    "pool": pools,
    "attention pattern": attention,
    "rows": rows,
    "chain": chain,
    "moves": moves,
}
"""The subjects, each under its name."""


@cache
def _node_cases() -> dict[str, Any]:
    from tests.accelerators.tvm.node_cases import cases

    return {case.name: case for case in cases()}


def node_names() -> list[str]:
    """ONNX's node tests."""
    return [f"node {name}" for name in _node_cases()]


def node_case(name: str) -> Case | None:
    """One of them with its first data set."""
    from tests.numerics.driver import from_proto

    case = _node_cases()[name]
    feeds = [from_proto(value) for value in case.data_sets[0][0]]
    if not all(isinstance(value, np.ndarray) for value in feeds):
        return None
    shapes = dict(
        zip((i.name for i in case.model.graph.input), (value.shape for value in feeds), strict=False)
    )
    try:
        return Case(pt.load(case.model, shapes=shapes), feeds)
    except PartitaError:
        return None
