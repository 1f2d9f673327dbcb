"""Sums, means, extremes, norms, and positions of extremes.

MXNet has no scalars: a reduction over all axes keeps one dimension of size 1."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter

REDUCTIONS = {
    "sum": "ReduceSum", "sum_axis": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax",
    "max_axis": "ReduceMax", "min": "ReduceMin", "min_axis": "ReduceMin", "nansum": "ReduceSum", "nanprod": "ReduceProd",
}


@converter(" ".join(REDUCTIONS), "axis keepdims exclude", onnx=REDUCTIONS)
def reduction(c: Conversion) -> NodeEntry:
    data = c.inputs[0]
    if c.kind.startswith("nan"):
        neutral = c.like("neutral", 0 if c.kind == "nansum" else 1, data)
        data = c.Where(c.IsNaN(data, name="is_nan"), neutral, data, name="numbers")
    axes = _axes(c, data)
    return _reduced(c, REDUCTIONS[c.kind], data, axes)


@converter("norm", "ord axis out_dtype keepdims", onnx="ReduceL1 ReduceL2")
def norm(c: Conversion) -> NodeEntry:
    data, order = c.inputs[0], c.params.integer("ord", 2)
    axes = c.params.integers("axis")
    if order not in (1, 2) or (order == 1 and len(axes) == 2):
        c.params.fail("ord", "2; or 1 over one axis or all")
    if "out_dtype" in c.params:
        data = c.cast("cast", data, c.params.dtype("out_dtype", "float32"))
    return _reduced(c, f"ReduceL{order}", data, _axes(c, data))


def _axes(c: Conversion, data: NodeEntry) -> list[int] | None:
    """The axes to reduce over; None for all of them."""
    given = c.params.integers("axis")
    exclude = c.params.boolean("exclude")
    if not given:
        return [] if exclude and "axis" in c.params else None
    axes = c.axes(given, c.rank(data))
    axes = [axis for axis in range(c.rank(data)) if axis not in axes] if exclude else sorted(axes)
    return None if len(axes) == c.rank(data) else axes


def _reduced(c: Conversion, op: str, data: NodeEntry, axes: list[int] | None) -> NodeEntry:
    keep = c.params.boolean("keepdims")
    if axes is None and keep:
        return c.result(op, data, keepdims=1)
    if axes is None:
        flat = c.Reshape(data, c.integers("all", [-1]), name="flat")
        return c.result(op, flat, c.integers("axes", [0]), keepdims=1)
    if not axes:
        return c.result("Identity", data)
    return c.result(op, data, c.integers("axes", axes), keepdims=int(keep))


_ARG = {"argmax": "ArgMax", "argmin": "ArgMin", "argmax_channel": "ArgMax"}


@converter(" ".join(_ARG), "axis keepdims", onnx=_ARG)
def arg_extreme(c: Conversion) -> NodeEntry:
    """The index of the extreme element, in the dtype of the data."""
    data = c.inputs[0]
    keep = c.params.boolean("keepdims")
    axis = 1 if c.kind == "argmax_channel" else c.params.optional_integer("axis")
    rank = c.rank(data)
    if axis is None:
        ends = c.integers("one", [1] * (rank if keep else 1))
        data = c.Reshape(data, c.integers("all", [-1]), name="flat")
        positions = c.op(_ARG[c.kind], data, axis=0, keepdims=1, name="position")
        return c.result("Cast", c.Reshape(positions, ends, name="shaped"), to=c.dtype(data))
    positions = c.op(_ARG[c.kind], data, axis=c.axis(axis, rank), keepdims=int(keep or rank == 1), name="position")
    return c.result("Cast", positions, to=c.dtype(data))


@converter("cumsum _np_cumsum", "axis dtype", onnx="CumSum")
def cumsum(c: Conversion) -> NodeEntry:
    data = c.inputs[0]
    if "dtype" in c.params:
        data = c.cast("cast", data, c.params.dtype("dtype", "float32"))
    axis = c.params.optional_integer("axis")
    if axis is None:
        data, axis = c.Reshape(data, c.integers("all", [-1]), name="flat"), 0
    return c.result("CumSum", data, c.constant("axis", axis, "int64"))


@converter("moments", "axes keepdims", onnx="ReduceMean")
def moments(c: Conversion) -> tuple[NodeEntry, NodeEntry]:
    data = c.inputs[0]
    axes = c.integers("axes", c.axes(c.params.integers("axes"), c.rank(data)) or range(c.rank(data)))
    keep = int(c.params.boolean("keepdims"))
    centred = c.Sub(data, c.ReduceMean(data, axes, name="centre"), name="centred")
    mean = c.result("ReduceMean", data, axes, keepdims=keep)
    return mean, c.extra(1, "ReduceMean", c.Mul(centred, centred, name="squares"), axes, keepdims=keep)
