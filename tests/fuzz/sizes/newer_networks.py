"""Random networks of newer structures: U-Nets, queries on images, grids of boxes, decoders with rings and rotations, sequences
with lengths, weights of few bits, onnxruntime's own ops, and arithmetic on shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np

import partita as pt
from partita.graph.build import as_entry
from partita.graph.node import Node
from tests.fuzz.sizes.networks import FAR, OPSETS, Kind, Net, Value, heads, ints, length, linear

MOST_OPS = 120
"""The number of ops of a network."""

OURS = "com.microsoft"


def numbers(*values: float) -> Node:
    """A constant vector of numbers."""
    return pt.constant(np.array(values, np.float32))


def body(n: Net, name: str, outputs: Sequence[Value], inputs: Sequence[Node]) -> pt.Graph:
    """A body of a branch or a loop."""
    return pt.Graph(list(outputs), list(inputs), name=name, opsets=OPSETS)


def counted(n: Net, until: Value, start: Value | None = None) -> Node:
    """The numbers from a start to an end."""
    return n.op("Range", n.number(0, "int64") if start is None else start, until, n.number(1, "int64"))


def root_normed(n: Net, x: Value, width: int) -> Node:
    """RMSNorm as it is exported, in float32 whatever is around it."""
    wide = n.op("Cast", x, to=1)
    mean = n.op("ReduceMean", n.op("Pow", wide, n.number(2)), ints(-1), keepdims=1)
    root = n.op("Sqrt", n.op("Add", mean, n.number(1e-6)))
    return n.op("Mul", n.op("Mul", wide, n.op("Div", n.number(1), root)), n.positive(width))


def group_normed(n: Net, x: Value, channels: int, groups: int) -> Node:
    """GroupNorm as an op, or as torch wrote it before there was one."""
    if n.chance(0.4):
        return n.op("GroupNormalization", x, n.positive(channels), n.weight(channels), num_groups=groups)
    flat = n.op("Reshape", x, ints(0, groups, -1))
    normed = n.op("InstanceNormalization", flat, numbers(*[1] * groups), numbers(*[0] * groups))
    back = n.op("Reshape", normed, n.op("Shape", x))
    return n.op("Add", n.op("Mul", back, n.positive(channels, 1, 1)), n.weight(channels, 1, 1))


def narrow(n: Net, x: Value, run: Callable[[Value], Value]) -> Value:
    """A part in numbers of two bytes, perhaps."""
    kind = n.rng.choice((1, 1, 10, 16))
    return x if kind == 1 and n.chance(0.5) else n.op("Cast", run(n.op("Cast", x, to=kind)), to=1)


# -- images ----------------------------------------------------------------------------------------------------


def unet(n: Net) -> list[Node]:
    """Down by strides, up by transposed convolutions or Resize; what is skipped is joined after a crop or a pad."""
    height, width = n.symbol("H", (8, 11, 13, 16), (1, 2, 0)), n.symbol("W", (7, 8, 15), (1, 0))
    x: Value = n.input("float32", (n.symbol("N", (1, 2)), n.maybe(2, "C"), height, width))
    channels, skipped = 2, list[tuple[Value, int]]()
    for _ in range(n.rng.randint(1, 3)):
        out = n.rng.choice((4, 8))
        x = n.op("Conv", x, n.weight(out, channels, 3, 3), kernel_shape=[3, 3], pads=[1] * 4)
        x = n.op("LeakyRelu", group_normed(n, x, out, 2) if n.chance(0.6) else x, alpha=0.1)
        skipped.append((x, out))
        x, channels = n.op("Conv", x, n.weight(out, out, 2, 2), n.weight(out), kernel_shape=[2, 2], strides=[2, 2]), out
    for old, out in reversed(skipped):
        sizes = n.op("Shape", old, start=2, end=4)
        if n.chance(0.6):
            kernel = n.rng.choice((2, 3))
            x = n.op("ConvTranspose", x, n.weight(channels, out, kernel, kernel), kernel_shape=[kernel] * 2, strides=[2, 2])
        else:
            kind = n.rng.choice(("nearest", "linear", "cubic"))
            mode = n.rng.choice(("half_pixel", "align_corners", "pytorch_half_pixel"))
            x = n.op("Resize", x, None, numbers(1, 1, 2, 2), mode=kind, coordinate_transformation_mode=mode)
            x = n.op("Conv", x, n.weight(out, channels, 1, 1), kernel_shape=[1, 1])
        kind = n.rng.choice(("crop", "crop", "crop", "pad", "none"))
        if kind == "crop":
            x = n.op("Slice", x, ints(0, 0), sizes, ints(2, 3))
        if kind != "none":
            missing = n.op("Sub", sizes, n.op("Shape", x, start=2, end=4))
            x = n.op("Pad", x, n.op("Concat", ints(0, 0, 0, 0, 0, 0), missing, axis=0), mode=n.rng.choice(("constant", "edge")))
        joined = n.op("Concat", x, old, axis=1)
        x, channels = n.op("Relu", n.op("Conv", joined, n.weight(out, 2 * out, 3, 3), pads=[1] * 4)), out
    best = n.op("ArgMax", n.op("Conv", x, n.weight(3, channels, 1, 1), n.weight(3)), axis=1, keepdims=0)
    return [n.op("Softmax", x, axis=1), best, n.op("Shape", best)]


def patches(n: Net, width: int) -> tuple[Node, Node, Node]:
    """Tokens of an image's patches; their rows and columns."""
    size = n.rng.choice((2, 3))
    x = n.input("float32", (n.symbol("N", (1, 2)), 3, n.symbol("H", (6, 9, 12), (1, 0)), n.symbol("W", (6, 7, 10), (1, 2))))
    cells = n.op("Conv", x, n.weight(width, 3, size, size), n.weight(width), kernel_shape=[size] * 2, strides=[size] * 2)
    flat = n.op("Reshape", cells, n.rng.choice((ints(0, 0, -1), ints(0, width, -1))))
    shape = n.op("Shape", cells)
    rows, columns = (n.op("Gather", shape, n.number(axis, "int64"), axis=0) for axis in (2, 3))
    return n.op("Transpose", flat, perm=[0, 2, 1]), rows, columns


