"""Random networks of any size as exporters write them: images, text, boxes, sequences, quantized ones, branches and loops."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

import partita as pt
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array, Dim
from tests.fuzz.models.builder import typed
from tests.fuzz.sizes.opened import Opened, Shapes

FEWEST, MOST_OPS = 10, 60
"""The number of ops of a network."""

FAR = 2**62

OPSETS = {"": 21, "com.microsoft": 1}
"""The opsets of a network and its bodies."""

Value = Node | NodeEntry


@attrs.frozen
class Symbol:
    """A size of the inputs."""

    good: tuple[int, ...]
    """Sizes that fit by themselves."""
    bad: tuple[int, ...]
    """Sizes that contradict something, or leave nothing."""


class Net:
    """What a network is written with."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.random = np.random.default_rng(rng.getrandbits(32))
        self.symbols: dict[str, Symbol] = {}
        self.inputs: list[Node] = []
        self.draws: list[Callable[[tuple[int, ...]], Array]] = []
        self.count = 0

    def symbol(self, name: str, good: Sequence[int], bad: Sequence[int] = (0,)) -> str:
        """A symbol and its sizes."""
        self.symbols.setdefault(name, Symbol(tuple(good), tuple(bad)))
        return name

    def maybe(self, size: int, name: str) -> Dim:
        """A size that the network is built for: declared, or left open as in a careless export."""
        if self.rng.random() < 0.6:
            return size
        return self.symbol(name, (size,), (size - 1, size + 1, 2 * size, 1, 0))

    def input(self, dtype: str, dims: Sequence[Dim], draw: Callable[[tuple[int, ...]], Array] | None = None) -> Node:
        """An input, with what it is filled with at each size."""
        self.inputs.append(pt.variable(f"input_{len(self.inputs)}", dtype, dims))
        self.draws.append(draw or (lambda shape: self.random.standard_normal(shape).astype(dtype)))
        return self.inputs[-1]

    def op(self, op: str, *inputs: Any, **attributes: Any) -> Node:
        """An op."""
        self.count += 1
        return pt.op(op, *inputs, opset=21, **attributes)

    def weight(self, *shape: int) -> Node:
        """Weights that keep the size of numbers."""
        fan = math.prod(shape[1:]) if len(shape) > 2 else shape[0]
        return pt.constant((self.random.standard_normal(shape) / math.sqrt(max(1, fan))).astype(np.float32))

    def positive(self, *shape: int) -> Node:
        """Numbers from a half to one and a half."""
        return pt.constant((self.random.random(shape) + 0.5).astype(np.float32))

    def number(self, value: float, dtype: str = "float32") -> Node:
        """A constant number."""
        return pt.constant(np.array(value, dtype))

    def chance(self, share: float) -> bool:
        """True in that share of the cases."""
        return self.rng.random() < share

    def size(self, x: Value, axis: int) -> Node:
        """One size as a vector, in one of the ways of exporters."""
        if self.chance(0.5):
            return self.op("Shape", x, start=axis, end=axis + 1)
        return self.op("Unsqueeze", self.op("Gather", self.op("Shape", x), self.number(axis, "int64"), axis=0), ints(0))

    def vector(self, *parts: Value | int) -> Node:
        """Sizes beside each other."""
        return self.op("Concat", *[ints(part) if isinstance(part, int) else part for part in parts], axis=0)


def ints(*values: int) -> Node:
    """A constant vector of integers."""
    return pt.constant(np.array(values, np.int64))


# -- images ----------------------------------------------------------------------------------------------------


def activation(n: Net, x: Value) -> Node:
    """One of the functions behind convolutions."""
    kind = n.rng.choice(("Relu", "Relu", "Clip", "HardSwish", "silu", "LeakyRelu"))
    if kind == "Clip":
        return n.op("Clip", x, n.number(0), n.number(6))
    return n.op("Mul", x, n.op("Sigmoid", x)) if kind == "silu" else n.op(kind, x)


