"""Ops that change the shape or order of elements, join values or repeat them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion, Part, SizeOf
from partita.graph.readers.mxnet.ops.table import converter, integer, one_op

one_op("depth_to_space", "DepthToSpace", blocksize=integer("block_size", least=1))
one_op("space_to_depth", "SpaceToDepth", blocksize=integer("block_size", least=1))
one_op("Concat concat _rnn_param_concat", "Concat", inputs=(1, None), axis=integer("dim", 1))


@converter("Flatten flatten", onnx="Flatten")
def flatten(c: Conversion) -> NodeEntry:
    return c.result("Flatten", c.data, axis=1, shape=(None, None))


@converter("Reshape reshape", "shape reverse target_shape keep_highest", onnx="Reshape")
def reshape(c: Conversion) -> NodeEntry:
    data, params = c.data, c.params
    if not params.integers("shape") and params.integers("target_shape"):
        return _by_target_shape(c)
    codes = list(params.integers("shape"))
    if not codes:
        params.fail("shape", "given")
    if min(codes) < -4:
        params.fail("shape", "sizes, or MXNet's codes from 0 to -4")
    if min(codes) >= -1 and not params.boolean("reverse"):
        # 0 and -1 mean the same in ONNX.
        return c.result("Reshape", data, c.integers("shape", codes))
    parts = _decoded(c, codes, params.boolean("reverse"))
    return c.result("Reshape", data, c.shape_value("shape", parts, infer=True), shape=(None,) * len(parts))


def _by_target_shape(c: Conversion) -> NodeEntry:
    """Reshape by `target_shape`, the parameter of MXNet's first releases: 0 marks the inferred dimension."""
    codes = [size or -1 for size in c.params.integers("target_shape")]
    if c.params.boolean("keep_highest"):
        codes[0] = 0
    if min(codes) < -1 or codes.count(-1) > 1:
        c.params.fail("target_shape", "sizes, at most one of them 0")
    return c.result("Reshape", c.data, c.integers("shape", codes))


def _decoded(c: Conversion, codes: list[int], reverse: bool) -> list[Part]:
    """MXNet's codes, decoded from left to right: 0 copies a dimension, -1 is inferred, -2 copies all that follow, -3 multiplies
    two, -4 splits one into the next two numbers. `reverse` decodes from right to left, with -4 after its numbers."""
    rank, at = c.rank(c.data), 0
    parts: list[Part] = []

    def take(count: int = 1) -> Part:
        """The product of the next dimensions."""
        nonlocal at
        if at + count > rank:
            c.params.fail("shape", f"one that takes at most the {rank} dimensions of the data")
        at += count
        return c.size_at(c.data, *[rank - 1 - i if reverse else i for i in range(at - count, at)])

    items = iter(codes[::-1] if reverse else codes)
    for code in items:
        if code == 0:
            parts.append(take())
        elif code == -2:
            parts += [take() for _ in range(at, rank)]
        elif code == -3:
            parts.append(take(2))
        elif code == -4:
            parts += _split(c, take, next(items, 0), next(items, 0))
        else:
            # A size or -1 consumes one dimension, if there is one left.
            at = min(at + 1, rank)
            parts.append(code)
    if parts.count(-1) > 1:
        c.params.fail("shape", "one with a single -1")
    return parts[::-1] if reverse else parts


def _split(c: Conversion, take: Callable[[], Part], first: int, second: int) -> list[Part]:
    """The next dimension, split into two sizes, of which one may be -1."""
    if first < -1 or second < -1 or not first * second or first == second == -1:
        c.params.fail("shape", "one with two sizes after -4, at most one of them -1")
    whole = take()
    if isinstance(whole, int):  # else Reshape infers a -1
        first = whole // second if first == -1 else first
        second = whole // first if second == -1 else second
        if first * second != whole:
            c.fail(f"a dimension of {whole} cannot be split into {first} and {second}")
    return [first, second]


@converter("reshape_like", "lhs_begin lhs_end rhs_begin rhs_end", inputs=2, onnx="Reshape")
def reshape_like(c: Conversion) -> NodeEntry:
    left, right = c.inputs
    if not any(name in c.params for name in ("lhs_begin", "lhs_end", "rhs_begin", "rhs_end")):
        return c.result("Reshape", left, c.shape_of("shape", right))
    l_begin, l_end = _span(c, "lhs", c.rank(left))
    r_begin, r_end = _span(c, "rhs", c.rank(right))
    parts = [c.size_at(left, i) for i in range(l_begin)]
    parts += [c.size_at(right, i) for i in range(r_begin, r_end)]
    parts += [c.size_at(left, i) for i in range(l_end, c.rank(left))]
    return c.result("Reshape", left, c.shape_value("shape", parts, infer=True))


def _span(c: Conversion, side: str, rank: int) -> tuple[int, int]:
    begin, end = c.params.integer(f"{side}_begin", 0), c.params.integer(f"{side}_end", rank)
    begin, end = begin + rank * (begin < 0), end + rank * (end < 0)
    return (begin, end) if 0 <= begin <= end <= rank else c.fail(f"{side} has no axes {begin} to {end}")