def queries(n: Net) -> list[Node]:
    """Learned queries that look at the patches of an image, and the best boxes of them."""
    count, width = 2, 8
    tokens, rows, columns = patches(n, width)
    y, x = n.op("Unsqueeze", counted(n, rows), ints(1)), n.op("Unsqueeze", counted(n, columns), ints(0))
    table = n.op("Reshape", n.op("Add", n.op("Mul", y, n.op("Identity", columns)), x), ints(-1))
    if n.chance(0.5):
        place = n.op("Gather", n.weight(n.rng.choice((12, 40)), width), table)  # of the largest image
    else:
        angle = n.op("Mul", n.op("Unsqueeze", n.op("Cast", table, to=1), ints(1)), numbers(*[100 ** (-i / 4) for i in range(4)]))
        place = n.op("Concat", n.op("Sin", angle), n.op("Cos", angle), axis=-1)
    tokens = n.op("Add", tokens, place)
    batch = n.size(tokens, 0)
    kept = n.rng.choice((4, 6))
    target: Value = n.op("Expand", n.weight(1, kept, width), n.vector(batch, 1, 1))
    for _ in range(n.rng.randint(1, 2)):
        key, value = linear(n, tokens, width, width), linear(n, tokens, width, width)
        scores = n.op("Einsum", heads(n, target, count, 4), heads(n, key, count, 4), equation="bhqd,bhkd->bhqk")
        mixed = n.op("MatMul", n.op("Softmax", n.op("Mul", scores, n.number(0.5)), axis=-1), heads(n, value, count, 4))
        merged = n.op("Reshape", n.op("Transpose", mixed, perm=[0, 2, 1, 3]), ints(0, -1, width))
        target = n.op("LayerNormalization", n.op("Add", target, merged), n.positive(width), n.weight(width))
        if n.count > 60:
            break
    boxes = n.op("Sigmoid", linear(n, target, width, 4))
    scores = n.op("Reshape", n.op("Sigmoid", linear(n, target, width, 3)), ints(0, -1))
    best = n.op("TopK", scores, n.op("Min", ints(n.rng.choice((3, 12))), n.size(scores, 1)), axis=1, n_outputs=2)
    which = n.op("Tile", n.op("Unsqueeze", n.op("Div", best[1], n.number(3, "int64")), ints(-1)), ints(1, 1, 4))
    return [best[0], n.op("GatherElements", boxes, which, axis=1), n.op("Mod", best[1], n.number(3, "int64"))]


