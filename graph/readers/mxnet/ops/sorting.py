"""Sorting, and the k largest or smallest elements."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import shape_of, shape_value, size_at


def _ranked(c: Conversion, count: int, ascending: bool) -> tuple[NodeEntry, NodeEntry, NodeEntry, int]:
    """Data, sorted values and positions along the axis (all of them for count 0), and the axis."""
    data = c.inputs[0]
    axis = c.params.optional_integer("axis")
    if "axis" not in c.params.names:
        axis = -1
    if axis is None:
        data, axis = c.Reshape(data, c.integers("all", [-1]), name="flat"), 0
    axis = c.axis(axis, c.rank(data))
    size = c.integers("count", [count]) if count else shape_value(c, "count", [size_at(c, data, axis)])
    values, positions = c.ops("TopK", 2, data, size, axis=axis, largest=int(not ascending), name="ranked")
    return data, values, positions, axis


@converter("topk", "axis k ret_typ is_ascend dtype", onnx="TopK")
def topk(c: Conversion) -> NodeEntry | tuple[NodeEntry, NodeEntry]:
    kind = c.params.choice("ret_typ", ("indices", "value", "both", "mask"), "indices")
    count = max(c.params.integer("k", 1), 0)
    data, values, positions, axis = _ranked(c, count, c.params.boolean("is_ascend"))
    dtype = c.params.dtype("dtype", "float32")
    if kind == "value":
        return c.result("Identity", values)
    if kind == "indices":
        return c.result("Cast", positions, to=dtype)
    if kind == "both":
        return c.results("Identity", values, count=1)[0], c.extra(1, "Cast", positions, to=dtype)
    if "axis" in c.params.names and "axis" not in c.params:
        c.params.fail("axis", "a number, for a mask")
    zeros = c.Expand(c.like("zero", 0, data), shape_of(c, "shape", data), name="zeros")
    ones = c.Expand(c.like("one", 1, data), shape_of(c, "ones_shape", positions), name="ones")
    return c.result("ScatterElements", zeros, positions, ones, axis=axis)


@converter("sort", "axis is_ascend", onnx="TopK")
def sort(c: Conversion) -> NodeEntry:
    _, values, _, _ = _ranked(c, 0, c.params.boolean("is_ascend", True))
    return c.result("Identity", values)


@converter("argsort", "axis is_ascend dtype", onnx="TopK")
def argsort(c: Conversion) -> NodeEntry:
    _, _, positions, _ = _ranked(c, 0, c.params.boolean("is_ascend", True))
    return c.result("Cast", positions, to=c.params.dtype("dtype", "float32"))