@converter("transpose", "axes", onnx="Transpose")
def transpose(c: Conversion) -> NodeEntry:
    perm = c.params.integers("axes")
    if not perm:
        return c.result("Transpose", c.data)
    if sorted(axes := c.axes(perm, len(perm))) != list(range(len(perm))):
        c.params.fail("axes", "every axis once")
    return c.result("Transpose", c.data, perm=axes)


@converter("SwapAxis swapaxes", "dim1 dim2", onnx="Transpose")
def swap_axes(c: Conversion) -> NodeEntry:
    rank = c.rank(c.data)
    a, b = (c.axis(c.params.integer(name, 0), rank) for name in ("dim1", "dim2"))
    perm = list(range(rank))
    perm[a], perm[b] = b, a
    return c.result("Transpose", c.data, perm=perm)


@converter("expand_dims", "axis", onnx="Unsqueeze")
def expand_dims(c: Conversion) -> NodeEntry:
    return c.result("Unsqueeze", c.data, c.integers("axis", [c.params.integer("axis")]))


@converter("squeeze", "axis", onnx="Squeeze")
def squeeze(c: Conversion) -> NodeEntry:
    data, rank = c.data, c.rank(c.data)
    dims = c.dims(data)
    axes = c.axes(c.params.integers("axis"), rank)
    if not axes:
        if any(not isinstance(d, int) for d in dims):
            c.unknown("the shape")
        axes = [i for i, d in enumerate(dims) if d == 1]
    if len(axes) == rank:  # MXNet keeps one dimension
        axes = axes[1:]
    return c.result("Squeeze", data, c.integers("axes", axes)) if axes else c.result("Identity", data)


# -- joining and repeating -------------------------------------------------------------------------------


@converter("stack", "axis", inputs=(1, None), onnx="Concat")
def stack(c: Conversion) -> NodeEntry:
    axis = c.params.integer("axis", 0)
    axes = c.integers("axis", [axis])
    parts = [c.Unsqueeze(entry, axes, name=f"part{i}") for i, entry in enumerate(c.inputs)]
    return c.result("Concat", *parts, axis=axis)


@converter("tile", "reps", onnx="Tile")
def tile(c: Conversion) -> NodeEntry:
    data, reps = c.data, c.params.integers("reps")
    rank = c.rank(data)
    if not reps or min(reps) < 1:
        c.params.fail("reps", "one or more numbers, each 1 or more")
    if len(reps) > rank:
        data = c.Unsqueeze(data, c.integers("new_axes", range(len(reps) - rank)), name="wider")
    return c.result("Tile", data, c.integers("reps", [1] * (rank - len(reps)) + list(reps)))


@converter("repeat", "repeats axis")
def repeat(c: Conversion) -> NodeEntry:
    """Repeats each element, or each slice along an axis."""
    data, count, axis = c.data, c.params.integer("repeats", least=1), c.params.optional_integer("axis")
    if axis is None:
        data, axis = c.flat(data), 0
    rank = c.rank(data)
    axis = c.axis(axis, rank)
    apart = c.Unsqueeze(data, c.integers("after", [axis + 1]), name="apart")
    reps = [count if i == axis + 1 else 1 for i in range(rank + 1)]
    tiled = c.Tile(apart, c.integers("reps", reps), name="tiled")
    parts: list[Part] = [c.size_at(data, i) for i in range(rank)]
    long = parts[axis]
    parts[axis] = attrs.evolve(long, factor=count * long.factor) if isinstance(long, SizeOf) else count * long
    return c.result("Reshape", tiled, c.shape_value("shape", parts, infer=True))


@converter("broadcast_to", "shape", onnx="Expand")
def broadcast_to(c: Conversion) -> NodeEntry:
    shape = c.params.integers("shape")
    if not shape or min(shape) < 0 or len(shape) != c.rank(c.data):
        c.params.fail("shape", f"{c.rank(c.data)} sizes, 0 for those that stay")
    return _expanded(c, {axis: size or 1 for axis, size in enumerate(shape)})


@converter("broadcast_axis broadcast_axes", "axis size", onnx="Expand")
def broadcast_axis(c: Conversion) -> NodeEntry:
    rank = c.rank(c.data)
    axes, sizes = c.axes(c.params.integers("axis"), rank), c.params.integers("size")
    if len(axes) != len(sizes) or min(sizes, default=1) < 1:
        c.params.fail("size", "a size for each axis")
    return _expanded(c, dict(zip(axes, sizes, strict=True)))


@converter("broadcast_like", "lhs_axes rhs_axes", inputs=2, onnx="Expand")
def broadcast_like(c: Conversion) -> NodeEntry:
    data, like = c.inputs
    if "lhs_axes" not in c.params and "rhs_axes" not in c.params:
        return c.result("Expand", data, c.shape_of("shape", like))
    left = c.axes(c.params.integers("lhs_axes"), c.rank(data))
    right = c.axes(c.params.integers("rhs_axes"), c.rank(like))
    if len(left) != len(right):
        c.params.fail("rhs_axes", "as long as lhs_axes")
    return _expanded(c, {a: c.size_at(like, b) for a, b in zip(left, right, strict=True)})


def _expanded(c: Conversion, sizes: Mapping[int, Part]) -> NodeEntry:
    """The data with these sizes of axes; the others stay."""
    return c.result("Expand", c.data, c.shape_value("shape", [sizes.get(axis, 1) for axis in range(c.rank(c.data))]))