def grids(n: Net) -> list[Node]:
    """Boxes of two grids in one list, those above a threshold, each class by itself or in all."""
    x = n.input("float32", (n.symbol("N", (1, 2)), 3, n.symbol("H", (8, 12, 10), (3, 0)), n.symbol("W", (8, 10, 14), (1, 2))))
    boxes, scores, shared = list[Value](), list[Value](), n.weight(6, 4, 1, 1)
    value: Value = x
    for level, inside in enumerate((3, 4)):
        value = n.op("Relu", n.op("Conv", value, n.weight(4, inside, 3, 3), n.weight(4), strides=[2, 2], pads=[1] * 4))
        parts = n.op("Split", n.op("Conv", value, shared), ints(4, 2), axis=1, n_outputs=2)
        high, wide = length(n, value, 2), length(n, value, 3)
        row = n.op("Unsqueeze", counted(n, high), ints(1))
        grid_y = n.op("Expand", row, n.vector(n.size(value, 2), n.size(value, 3))) if n.chance(0.5) else row
        grid_x = n.op("Add", n.op("Mul", grid_y, n.number(0, "int64")), n.op("Unsqueeze", counted(n, wide), ints(0)))
        both = [n.op("Expand", grid_x, n.op("Shape", grid_x)), n.op("Expand", grid_y, n.op("Shape", grid_x))]
        centres = n.op("Cast", n.op("Concat", *[n.op("Unsqueeze", each, ints(0)) for each in both], axis=0), to=1)
        flat = n.op("Reshape", parts[0], n.vector(n.size(parts[0], 0), 4, -1))
        point = n.op("Reshape", centres, ints(1, 2, -1))
        offset, size = (n.op("Slice", flat, ints(first), ints(first + 2), ints(1)) for first in (0, 2))
        near = n.op("Mul", n.op("Add", n.op("Sigmoid", offset), point), n.number(float(2 ** (level + 1))))
        boxes.append(n.op("Concat", near, n.op("Add", near, n.op("Exp", size)), axis=1))
        scores.append(n.op("Sigmoid", n.op("Reshape", parts[1], ints(0, 2, -1))))
        if n.chance(0.3):
            break
    all_boxes = n.op("Transpose", n.op("Concat", *boxes, axis=2), perm=[0, 2, 1])
    all_scores = n.op("Concat", *scores, axis=-1)
    kind = n.rng.choice(("NonMaxSuppression", "NonZero", "Where", "ScatterElements"))
    if kind == "NonMaxSuppression":
        chosen = n.op("NonMaxSuppression", all_boxes, all_scores, ints(4), numbers(0.4), numbers(0.45))
        rows = n.op("Slice", chosen, ints(0, 2), ints(FAR, -FAR), ints(0, 1), ints(1, -2))
        return [chosen, n.op("GatherND", all_boxes, n.op("Slice", rows, ints(-1), ints(-FAR), ints(1), ints(-1)))]
    if kind == "NonZero":
        where = n.op("Transpose", n.op("NonZero", n.op("Greater", all_scores, n.number(0.5))), perm=[1, 0])
        return [n.op("GatherND", all_scores, where), where]
    if kind == "Where":
        known = n.op("Where", n.op("Greater", all_scores, n.number(0.5)), all_scores, n.number(0))
        return [n.op("ReduceMax", known, ints(-1)), n.op("ArgMax", known, axis=-1), all_boxes]
    best = n.op("TopK", all_scores, ints(n.rng.choice((2, 5, 30))), axis=2, n_outputs=2)
    return [n.op("ScatterElements", all_scores, best[1], n.op("Neg", best[0]), axis=2), all_boxes]


# -- text ------------------------------------------------------------------------------------------------------


def rotated(n: Net, x: Value, places: Value, table: int) -> Node:
    """Numbers turned by angles from a table or computed."""
    frequencies = 1.0 / 100 ** (np.arange(2) / 2)
    if n.chance(0.5):
        angles = np.arange(table)[:, None] * np.concatenate([frequencies] * 2)
        cosine, sine = (n.op("Gather", pt.constant(f(angles).astype(np.float32)), places) for f in (np.cos, np.sin))
    else:
        column = n.op("Unsqueeze", n.op("Cast", places, to=1), ints(1))
        angle = n.op("MatMul", column, pt.constant(frequencies[None].astype(np.float32)))
        angle = n.op("Concat", angle, angle, axis=-1)
        cosine, sine = n.op("Cos", angle), n.op("Sin", angle)
    first, second = n.op("Slice", x, ints(0), ints(2), ints(3)), n.op("Slice", x, ints(2), ints(FAR), ints(3))
    turned = n.op("Concat", n.op("Neg", second), first, axis=-1)
    return n.op("Add", n.op("Mul", x, cosine), n.op("Mul", turned, sine))


