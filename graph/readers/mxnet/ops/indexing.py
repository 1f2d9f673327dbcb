"""Look-ups by index.

MXNet clips an index out of range ("clip") or takes it modulo the size ("wrap"); in ONNX negative ones count from
the end and others are undefined."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter


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


@converter("Embedding _contrib_SparseEmbedding", "input_dim output_dim dtype deterministic", inputs=2, onnx="Gather")
def embedding(c: Conversion) -> NodeEntry:
    index, weight = c.inputs
    return c.result("Gather", weight, bounded(c, index, weight, 0, "clip"), axis=0)


@converter("take", "axis mode", inputs=2, onnx="Gather")
def take(c: Conversion) -> NodeEntry:
    data, index = c.inputs
    mode = c.params.choice("mode", ("clip", "wrap", "raise"), "clip")
    axis = c.params.integer("axis", 0)
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
    picked = c.GatherElements(data, chosen, axis=axis, name="found")
    return c.result("Squeeze", picked, axes)


@converter("gather_nd", inputs=2, onnx="GatherND")
def gather_nd(c: Conversion) -> NodeEntry:
    """MXNet's coordinates are along the first axis of the index, ONNX's along the last."""
    data, index = c.inputs
    rank = c.rank(index)
    last = c.transposed(c.cast("index", index, "int64"), [*range(1, rank), 0], name="coordinates_last")
    return c.result("GatherND", data, last)


@converter("one_hot", "depth on_value off_value dtype", onnx="OneHot")
def one_hot(c: Conversion) -> NodeEntry:
    """An index out of range gives a row of zeros; in ONNX negative ones count from the end."""
    depth = c.constant("depth", c.params.integer("depth", least=1), "int64")
    index = c.cast("index", c.inputs[0], "int64")
    negative = c.Less(index, c.constant("first", 0, "int64"), name="negative")
    index = c.Where(negative, depth, index, name="outside")
    values = [c.params.number("off_value", 0.0), c.params.number("on_value", 1.0)]
    dtype = c.params.dtype("dtype", "float32")
    if dtype == "float32":
        return c.result("OneHot", index, depth, c.constant("values", values, dtype), axis=-1)
    # Engines implement OneHot for few dtypes.
    hot = c.OneHot(index, depth, c.constant("values", values, "float32"), axis=-1, name="hot")
    return c.result("Cast", hot, to=dtype)


@converter("ROIPooling", "pooled_size spatial_scale", inputs=2, onnx="MaxRoiPool")
def roi_pooling(c: Conversion) -> NodeEntry:
    size, scale = c.params.sizes("pooled_size", 2, None), c.params.number("spatial_scale")
    return c.result("MaxRoiPool", *c.inputs, pooled_shape=size, spatial_scale=scale)


@converter("_contrib_ROIAlign", "pooled_size spatial_scale sample_ratio position_sensitive aligned", inputs=2, onnx="RoiAlign")
def roi_align(c: Conversion) -> NodeEntry:
    data, rois = c.inputs
    if c.params.boolean("position_sensitive"):
        c.params.fail("position_sensitive", "False")
    height, width = c.params.sizes("pooled_size", 2, None)
    columns = c.integers("columns", [1, 4])
    image, boxes = c.ops("Split", 2, rois, columns, axis=1, name="roi")
    flat = c.Squeeze(image, c.integers("axis", [1]), name="image_flat")
    return c.result(
        "RoiAlign",
        data,
        boxes,
        c.cast("image", flat, "int64"),
        coordinate_transformation_mode="half_pixel" if c.params.boolean("aligned") else "output_half_pixel",
        output_height=height,
        output_width=width,
        sampling_ratio=max(c.params.integer("sample_ratio", -1), 0),
        spatial_scale=c.params.number("spatial_scale"),
    )
