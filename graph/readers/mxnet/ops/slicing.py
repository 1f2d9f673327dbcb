"""Slicing, splitting, padding, and look-ups by index.

MXNet clips an index out of range ("clip") or takes it modulo the size ("wrap"); in ONNX negative ones count from the end and
others are undefined."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import NodeEntry
from partita.graph.ops.onnx_crashes import MOST
from partita.graph.readers.mxnet.attributes import Attributes
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import Known, Shape, converter

END = 2**63 - 1
"""Beyond the end of any axis."""


def cut(c: Conversion, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int] = ()) -> NodeEntry:
    """The MXNet node's value: the first input from `starts` to `ends`."""
    bounds = [c.integers(what, values) for what, values in (("starts", starts), ("ends", ends), ("axes", axes))]
    return c.result("Slice", c.data, *bounds, c.integers("steps", steps) if steps else None)


@converter("slice crop", "begin end step", onnx="Slice")
def slice_(c: Conversion) -> NodeEntry:
    begin, end, step = (c.params.optional_integers(name) for name in ("begin", "end", "step"))
    if not begin or len(begin) != len(end) or (step and len(step) != len(begin)):
        c.params.fail("begin", "as long as end and step")
    steps = [1 if s is None else s for s in step] or [1] * len(begin)
    if 0 in steps:
        c.params.fail("step", "other than 0")
    starts = [(0 if s > 0 else END) if b is None else b for b, s in zip(begin, steps, strict=True)]
    ends = [(END if s > 0 else -END) if e is None else e for e, s in zip(end, steps, strict=True)]
    return cut(c, starts, ends, range(len(begin)), steps if any(s != 1 for s in steps) else ())


@converter("slice_axis", "axis begin end", onnx="Slice")
def slice_axis(c: Conversion) -> NodeEntry:
    end = c.params.optional_integer("end")
    return cut(c, [c.params.integer("begin")], [END if end is None else end], [c.params.integer("axis")])


@converter("slice_like", "axes", inputs=2, onnx="Slice")
def slice_like(c: Conversion) -> NodeEntry:
    data, like = c.inputs
    given = c.params.integers("axes") or tuple(range(c.rank(data)))
    axes = c.axes(given, c.rank(data))
    ends = c.shape_value("ends", [c.size_at(like, axis) for axis in c.axes(given, c.rank(like))])
    return c.result("Slice", data, c.integers("starts", [0] * len(axes)), ends, c.integers("axes", axes))


@converter("reverse flip", "axis", onnx="Slice")
def reverse(c: Conversion) -> NodeEntry:
    axes = c.params.integers("axis")
    if not axes:
        c.params.fail("axis", "given")
    return cut(c, [END] * len(axes), [-END] * len(axes), axes, [-1] * len(axes))


@converter("SliceChannel split", "num_outputs axis squeeze_axis", onnx="Split")
def split(c: Conversion) -> tuple[NodeEntry, ...]:
    count, axis = c.params.integer("num_outputs", least=1), c.params.integer("axis", 1)
    return _parts(c, axis, _even(c, "num_outputs", count, axis), count)


@converter("_split_v2", "indices axis squeeze_axis sections", onnx="Split")
def split_at(c: Conversion) -> tuple[NodeEntry, ...]:
    axis, count = c.params.integer("axis", 1), c.params.integer("sections", 0, least=0)
    if count:
        return _parts(c, axis, _even(c, "sections", count, axis), count)
    (size,) = c.sizes(c.data, (axis,))
    starts = list(c.params.integers("indices"))
    starts = [0, *starts] if not starts or starts[0] else starts
    sizes = [end - start for start, end in zip(starts, [*starts[1:], size], strict=True)]
    if min(sizes) < 0:
        c.params.fail("indices", f"rising from 0 to at most {size}")
    return _parts(c, axis, sizes, len(sizes))


