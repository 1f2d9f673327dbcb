"""Concatenation and repetition."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import Part, SizeOf, shape_of, shape_value, size_at


@converter("Concat concat _rnn_param_concat", "dim", inputs=(1, None), onnx="Concat")
def concat(c: Conversion) -> NodeEntry:
    return c.result("Concat", *c.inputs, axis=c.params.integer("dim", 1))


@converter("stack", "axis", inputs=(1, None), onnx="Concat")
def stack(c: Conversion) -> NodeEntry:
    axis = c.params.integer("axis", 0)
    axes = c.integers("axis", [axis])
    parts = [c.Unsqueeze(entry, axes, name=f"part{i}") for i, entry in enumerate(c.inputs)]
    return c.result("Concat", *parts, axis=axis)


@converter("add_n ElementWiseSum", inputs=(1, None), onnx="Sum")
def add_n(c: Conversion) -> NodeEntry:
    return c.result("Sum", *c.inputs)


@converter("where", inputs=3, onnx="Where")
def where(c: Conversion) -> NodeEntry:
    condition, yes, no = c.inputs
    truth = c.cast("truth", condition, "bool")
    if c.rank(condition) == 1 and c.rank(yes) > 1:  # a condition for each row
        truth = c.Unsqueeze(truth, c.integers("row_axes", range(1, c.rank(yes))), name="rows")
    return c.result("Where", truth, yes, no)


@converter("amp_multicast", "num_outputs cast_narrow", inputs=(1, None), onnx="Cast")
def amp_multicast(c: Conversion) -> tuple[NodeEntry, ...]:
    """All inputs cast to the widest of their dtypes, or the narrowest."""
    order = ["float16", "float32", "float64"]
    dtypes = [c.dtype(entry) for entry in c.inputs]
    if not set(dtypes) <= set(order) or c.params.integer("num_outputs") != len(dtypes):
        c.fail(f"inputs of {', '.join(dtypes)} cannot be brought to one dtype")
    choose = min if c.params.boolean("cast_narrow") else max
    dtype = choose(dtypes, key=order.index)
    first = c.result("Cast", c.inputs[0], to=dtype)
    return (first, *(c.extra(i, "Cast", entry, to=dtype) for i, entry in enumerate(c.inputs[1:], 1)))


@converter("tile", "reps", onnx="Tile")
def tile(c: Conversion) -> NodeEntry:
    data, reps = c.inputs[0], c.params.integers("reps")
    rank = c.rank(data)
    if not reps or min(reps) < 1:
        c.params.fail("reps", "one or more numbers, each 1 or more")
    if len(reps) > rank:
        data = c.Unsqueeze(data, c.integers("new_axes", range(len(reps) - rank)), name="wider")
    full = [1] * (rank - len(reps)) + list(reps)
    return c.result("Tile", data, c.integers("reps", full))


@converter("repeat", "repeats axis")
def repeat(c: Conversion) -> NodeEntry:
    """Repeats each element, or each slice along an axis."""
    data, count = c.inputs[0], c.params.integer("repeats", least=1)
    axis = c.params.optional_integer("axis")
    if axis is None:
        data, axis = c.Reshape(data, c.integers("all", [-1]), name="flat"), 0
    rank = c.rank(data)
    axis = c.axis(axis, rank)
    apart = c.Unsqueeze(data, c.integers("after", [axis + 1]), name="apart")
    reps = [count if i == axis + 1 else 1 for i in range(rank + 1)]
    tiled = c.Tile(apart, c.integers("reps", reps), name="tiled")
    parts: list[Part] = [size_at(c, data, i) for i in range(rank)]
    long = parts[axis]
    parts[axis] = (
        SizeOf(long.entry, long.axes, count * long.factor) if isinstance(long, SizeOf) else count * long
    )
    return c.result("Reshape", tiled, shape_value(c, "shape", parts, infer=True))


@converter("broadcast_to", "shape", onnx="Expand")
def broadcast_to(c: Conversion) -> NodeEntry:
    shape = c.params.integers("shape")
    if not shape or min(shape) < 0 or len(shape) != c.rank(c.inputs[0]):
        c.params.fail("shape", f"{c.rank(c.inputs[0])} sizes, 0 for those that stay")
    return _expanded(c, [size or 1 for size in shape])


@converter("broadcast_axis broadcast_axes", "axis size", onnx="Expand")
def broadcast_axis(c: Conversion) -> NodeEntry:
    rank = c.rank(c.inputs[0])
    axes, sizes = c.axes(c.params.integers("axis"), rank), c.params.integers("size")
    if len(axes) != len(sizes) or min(sizes, default=1) < 1:
        c.params.fail("size", "a size for each axis")
    wanted = dict(zip(axes, sizes, strict=True))
    return _expanded(c, [wanted.get(axis, 1) for axis in range(rank)])


@converter("broadcast_like", "lhs_axes rhs_axes", inputs=2, onnx="Expand")
def broadcast_like(c: Conversion) -> NodeEntry:
    data, like = c.inputs
    if "lhs_axes" not in c.params and "rhs_axes" not in c.params:
        return c.result("Expand", data, shape_of(c, "shape", like))
    left = c.axes(c.params.integers("lhs_axes"), c.rank(data))
    right = c.axes(c.params.integers("rhs_axes"), c.rank(like))
    if len(left) != len(right):
        c.params.fail("rhs_axes", "as long as lhs_axes")
    wanted = {a: size_at(c, like, b) for a, b in zip(left, right, strict=True)}
    return _expanded(c, [wanted.get(axis, 1) for axis in range(c.rank(data))])


def _expanded(c: Conversion, parts: Sequence[Part]) -> NodeEntry:
    """Expand with 1 for a dimension that stays."""
    return c.result("Expand", c.inputs[0], shape_value(c, "shape", parts))