def convolved(n: Net, x: Value, channels: int, out: int, kernel: int = 3, stride: int = 1, group: int = 1) -> Node:
    """A convolution, a norm perhaps, an activation."""
    bias = [n.weight(out)] if n.chance(0.5) else []
    result = n.op(
        "Conv", x, n.weight(out, channels // group, kernel, kernel), *bias, kernel_shape=[kernel] * 2, strides=[stride] * 2,
        pads=[kernel // 2] * 4, group=group,
    )
    if n.chance(0.5):
        result = n.op("BatchNormalization", result, n.positive(out), n.weight(out), n.weight(out), n.positive(out))
    return activation(n, result)


def backbone(n: Net, x: Value, channels: int, blocks: int) -> tuple[Value, int, list[tuple[Value, int]]]:
    """Blocks of convolutions; the last value, its channels, and each stage before it was halved."""
    stages: list[tuple[Value, int]] = []
    for _ in range(blocks):
        kind = n.rng.choice(("plain", "residual", "separable", "excited", "dense", "pool", "strided", "branches"))
        if kind == "plain":
            out = n.rng.choice((4, 8, 16))
            x, channels = convolved(n, x, channels, out, n.rng.choice((1, 3))), out
        elif kind == "residual":
            x = n.op("Relu", n.op("Add", x, convolved(n, convolved(n, x, channels, channels), channels, channels, 1)))
        elif kind == "separable":
            x = convolved(n, convolved(n, x, channels, channels, group=channels), channels, 8, 1)
            channels = 8
        elif kind == "excited":
            pooled = n.op("GlobalAveragePool", x) if n.chance(0.5) else n.op("ReduceMean", x, ints(2, 3), keepdims=1)
            squeezed = n.op("Relu", n.op("Conv", pooled, n.weight(4, channels, 1, 1), n.weight(4)))
            x = n.op("Mul", x, n.op("Sigmoid", n.op("Conv", squeezed, n.weight(channels, 4, 1, 1), n.weight(channels))))
        elif kind == "dense":
            x, channels = n.op("Concat", x, convolved(n, x, channels, 4), axis=1), channels + 4
        elif kind == "branches":
            pooled = n.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
            parts = [convolved(n, x, channels, 4, 1), convolved(n, x, channels, 4, 3), pooled]
            x, channels = n.op("Concat", *parts, axis=1), channels + 8
        else:
            stages.append((x, channels))
            if kind == "pool":
                op = n.rng.choice(("MaxPool", "AveragePool"))
                x = n.op(op, x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=n.rng.choice((0, 0, 1)))
            else:
                x, channels = convolved(n, x, channels, 8, 3, 2), 8
    return x, channels, stages


def image(n: Net) -> tuple[Node, int]:
    """An image of any size."""
    channels = n.rng.choice((1, 3))
    height = n.symbol("H", (8, 12, 17, 20), (0, 1, 3))
    width = n.symbol("W", (8, 9, 16, 24), (0, 2, 5)) if n.chance(0.8) else height
    return n.input("float32", (n.symbol("N", (1, 2, 3)), n.maybe(channels, "C"), height, width)), channels


def classified(n: Net, x: Value, channels: int) -> Node:
    """A classifier, pooled to one pixel, or for images of one size alone."""
    if n.chance(0.75):
        pooled = n.op("GlobalAveragePool", x) if n.chance(0.7) else n.op("ReduceMean", x, ints(-2, -1), keepdims=1)
        kind = n.rng.choice(("Flatten", "Reshape", "Shape"))
        if kind == "Flatten":
            x = n.op("Flatten", pooled, axis=1)
        else:
            sizes = n.vector(n.size(pooled, 0), -1) if kind == "Shape" else ints(0, channels)
            x = n.op("Reshape", pooled, sizes)
    else:
        x, channels = n.op("Reshape", x, ints(-1, 4 * channels)), 4 * channels
    result = n.op("Gemm", x, n.weight(5, channels), n.weight(5), transB=1)
    return n.op("Softmax", result, axis=-1) if n.chance(0.5) else result


def cnn(n: Net) -> list[Node]:
    """A classifier of images, or a network that gives an image back."""
    x, channels = image(n)
    value, channels, stages = backbone(n, convolved(n, x, channels, 8), 8, n.rng.randint(2, 5))
    if n.chance(0.5):
        return [classified(n, value, channels)]
    for old, width in reversed(stages):
        if n.chance(0.7):
            sizes = n.vector(n.op("Shape", value, start=0, end=2), n.op("Shape", old, start=2, end=4))
            larger = n.op("Resize", value, None, None, sizes, mode=n.rng.choice(("linear", "nearest")))
        else:  # twice as large, which fits what was even alone
            scales = pt.constant(np.array([1, 1, 2, 2], np.float32))
            attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            larger = n.op("Resize", value, None, scales, mode="nearest", **attributes)
        if n.chance(0.5):
            value, channels = convolved(n, n.op("Concat", larger, old, axis=1), channels + width, 8), 8
        else:
            value, channels = n.op("Add", convolved(n, larger, channels, width, 1), old), width
    return [n.op("Sigmoid", n.op("Conv", value, n.weight(2, channels, 1, 1), n.weight(2)))]


# -- text ------------------------------------------------------------------------------------------------------


def normed(n: Net, x: Value, width: int) -> Node:
    """A norm of rows, as an op or in its parts."""
    if n.chance(0.5):
        return n.op("LayerNormalization", x, n.positive(width), n.weight(width), axis=-1)
    axis = ints(-1)
    if n.chance(0.5):
        centred = n.op("Sub", x, n.op("ReduceMean", x, axis))
        variance = n.op("ReduceMean", n.op("Pow", centred, n.number(2)), axis)
        scaled = n.op("Div", centred, n.op("Sqrt", n.op("Add", variance, n.number(1e-5))))
        return n.op("Add", n.op("Mul", scaled, n.positive(width)), n.weight(width))
    mean = n.op("ReduceMean", n.op("Mul", x, x), axis)
    return n.op("Mul", n.op("Mul", x, n.op("Reciprocal", n.op("Sqrt", n.op("Add", mean, n.number(1e-5))))), n.positive(width))


def linear(n: Net, x: Value, inside: int, out: int) -> Node:
    """A product and a bias."""
    return n.op("Add", n.op("MatMul", x, n.weight(inside, out)), n.weight(out))


def heads(n: Net, x: Value, count: int, size: int) -> Node:
    """[N, T, heads * size] as [N, heads, T, size]."""
    kind = n.rng.choice(("copied", "computed", "rest"))
    if kind == "copied":
        sizes: Node = ints(0, 0, count, size)
    elif kind == "rest":
        sizes = n.vector(n.size(x, 0), -1, count, size)
    else:
        sizes = n.vector(n.size(x, 0), n.size(x, 1), count, size)
    return n.op("Transpose", n.op("Reshape", x, sizes), perm=[0, 2, 1, 3])


def length(n: Net, x: Value, axis: int) -> Node:
    """One size as a number."""
    return n.op("Squeeze", n.size(x, axis), ints(0))


def causal(n: Net, scores: Value, x: Value, table: int) -> Node:
    """Scores of later positions are hidden: by positions, a triangle, or a constant of the longest text."""
    kind = n.rng.choice(("range", "trilu", "constant", "buffer"))
    if kind == "range":
        places = n.op("Range", n.number(0, "int64"), length(n, x, 1), n.number(1, "int64"))
        seen = n.op("LessOrEqual", places, n.op("Unsqueeze", places, ints(1)))
        return n.op("Where", seen, scores, n.number(-1e9))
    if kind == "trilu":
        size = n.size(x, 1)
        full = n.op("ConstantOfShape", n.op("Concat", size, size, axis=0), value=np.array([-1e9], np.float32))
        return n.op("Add", scores, n.op("Trilu", full, n.number(1, "int64"), upper=1))
    hidden = np.triu(np.full((1, 1, table, table), -1e9, np.float32), 1)
    if kind == "constant":  # fits one length alone
        return n.op("Add", scores, pt.constant(hidden))
    last = n.size(x, 1)
    rows = n.op("Slice", pt.constant(hidden), ints(0), last, ints(2))
    return n.op("Add", scores, n.op("Slice", rows, ints(0), last, ints(3)))


def attended(n: Net, x: Value, width: int, count: int, mask: Value | None, table: int) -> Node:
    """Attention of some heads."""
    size = width // count
    if n.chance(0.4):
        parts = n.op("Split", linear(n, x, width, 3 * width), ints(width, width, width), axis=-1, n_outputs=3)
        query, key, value = (heads(n, part, count, size) for part in parts.outputs)
    else:
        query, key, value = (heads(n, linear(n, x, width, width), count, size) for _ in range(3))
    scores = n.op("MatMul", query, n.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = n.op("Mul", scores, n.number(size**-0.5)) if n.chance(0.5) else n.op("Div", scores, n.number(math.sqrt(size)))
    scores = n.op("Add", scores, mask) if mask is not None else causal(n, scores, x, table) if n.chance(0.6) else scores
    mixed = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    sizes = ints(0, 0, width) if n.chance(0.5) else n.vector(n.size(x, 0), n.size(x, 1), width)
    return linear(n, n.op("Reshape", mixed, sizes), width, width)


def gelu(n: Net, x: Value) -> Node:
    """Gelu in its parts, or another function."""
    if n.chance(0.5):
        return n.op(n.rng.choice(("Gelu", "Relu", "Tanh")), x)
    erf = n.op("Erf", n.op("Div", x, n.number(math.sqrt(2))))
    return n.op("Mul", n.op("Mul", x, n.op("Add", erf, n.number(1))), n.number(0.5))


def embedded(n: Net, width: int, table: int) -> Value:
    """Tokens and their positions."""
    rows: Dim = n.symbol("B", (1, 2, 3))
    text: Dim = n.symbol("T", (2, 3, table - 1, table), (table + 1, 2 * table + 3, 0))
    if n.chance(0.6):
        tokens = n.input("int64", (rows, text), lambda shape: n.random.integers(0, 11, shape))
        value: Value = n.op("Gather", n.weight(11, width), tokens)
    else:
        tokens = n.input("float32", (rows, text, n.maybe(width, "D")))
        value = tokens
    kind = n.rng.choice(("range", "buffer", "cut", "whole", "none"))
    if kind == "range":
        places = n.op("Range", n.number(0, "int64"), length(n, tokens, 1), n.number(1, "int64"))
        value = n.op("Add", value, n.op("Gather", n.weight(table, width), places))
    elif kind == "buffer":
        places = n.op("Slice", pt.constant(np.arange(table)[None]), ints(0), n.size(tokens, 1), ints(1))
        value = n.op("Add", value, n.op("Gather", n.weight(table, width), places))
    elif kind == "cut":
        value = n.op("Add", value, n.op("Slice", n.weight(1, table, width), ints(0), n.size(tokens, 1), ints(1)))
    elif kind == "whole":  # fits one length alone
        value = n.op("Add", value, n.weight(1, table, width))
    return value


def transformer(n: Net) -> list[Node]:
    """Layers of attention, with a mask of its own size perhaps."""
    count, table = n.rng.choice((1, 2)), n.rng.choice((5, 6, 9))
    width = count * n.rng.choice((4, 8))
    x = embedded(n, width, table)
    mask: Value | None = None
    if n.chance(0.5):
        text = "T" if n.chance(0.6) else n.symbol("S", (table,), (table - 1, table + 1, 1))
        given = n.input("int64", ("B", text), lambda shape: n.random.integers(0, 2, shape) | (np.arange(shape[-1]) == 0))
        far = n.op("Mul", n.op("Sub", n.number(1), n.op("Cast", given, to=1)), n.number(-1e4))
        mask = n.op("Unsqueeze", far, ints(1, 2))
    for _ in range(n.rng.randint(1, 2)):
        before = n.chance(0.5)
        x = n.op("Add", x, attended(n, normed(n, x, width) if before else x, width, count, mask, table))
        if n.count > MOST_OPS - 12:
            break
        x = x if before else normed(n, x, width)
        x = n.op("Add", x, linear(n, gelu(n, linear(n, x, width, 2 * width)), 2 * width, width))
    kind = n.rng.choice(("all", "first", "mean", "last"))
    if kind == "first":
        x = n.op("Gather", x, n.number(0, "int64"), axis=1)
    elif kind == "last":
        x = n.op("Squeeze", n.op("Slice", x, ints(-1), ints(FAR), ints(1)), ints(1))
    elif kind == "mean":
        x = n.op("ReduceMean", x, ints(1), keepdims=0)
    return [linear(n, x, width, 7)]


def decoder(n: Net) -> list[Node]:
    """One step with a past of keys and values."""
    count, size = n.rng.choice((1, 2)), 4
    width = count * size
    x = embedded(n, width, 6)
    past = n.symbol("P", (1, 3, 8), (0,))
    batch = "B" if n.chance(0.7) else n.symbol("B2", (2,), (1, 3, 0))
    cached = [n.input("float32", (batch, n.maybe(count, "heads"), past, size)) for _ in range(2)]
    query, key, value = (heads(n, linear(n, x, width, width), count, size) for _ in range(3))
    key, value = (n.op("Concat", old, new, axis=2) for old, new in zip(cached, (key, value), strict=True))
    scores = n.op("Mul", n.op("MatMul", query, n.op("Transpose", key, perm=[0, 1, 3, 2])), n.number(0.5))
    if n.chance(0.6):
        whole, new = length(n, key, 2), length(n, query, 2)
        rows = n.op("Add", n.op("Range", n.number(0, "int64"), new, n.number(1, "int64")), n.op("Sub", whole, new))
        columns = n.op("Range", n.number(0, "int64"), whole, n.number(1, "int64"))
        seen = n.op("LessOrEqual", columns, n.op("Unsqueeze", rows, ints(1)))
        scores = n.op("Where", seen, scores, n.number(-1e9))
    mixed = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    merged = n.op("Reshape", mixed, ints(0, 0, width))
    return [linear(n, n.op("Add", x, linear(n, merged, width, width)), width, 7), key, value]


# -- boxes -----------------------------------------------------------------------------------------------------


def detector(n: Net) -> list[Node]:
    """Boxes and scores of every pixel, the best of them, without those that overlap."""
    x, channels = image(n)
    value, channels, _ = backbone(n, convolved(n, x, channels, 8, stride=2), 8, n.rng.randint(1, 2))
    classes = 2
    head = n.op("Conv", value, n.weight(4 + classes, channels, 1, 1), n.weight(4 + classes))
    flat = n.op("Transpose", n.op("Reshape", head, n.vector(n.size(head, 0), 4 + classes, -1)), perm=[0, 2, 1])
    boxes = n.op("Slice", flat, ints(0), ints(4), ints(2))
    centres = n.op("Slice", boxes, ints(0), ints(2), ints(2))
    sizes = n.op("Exp", n.op("Slice", boxes, ints(2), ints(FAR), ints(2)))
    half = n.op("Mul", sizes, n.number(0.5))
    corners = n.op("Concat", n.op("Sub", centres, half), n.op("Add", centres, half), axis=2)
    scores = n.op("Sigmoid", n.op("Slice", flat, ints(4), ints(FAR), ints(2)))
    best = n.op("ReduceMax", scores, ints(2), keepdims=0)
    kept = n.rng.choice((3, 8, 20))
    kind = n.rng.choice(("TopK", "TopK", "bounded", "NonMaxSuppression", "GatherND"))
    if kind == "NonMaxSuppression":
        limits = [n.number(kept, "int64"), n.number(0.5), n.number(0.3)]
        chosen = n.op("NonMaxSuppression", corners, n.op("Transpose", scores, perm=[0, 2, 1]), *limits)
        places = n.op("Gather", chosen, n.number(2, "int64"), axis=1)
        return [n.op("Gather", n.op("Reshape", corners, ints(-1, 4)), places), chosen]
    count: Node = ints(kept)
    if kind == "bounded":
        count = n.op("Reshape", n.op("Min", length(n, best, 1), n.number(kept, "int64")), ints(1))
    top = n.op("TopK", best, count, axis=1, n_outputs=2)
    places = n.op("Unsqueeze", top[1], ints(2))
    if kind == "GatherND":
        return [top[0], n.op("GatherND", corners, places, batch_dims=1)]
    wide = n.op("Expand", places, n.vector(1, 1, 4)) if n.chance(0.5) else n.op("Tile", places, ints(1, 1, 4))
    return [top[0], n.op("GatherElements", corners, wide, axis=1)]


# -- sequences -------------------------------------------------------------------------------------------------


def recurrent(n: Net) -> list[Node]:
    """Recurrent layers, with states that are made of the text's sizes or come from outside."""
    size, hidden = n.rng.choice((3, 8)), n.rng.choice((4, 5))
    rows, text = n.symbol("B", (1, 2, 4)), n.symbol("T", (1, 2, 5, 9))
    x: Value = n.input("float32", (rows, text, n.maybe(size, "I")))
    x = n.op("Transpose", x, perm=[1, 0, 2])
    for _ in range(n.rng.randint(1, 2)):
        op, both = n.rng.choice(("RNN", "GRU", "LSTM")), n.chance(0.4)
        gates, ways = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 2 if both else 1
        kind = n.rng.choice(("none", "computed", "input", "constant"))
        states: list[Value | None] = []
        for number in range(2 if op == "LSTM" else 1):
            if kind == "computed":
                states.append(n.op("Expand", n.number(0), n.vector(ways, n.size(x, 1), hidden)))
            elif kind == "input":
                batch = "B" if n.chance(0.6) else n.symbol(f"B{number}", (2,), (1, 3, 0))
                states.append(n.input("float32", (ways, batch, hidden)))
            elif kind == "constant":  # fits one size alone
                states.append(n.weight(ways, 2, hidden))
        layer = n.op(
            op, x, n.weight(ways, gates * hidden, size), n.weight(ways, gates * hidden, hidden),
            n.weight(ways, 2 * gates * hidden), *([None, *states] if states else []), hidden_size=hidden,
            direction="bidirectional" if both else "forward", n_outputs=2, **({"linear_before_reset": 1} if op == "GRU" else {}),
        )
        if both:
            turned = n.op("Transpose", layer[0], perm=[0, 2, 1, 3])
            x, size = n.op("Reshape", turned, n.rng.choice((ints(0, 0, -1), ints(0, 0, 2 * hidden)))), 2 * hidden
        else:
            x, size = n.op("Squeeze", layer[0], ints(1)), hidden
        if n.chance(0.5):
            x = n.op("Add", n.op("Tanh", linear(n, x, size, size)), x)
    x = n.op("Transpose", x, perm=[1, 0, 2])
    if n.chance(0.5):
        x = normed(n, x, size)
    results = [n.op("LogSoftmax", linear(n, x, size, 6), axis=-1)]
    while n.count < FEWEST:
        results.append(n.op("ArgMax", results[0], axis=-1, keepdims=0))
        results.append(n.op("Cast", n.op("Equal", results[-1], n.number(2, "int64")), to=1))
    return results


# -- integers --------------------------------------------------------------------------------------------------


def through(n: Net, x: Value, scale: float = 0.05, signed: bool = False) -> Node:
    """Quantized and back."""
    points = (n.number(scale), n.number(0, "int8") if signed else n.number(128, "uint8"))
    return n.op("DequantizeLinear", n.op("QuantizeLinear", x, *points), *points)


def kept(n: Net, *shape: int, axis: int = 0) -> Node:
    """Integer weights, with a scale for each channel perhaps."""
    integers = pt.constant(n.random.integers(-100, 100, shape).astype(np.int8))
    if n.chance(0.6):
        scales = pt.constant((n.random.random(shape[axis]) * 0.004 + 0.001).astype(np.float32))
        return n.op("DequantizeLinear", integers, scales, pt.constant(np.zeros(shape[axis], np.int8)), axis=axis)
    return n.op("DequantizeLinear", integers, n.number(0.003), n.number(0, "int8"))


def quantized(n: Net) -> list[Node]:
    """Convolutions or products between QuantizeLinear and DequantizeLinear."""
    if n.chance(0.5):
        given, channels = image(n)
        x: Node = through(n, given)
        for _ in range(n.rng.randint(1, 3)):
            out, kernel = n.rng.choice((4, 8)), n.rng.choice((1, 3))
            y = n.op("Conv", x, kept(n, out, channels, kernel, kernel), kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4,
                     strides=[n.rng.choice((1, 2))] * 2)
            y = n.op("Relu", y) if n.chance(0.6) else y
            x, channels = through(n, y), out
            if n.chance(0.4):
                x = through(n, n.op("Add", x, through(n, n.op("Conv", x, kept(n, out, out, 1, 1), kernel_shape=[1, 1]))), 0.1)
            if n.chance(0.3):
                x = through(n, n.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
        pooled = through(n, n.op("GlobalAveragePool", x))
        return [n.op("MatMul", n.op("Flatten", pooled), kept(n, channels, 5, axis=1))]
    width = n.rng.choice((4, 8, 16))
    given = n.input("float32", (n.symbol("B", (1, 2, 3)), n.symbol("T", (1, 4, 7)), n.maybe(width, "D")))
    x = through(n, given)
    for _ in range(n.rng.randint(1, 3)):
        y = n.op("Add", n.op("MatMul", x, kept(n, width, width, axis=1)), n.weight(width))
        y = gelu(n, y) if n.chance(0.5) else n.op("Relu", y)
        x = through(n, n.op("Add", through(n, y), x), 0.1) if n.chance(0.5) else through(n, y)
    scores = n.op("MatMul", x, n.op("Transpose", through(n, x), perm=[0, 2, 1]))
    return [n.op("MatMul", n.op("Softmax", scores, axis=-1), x)]


# -- control flow ----------------------------------------------------------------------------------------------


def branches(n: Net) -> list[Node]:
    """An If on a size or a value, a Loop of as many turns as there are rows, or both."""
    width = n.rng.choice((4, 6))
    rows = n.symbol("N", (1, 2, 3, 5))
    x: Value = n.input("float32", (rows, n.maybe(width, "D")))
    x = normed(n, n.op("Relu", linear(n, x, width, width)), width)
    dims: tuple[Dim, ...] = ("N", width)
    kind = n.rng.choice(("If", "Loop", "both"))
    if kind != "Loop":
        large = n.op("Greater", length(n, x, 0), n.number(2, "int64"))
        bodies = []
        for name in ("then", "otherwise"):
            inner = pt.variable(f"{name}_x", "float32", dims)
            fixed = n.weight(3, width) if n.chance(0.25) else n.weight(width)
            value = n.op(n.rng.choice(("Add", "Mul")), n.op("Tanh", inner), fixed)
            bodies.append(pt.Graph([value], [inner], name=name, opsets=OPSETS))
        captured = x if isinstance(x, NodeEntry) else x[0]
        x = n.op("If", large, captures=[captured], then_branch=bodies[0], else_branch=bodies[1])
    results: list[Node] = []
    if kind != "If":
        turn, go = pt.variable("turn", "int64", ()), pt.variable("go", "bool", ())
        state, outer = pt.variable("state", "float32", (width,)), pt.variable("outer", "float32", dims)
        row = n.op("Gather", outer, turn, axis=0)
        after = n.op("Tanh", n.op("Add", n.op("Mul", state, n.weight(width)), row))
        outputs = [n.op("Identity", go), after, n.op("Mul", after, row)]
        body = pt.Graph(outputs, [turn, go, state, outer], name="body", opsets=OPSETS)
        captured = x if isinstance(x, NodeEntry) else x[0]
        count = length(n, x, 0) if n.chance(0.6) else n.number(3, "int64")
        looped = n.op("Loop", count, n.number(True, "bool"), n.weight(width), captures=[captured], body=body, n_outputs=2)
        results += [n.op("Relu", looped[0]), linear(n, looped[1], width, 3)]
    return [linear(n, x, width, 3), *results]


Kind = Callable[[Net], list[Node]]
"""The outputs of a network."""

KINDS: Mapping[str, Kind] = {
    "cnn": cnn,
    "transformer": transformer,
    "decoder": decoder,
    "detector": detector,
    "recurrent": recurrent,
    "quantized": quantized,
    "branches": branches,
}
"""Networks by kind."""

CALLS = 5
"""The sizes at which a network is called."""


@attrs.frozen(slots=False)
class Network(Opened):
    """A network and the sizes that it is called at."""

    sizes: tuple[Shapes, ...] = ()
    draws: tuple[Callable[[tuple[int, ...]], Array], ...] = ()
    kept: dict[Shapes, list[Array]] = attrs.field(factory=dict)

    def fitted(self, shapes: Shapes) -> list[Array]:
        """New numbers for each size."""
        if shapes not in self.kept:
            self.kept[shapes] = [draw(shape) for draw, shape in zip(self.draws, shapes, strict=True)]
        return self.kept[shapes]


def network(kind: str, seed: int, kinds: Mapping[str, Kind] = KINDS, most: int = MOST_OPS) -> Network:
    """The network of a kind and a seed, with 10 ops or more."""
    rng = random.Random(f"{kind} {seed}")
    while True:
        n = Net(rng)
        graph = pt.Graph(kinds[kind](n), n.inputs, name=kind, opsets=OPSETS)
        if FEWEST <= sum(node.is_op for node in graph.nodes) <= most:
            break
    sizes = _sizes(n)
    feeds = [draw(shape) for draw, shape in zip(n.draws, sizes[0], strict=True)]
    return Network(typed(graph), tuple(feeds), sizes, tuple(n.draws))


def _sizes(n: Net) -> tuple[Shapes, ...]:
    """Some sizes that may fit, some with a symbol that does not, in any order."""
    listed: list[Shapes] = []
    wanted = [False, False, True, True, n.chance(0.5)]
    n.rng.shuffle(wanted)
    for is_bad in wanted:
        chosen = {name: n.rng.choice(symbol.good) for name, symbol in n.symbols.items()}
        if is_bad:
            name = n.rng.choice(sorted(n.symbols))
            chosen[name] = n.rng.choice(n.symbols[name].bad)
        shapes = [tuple([chosen[d] if isinstance(d, str) else int(d or 0) for d in node[0].type.shape]) for node in n.inputs]
        listed.append(tuple(shapes))
    return tuple(listed)