def _even(c: Conversion, name: str, count: int, axis: int) -> list[int] | None:
    """The sizes of equal parts; None if the size of the axis is unknown."""
    shape = c.shape(c.data)
    size = None if shape is None else shape[c.axis(axis, len(shape))]
    if count >= MOST or (isinstance(size, int) and size % count):
        c.params.fail(name, f"a divisor of the axis's size {size or ''}".strip())
    return [size // count] * count if isinstance(size, int) else None


def _parts(c: Conversion, axis: int, sizes: list[int] | None, count: int) -> tuple[NodeEntry, ...]:
    lengths, number = (c.integers("sizes", sizes), None) if sizes else (None, count)
    if not c.params.boolean("squeeze_axis"):
        return c.results("Split", c.data, lengths, count=count, axis=axis, num_outputs=number)
    if sizes and max(sizes) > 1:
        c.params.fail("squeeze_axis", "False where a part is longer than 1")
    parts = c.ops("Split", count, c.data, lengths, axis=axis, num_outputs=number, name="split")
    axes = c.integers("axis", [axis])
    first = c.result("Squeeze", parts[0], axes)
    return (first, *(c.extra(i, "Squeeze", part, axes) for i, part in enumerate(parts[1:], 1)))


@converter("Crop", "offset h_w center_crop", inputs=(1, 2), onnx="Slice")
def crop(c: Conversion) -> NodeEntry:
    """Crops height and width to h_w, or to those of the second input."""
    sizes = c.sizes(c.inputs[1], (2, 3)) if len(c.inputs) == 2 else c.params.sizes("h_w", 2, None)
    offset = c.params.sizes("offset", 2, 0, least=0)
    if c.params.boolean("center_crop"):
        offset = [(whole - part) // 2 for whole, part in zip(c.sizes(c.data, (2, 3)), sizes, strict=True)]
        if min(offset) < 0:
            c.fail(f"{tuple(sizes)} cannot be cropped from smaller data")
    return cut(c, offset, [o + s for o, s in zip(offset, sizes, strict=True)], [2, 3])


@converter("Pad pad", "mode pad_width constant_value", onnx="Pad")
def pad(c: Conversion) -> NodeEntry:
    data, mode = c.data, c.params.choice("mode", ("constant", "edge", "reflect"))
    width = c.params.integers("pad_width")
    if not width or len(width) % 2 or min(width) < 0:
        c.params.fail("pad_width", "two numbers, 0 or more, for each axis")
    pads = c.integers("pads", [*width[::2], *width[1::2]])
    value = c.like("value", c.params.number("constant_value", 0.0), data) if mode == "constant" else None
    return c.result("Pad", data, pads, value, mode=mode)


# -- look-ups by index -----------------------------------------------------------------------------------


def bounded(c: Conversion, index: NodeEntry, data: NodeEntry, axis: int, mode: str) -> NodeEntry:
    """The index as integers within the data's axis."""
    index = c.cast("index", index, "int64")
    if mode == "raise":
        return index
    shape = c.shape(data)
    size = None if shape is None else shape[axis]
    if isinstance(size, int):
        count, last = (c.constant(what, n, "int64") for what, n in (("size", size), ("last", size - 1)))
    else:
        count = c.Gather(c.Shape(data, name="sizes"), c.constant("axis", axis, "int64"), name="size")
        last = c.Sub(count, c.constant("one", 1, "int64"), name="last")
    if mode == "wrap":
        return c.Mod(index, count, name="wrapped")
    return c.Clip(index, c.constant("first", 0, "int64"), last, name="clipped")


def _of_embedding(params: Attributes, known: Known) -> list[Shape | None]:
    return [None, (params.integer("input_dim", least=1), params.integer("output_dim", least=1))]


@converter(
    "Embedding _contrib_SparseEmbedding", "input_dim output_dim dtype deterministic",
    inputs=2, onnx="Gather", implied=_of_embedding,
)
def embedding(c: Conversion) -> NodeEntry:
    index, weight = c.inputs
    return c.result("Gather", weight, bounded(c, index, weight, 0, "clip"), axis=0)


@converter("take", "axis mode", inputs=2, onnx="Gather")
def take(c: Conversion) -> NodeEntry:
    data, index = c.inputs
    mode, axis = c.params.choice("mode", ("clip", "wrap", "raise"), "clip"), c.params.integer("axis", 0)
    if axis < 0:
        axis = c.axis(axis, c.rank(data))
    return c.result("Gather", data, bounded(c, index, data, axis, mode), axis=axis)


@converter("pick choose_element_0index", "axis keepdims mode", inputs=2, onnx="GatherElements")
def pick(c: Conversion) -> NodeEntry:
    """One element along an axis per position of the others."""
    data, index = c.inputs
    rank = c.rank(data)
    axis = c.axis(c.params.integer("axis", -1), rank)
    chosen = bounded(c, index, data, axis, c.params.choice("mode", ("clip", "wrap"), "clip"))
    axes = c.integers("axes", [axis])
    if c.rank(index) < rank:
        chosen = c.Unsqueeze(chosen, axes, name="apart")
    if c.params.boolean("keepdims") or rank == 1:
        return c.result("GatherElements", data, chosen, axis=axis)
    return c.result("Squeeze", c.GatherElements(data, chosen, axis=axis, name="found"), axes)


@converter("gather_nd", inputs=2, onnx="GatherND")
def gather_nd(c: Conversion) -> NodeEntry:
    """MXNet's coordinates are along the first axis of the index, ONNX's along the last."""
    data, index = c.inputs
    order = [*range(1, c.rank(index)), 0]
    return c.result("GatherND", data, c.transposed(c.cast("index", index, "int64"), order, name="coordinates_last"))


@converter("one_hot", "depth on_value off_value dtype", onnx="OneHot")
def one_hot(c: Conversion) -> NodeEntry:
    """An index out of range gives a row of zeros; in ONNX negative ones count from the end."""
    depth = c.constant("depth", c.params.integer("depth", least=1), "int64")
    index = c.cast("index", c.data, "int64")
    negative = c.Less(index, c.constant("first", 0, "int64"), name="negative")
    index = c.Where(negative, depth, index, name="outside")
    values = [c.params.number("off_value", 0.0), c.params.number("on_value", 1.0)]
    dtype = c.params.dtype("dtype", "float32")
    if dtype == "float32":
        return c.result("OneHot", index, depth, c.constant("values", values, dtype), axis=-1)
    # Engines implement OneHot for few dtypes.
    hot = c.OneHot(index, depth, c.constant("values", values, "float32"), axis=-1, name="hot")
    return c.result("Cast", hot, to=dtype)