def cached(n: Net) -> list[Node]:
    """A layer of a decoder: RMSNorm, rotations, shared keys, a past that is joined, cut to a window or written into."""
    groups, each, table = n.rng.choice((1, 2)), 2, n.rng.choice((8, 12))
    width = groups * each * 4
    batch, text = n.symbol("B", (1, 2)), n.symbol("T", (1, 2, 3), (table + 1, 0))
    tokens = n.input("int64", (batch, text), lambda shape: n.random.integers(0, 9, shape))
    x: Value = n.op("Gather", n.weight(9, width), tokens)
    is_ring = n.chance(0.3)
    past = n.maybe(table, "ring") if is_ring else n.symbol("P", (0, 1, 4), (table, 2 * table))
    old = [n.input("float32", (batch, groups, past, 4)) for _ in range(2)]
    normed = narrow(n, root_normed(n, x, width), lambda v: n.op("Mul", v, n.op("CastLike", n.positive(width), v)))
    new = length(n, tokens, 1)
    start = n.number(2, "int64") if is_ring else length(n, old[0], 2)
    places = n.op("Add", counted(n, new), start) if n.chance(0.5) else counted(n, n.op("Add", start, new), start)
    query, key, value = (linear(n, normed, width, size) for size in (width, groups * 4, groups * 4))
    query, key, value = heads(n, query, groups * each, 4), heads(n, key, groups, 4), heads(n, value, groups, 4)
    query, key = rotated(n, query, places, table), rotated(n, key, places, table)
    if is_ring:  # written at its places along the third axis
        where = n.op("Unsqueeze", places, ints(1))
        turned = [n.op("Transpose", each_old, perm=[2, 0, 1, 3]) for each_old in old]
        new_rows = [n.op("Transpose", each_new, perm=[2, 0, 1, 3]) for each_new in (key, value)]
        written = [n.op("ScatterND", ring, where, rows) for ring, rows in zip(turned, new_rows, strict=True)]
        key, value = (n.op("Transpose", ring, perm=[1, 2, 0, 3]) for ring in written)
    else:
        key, value = (n.op("Concat", o, v, axis=2) for o, v in zip(old, (key, value), strict=True))
    presents: list[Node] = [key, value]
    if not is_ring and n.chance(0.5):
        presents = [n.op("Slice", whole, ints(-3), ints(FAR), ints(2)) for whole in presents]
    if each > 1:
        spread = list[Node]()
        for whole in (key, value):
            wide = n.op("Expand", n.op("Unsqueeze", whole, ints(2)), n.vector(1, 1, each, 1, 1))
            spread.append(n.op("Reshape", wide, n.vector(n.size(whole, 0), groups * each, -1, 4)))
        key, value = spread
    scores = n.op("Mul", n.op("MatMul", query, n.op("Transpose", key, perm=[0, 1, 3, 2])), n.number(0.5))
    columns = counted(n, length(n, key, 2))
    seen = n.op("GreaterOrEqual", n.op("Unsqueeze", places, ints(1)), columns)
    if n.chance(0.4):
        close = n.op("Less", n.op("Sub", n.op("Unsqueeze", places, ints(1)), columns), n.number(3, "int64"))
        seen = n.op("And", seen, close)
    scores = n.op("Where", seen, scores, n.number(float(np.finfo(np.float32).min)))
    mixed = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    x = n.op("Add", x, linear(n, n.op("Reshape", mixed, ints(0, 0, -1)), width, width))
    return [linear(n, x, width, 5), *presents]


