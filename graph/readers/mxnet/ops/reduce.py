"""Reductions, positions of extremes, running sums and sorting.

MXNet has no scalars: a reduction over all axes keeps one dimension of size 1."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import converter

REDUCTIONS = {
    "sum": "ReduceSum", "sum_axis": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax",
    "max_axis": "ReduceMax", "min": "ReduceMin", "min_axis": "ReduceMin", "nansum": "ReduceSum", "nanprod": "ReduceProd",
}


@converter(" ".join(REDUCTIONS), "axis keepdims exclude", onnx=REDUCTIONS)
def reduction(c: Conversion) -> NodeEntry:
    data = c.data
    if c.kind.startswith("nan"):
        neutral = c.like("neutral", 0 if c.kind == "nansum" else 1, data)
        data = c.Where(c.IsNaN(data, name="is_nan"), neutral, data, name="numbers")
    return _reduced(c, REDUCTIONS[c.kind], data)


@converter("norm", "ord axis out_dtype keepdims", onnx="ReduceL1 ReduceL2")
def norm(c: Conversion) -> NodeEntry:
    data, order = c.data, c.params.integer("ord", 2)
    axes = c.params.integers("axis")
    if order not in (1, 2) or (order == 1 and len(axes) == 2):
        c.params.fail("ord", "2; or 1 over one axis or all")
    if "out_dtype" in c.params:
        data = c.cast("cast", data, c.params.dtype("out_dtype"))
    return _reduced(c, f"ReduceL{order}", data)


def _reduced(c: Conversion, op: str, data: NodeEntry) -> NodeEntry:
    axes, keep = _axes(c, data), c.params.boolean("keepdims")
    if axes is None and keep:
        return c.result(op, data, keepdims=1)
    if axes is None:
        return c.result(op, c.flat(data), c.integers("axes", [0]), keepdims=1)
    if not axes:
        return c.result("Identity", data)
    return c.result(op, data, c.integers("axes", axes), keepdims=int(keep))


def _axes(c: Conversion, data: NodeEntry) -> list[int] | None:
    """The axes to reduce over; None for all of them."""
    named, is_excluded = c.params.integers("axis"), c.params.boolean("exclude")
    if not named:
        return [] if is_excluded and "axis" in c.params else None
    axes = c.axes(named, c.rank(data))
    axes = [axis for axis in range(c.rank(data)) if axis not in axes] if is_excluded else sorted(axes)
    return None if len(axes) == c.rank(data) else axes


@converter("moments", "axes keepdims", onnx="ReduceMean")
def moments(c: Conversion) -> tuple[NodeEntry, NodeEntry]:
    axes = c.integers("axes", c.axes(c.params.integers("axes"), c.rank(c.data)) or range(c.rank(c.data)))
    keep = int(c.params.boolean("keepdims"))
    centred = c.Sub(c.data, c.ReduceMean(c.data, axes, name="centre"), name="centred")
    mean = c.result("ReduceMean", c.data, axes, keepdims=keep)
    return mean, c.extra(1, "ReduceMean", c.Mul(centred, centred, name="squares"), axes, keepdims=keep)


# -- along one axis --------------------------------------------------------------------------------------

EXTREMES = {"argmax": "ArgMax", "argmin": "ArgMin", "argmax_channel": "ArgMax"}


@converter(" ".join(EXTREMES), "axis keepdims", onnx=EXTREMES)
def arg_extreme(c: Conversion) -> NodeEntry:
    """The index of the extreme element, in the dtype of the data."""
    data, keep = c.data, c.params.boolean("keepdims")
    axis = 1 if c.kind == "argmax_channel" else c.params.optional_integer("axis")
    rank = c.rank(data)
    if axis is None:
        ends = c.integers("one", [1] * (rank if keep else 1))
        positions = c.op(EXTREMES[c.kind], c.flat(data), axis=0, keepdims=1, name="position")
        positions = c.Reshape(positions, ends, name="shaped")
    else:
        keepdims = int(keep or rank == 1)
        positions = c.op(EXTREMES[c.kind], data, axis=c.axis(axis, rank), keepdims=keepdims, name="position")
    return c.result("Cast", positions, to=c.dtype(data))


@converter("cumsum _np_cumsum", "axis dtype", onnx="CumSum")
def cumsum(c: Conversion) -> NodeEntry:
    data, axis = c.data, c.params.optional_integer("axis")
    if "dtype" in c.params:
        data = c.cast("cast", data, c.params.dtype("dtype"))
    if axis is None:
        data, axis = c.flat(data), 0
    return c.result("CumSum", data, c.constant("axis", axis, "int64"))


def _ranked(c: Conversion, count: int, is_ascending: bool) -> tuple[NodeEntry, NodeEntry, NodeEntry, int]:
    """Data, sorted values and positions along the axis (all of them for count 0), and the axis."""
    data, axis = c.data, c.params.optional_integer("axis")
    if "axis" not in c.params.names:
        axis = -1
    if axis is None:
        data, axis = c.flat(data), 0
    axis = c.axis(axis, c.rank(data))
    size = c.integers("count", [count]) if count else c.shape_value("count", [c.size_at(data, axis)])
    values, positions = c.ops("TopK", 2, data, size, axis=axis, largest=int(not is_ascending), name="ranked")
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
        return c.result("Identity", values), c.extra(1, "Cast", positions, to=dtype)
    if "axis" in c.params.names and "axis" not in c.params:
        c.params.fail("axis", "a number, for a mask")
    zeros = c.Expand(c.like("zero", 0, data), c.shape_of("shape", data), name="zeros")
    ones = c.Expand(c.like("one", 1, data), c.shape_of("ones_shape", positions), name="ones")
    return c.result("ScatterElements", zeros, positions, ones, axis=axis)


@converter("sort", "axis is_ascend", onnx="TopK")
def sort(c: Conversion) -> NodeEntry:
    _, values, _, _ = _ranked(c, 0, c.params.boolean("is_ascend", True))
    return c.result("Identity", values)


@converter("argsort", "axis is_ascend dtype", onnx="TopK")
def argsort(c: Conversion) -> NodeEntry:
    _, _, positions, _ = _ranked(c, 0, c.params.boolean("is_ascend", True))
    return c.result("Cast", positions, to=c.params.dtype("dtype", "float32"))