def lengths(n: Net) -> list[Node]:
    """Recurrent layers of sequences of several lengths; a Scan; a Loop that chooses in each turn."""
    size = hidden = 4
    batch, text = n.symbol("B", (1, 2, 3), (0,)), n.symbol("T", (2, 3, 6), (0, 1))
    x = n.input("float32", (batch, text, n.maybe(size, "I")))
    if n.chance(0.5):
        same = batch if n.chance(0.7) else n.symbol("B2", (2,), (1, 3))
        ends: Value = n.input("int32", (same,), lambda shape: n.random.integers(1, 3, shape).astype(np.int32))
    else:
        mask = n.input("int64", (batch, text), lambda shape: (np.arange(shape[1]) < n.random.integers(1, 4, (shape[0], 1))) * 1)
        ends = n.op("Cast", n.op("ReduceSum", mask, ints(1), keepdims=0), to=6)
    op, ways = n.rng.choice(("GRU", "LSTM", "RNN")), n.rng.choice((1, 2))
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    y: Value = n.op("Transpose", x, perm=[1, 0, 2])
    weights = (n.weight(ways, gates * hidden, size), n.weight(ways, gates * hidden, hidden), n.weight(ways, 2 * gates * hidden))
    direction = "bidirectional" if ways == 2 else n.rng.choice(("forward", "reverse"))
    layer = n.op(op, y, *weights, ends, hidden_size=hidden, direction=direction, n_outputs=3 if op == "LSTM" else 2)
    y = n.op("Reshape", n.op("Transpose", layer[0], perm=[0, 2, 1, 3]), ints(0, 0, -1))
    width = ways * hidden
    y = n.op("Tanh", linear(n, y, width, width))
    last = linear(n, n.op("Gather", y, n.number(-1, "int64")), width, 2)
    results: list[Node] = [n.op("Concat", n.op("ReduceMax", layer[1], ints(0), keepdims=0), last, axis=-1)]
    kind = n.rng.choice(("Scan", "Loop", "both"))
    if kind != "Loop":
        state, row = pt.variable("sum", "float32", ("B", width)), pt.variable("row", "float32", ("B", width))
        added = n.op("Add", n.op("Mul", state, n.number(0.5)), row)
        scanned = body(n, "scanned", [added, n.op("Relu", added)], [state, row])
        first = n.op("Mul", n.op("Gather", y, n.number(0, "int64")), n.number(0))
        both = n.op("Scan", first, y, body=scanned, num_scan_inputs=1, n_outputs=2)
        results += [n.op("Identity", each) for each in both.outputs]
    if kind != "Scan":
        turn, go = pt.variable("turn", "int64", ()), pt.variable("go", "bool", ())
        state = pt.variable("state", "float32", ("B", width))
        rows = pt.variable("rows", "float32", ("T", "B", width))
        row = n.op("Gather", rows, turn, axis=0)
        branches = []
        for name in ("even", "odd"):
            one, other = (pt.variable(f"{name}_{i}", "float32", ("B", width)) for i in range(2))
            branches.append(body(n, name, [n.op(n.rng.choice(("Add", "Max", "Sub")), n.op("Tanh", one), other)], [one, other]))
        is_even = n.op("Equal", n.op("Mod", turn, n.number(2, "int64")), n.number(0, "int64"))
        after = n.op("If", is_even, captures=[state[0], row[0]], then_branch=branches[0], else_branch=branches[1])
        far = n.op("Less", n.op("ReduceMax", after, keepdims=0), n.number(2.5)) if n.chance(0.5) else n.op("Identity", go)
        inner = body(n, "turns", [far, after, n.op("Mul", after, after)], [turn, go, state, rows])
        zero = n.op("Expand", n.number(0), n.op("Shape", y, start=1))
        looped = n.op("Loop", length(n, y, 0), n.number(True, "bool"), zero, captures=[as_entry(y)], body=inner, n_outputs=2)
        results += [n.op("Relu", looped[0]), n.op("ReduceSum", looped[1], ints(0))]
    return results


# -- integers --------------------------------------------------------------------------------------------------


def stored(n: Net, rows: int, columns: int) -> Node:
    """Weights of few bits: for each tensor, column or block."""
    dtype = n.rng.choice(("int4", "uint4", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"))
    kind, blocks = n.rng.choice(("tensor", "column", "block")), rows // 4
    drawn = n.random.integers(0, 8, (rows, columns)) if dtype[0] == "u" else n.random.integers(-7, 8, (rows, columns))
    array = pt.constant(drawn.astype(getattr(ml_dtypes, dtype, None) or dtype))
    shape = {"tensor": (), "column": (columns,), "block": (blocks, columns)}[kind]
    scale = pt.constant((n.random.random(shape) * 0.1 + 0.05).astype(np.float32))
    attributes = {"tensor": {}, "column": {"axis": 1}, "block": {"axis": 0, "block_size": 4}}[kind]
    if dtype[0] == "f" or n.chance(0.4):
        return n.op("DequantizeLinear", array, scale, **attributes)
    middle = np.full(shape, 4 if dtype[0] == "u" else 0).astype(getattr(ml_dtypes, dtype, None) or dtype)
    return n.op("DequantizeLinear", array, scale, pt.constant(middle), **attributes)


def bits(n: Net) -> list[Node]:
    """Products by weights of few bits; activations of bytes, quantized at each call, or of eight-bit floats."""
    width = n.rng.choice((8, 16))
    x: Value = n.input("float32", (n.symbol("B", (1, 2)), n.symbol("T", (1, 3, 8), (0,)), n.maybe(width, "D")))
    results: list[Node] = []
    for _ in range(n.rng.randint(2, 4)):
        kind = n.rng.choice(("weights", "dynamic", "bytes", "float8", "pair"))
        if kind == "weights":
            y: Value = n.op("MatMul", x, stored(n, width, width))
        elif kind == "dynamic":
            parts = n.op("DynamicQuantizeLinear", x, n_outputs=3)
            weight = pt.constant(n.random.integers(-100, 100, (width, width)).astype(np.int8))
            sums = n.op("MatMulInteger", parts[0], weight, parts[2], n.number(0, "int8"))
            y = n.op("Mul", n.op("Cast", sums, to=1), n.op("Mul", parts[1], n.number(0.004)))
        else:
            is_float = kind == "float8"
            zero = np.zeros((), ml_dtypes.float8_e4m3fn) if is_float else np.array(n.rng.choice((3, 128)), np.uint8)
            points = (n.number(n.rng.choice((0.031, 0.05))), pt.constant(zero))
            y = n.op("DequantizeLinear", n.op("QuantizeLinear", x, *points), *points)
            if kind == "pair":
                scores = n.op("MatMul", y, n.op("Transpose", y, perm=[0, 2, 1]))
                y = n.op("MatMul", n.op("Softmax", n.op("Mul", scores, n.number(0.1)), axis=-1), y)
            else:
                y = n.op("MatMul", y, stored(n, width, width))
                results += [n.op("QuantizeLinear", y, n.number(0.1), n.number(0, "int8"))] if n.chance(0.3) else []
        y = n.op("Add", y, n.weight(width)) if n.chance(0.7) else y
        y = n.op("Mul", y, n.op("Sigmoid", y)) if n.chance(0.5) else n.op("Tanh", y)
        x = n.op("Add", x, y) if n.chance(0.6) else y
    return [n.op("ReduceMean", x, ints(1), keepdims=0), *results]


def fused(n: Net) -> list[Node]:
    """A layer of onnxruntime's own ops."""
    count, width = 2, n.rng.choice((8, 16))
    batch, text = n.symbol("B", (1, 2)), n.symbol("T", (1, 3, 6), (0,))
    x: Value = n.input("float32", (batch, text, n.maybe(width, "D")))
    for _ in range(n.rng.randint(1, 2)):
        kind = n.rng.choice(("Attention", "MultiHeadAttention", "past"))
        if kind == "Attention":
            mask = n.input("int32", (batch, text), lambda shape: (np.arange(shape[1]) < 4) * np.ones(shape, np.int32))
            weights = (n.weight(width, 3 * width), n.weight(3 * width))
            mixed: Value = n.op("Attention", x, *weights, mask, domain=OURS, num_heads=count)
        else:
            parts = [linear(n, x, width, width) for _ in range(3)]
            old = [None, None]
            if kind == "past":
                old = [n.input("float32", (batch, count, n.symbol("P", (0, 1, 5), (2,)), width // count)) for _ in range(2)]
            outputs = 3 if kind == "past" else 1
            mixed = n.op("MultiHeadAttention", *parts, None, None, None, *old, domain=OURS, num_heads=count, n_outputs=outputs)[0]
        y = n.op("SkipLayerNormalization", mixed, x, n.positive(width), n.weight(width), n.weight(width), domain=OURS)
        y = n.op("FusedMatMul", y, n.weight(2 * width, width), domain=OURS, transB=1, alpha=0.5)
        op = n.rng.choice(("BiasGelu", "FastGelu", "QuickGelu", "Gelu"))
        y = n.op(op, y, *([n.weight(2 * width)] if op in ("BiasGelu", "FastGelu") else []), domain=OURS)
        y = linear(n, y, 2 * width, width)
        x = n.op("SkipSimplifiedLayerNormalization", y, x, n.positive(width), domain=OURS) if n.chance(0.5) else n.op("Add", y, x)
    results = [n.op("Relu", x), n.op("ReduceMean", x, ints(1)), n.op("Gelu", x, domain=OURS), n.op("Shape", x)]
    return [*results, n.op("ReduceMax", x, ints(-1)), n.op("ArgMax", x, axis=-1)]


# -- shapes ----------------------------------------------------------------------------------------------------


def arithmetic(n: Net) -> list[Node]:
    """Windows of an image, padded to whole ones, and back; pixels into channels; sums along rows; halves of uneven sizes."""
    side, width = n.rng.choice((2, 3)), 4
    sides = (n.symbol("H", (4, 6, 7), (0,)), n.symbol("W", (6, 9, 5), (0,)))
    x: Value = n.input("float32", (n.symbol("N", (1, 2)), *sides, n.maybe(width, "C")))
    high, wide = n.size(x, 1), n.size(x, 2)
    if n.chance(0.7):  # else whole windows alone fit
        more = [n.op("Mod", n.op("Neg", size), ints(side)) for size in (high, wide)]
        x = n.op("Pad", x, n.vector(ints(0, 0, 0, 0, 0), *more, 0))
    across, down = (n.op("Div", n.size(x, axis), ints(side)) for axis in (1, 2))
    cut = n.op("Reshape", x, n.vector(n.size(x, 0), across, side, down, side, width))
    windows = n.op("Reshape", n.op("Transpose", cut, perm=[0, 1, 3, 2, 4, 5]), ints(-1, side * side, width))
    shared = n.weight(width, width)
    mixed = n.op("Einsum", n.op("MatMul", windows, shared), n.op("MatMul", windows, shared), equation="wtc,wsc->wts")
    mixed = n.op("MatMul", n.op("Softmax", n.op("Add", mixed, n.weight(side * side, side * side)), axis=-1), windows)
    back = n.op("Reshape", mixed, n.vector(n.size(x, 0), across, down, side, side, width))
    turned = n.op("Transpose", back, perm=[0, 1, 3, 2, 4, 5])
    whole = n.op("Reshape", turned, n.vector(n.size(x, 0), n.op("Mul", across, ints(side)), -1, width))
    y = n.op("Slice", whole, ints(0, 0), n.vector(high, wide), ints(1, 2))
    results: list[Node] = [y]
    image = n.op("Transpose", y, perm=[0, 3, 1, 2])
    for kind in n.rng.sample(("DepthToSpace", "CumSum", "Split", "roll", "Where", "Einsum"), 2):
        if kind == "DepthToSpace":
            results.append(n.op("DepthToSpace", image, blocksize=2, mode=n.rng.choice(("DCR", "CRD"))))
        elif kind == "CumSum":
            results.append(n.op("CumSum", image, n.number(n.rng.choice((2, -1)), "int64"), reverse=n.rng.choice((0, 1))))
        elif kind == "Split":
            half = n.op("Div", n.size(image, 2), ints(2))
            parts = n.op("Split", image, n.vector(half, n.op("Sub", n.size(image, 2), half)), axis=2, n_outputs=2)
            results.append(n.op("Concat", parts[1], parts[0], axis=2))
        elif kind == "roll":
            ends = [n.op("Slice", image, ints(start), ints(end), ints(3)) for start, end in ((1, FAR), (0, 1))]
            results.append(n.op("Concat", *ends, axis=3))
        elif kind == "Where":
            row = n.op("Unsqueeze", counted(n, length(n, image, 2)), ints(1))
            results.append(n.op("Where", n.op("LessOrEqual", row, counted(n, length(n, image, 3))), image, n.number(-math.inf)))
        else:
            results.append(n.op("Einsum", image, n.weight(width, 3), equation="nchw,cd->ndhw"))
    return results


KINDS: Mapping[str, Kind] = {
    "unet": unet,
    "queries": queries,
    "grids": grids,
    "cached": cached,
    "lengths": lengths,
    "bits": bits,
    "fused": fused,
    "arithmetic": arithmetic,
}
"""Networks by kind."""
