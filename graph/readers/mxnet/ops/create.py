"""Values made without inputs, or from a shape."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.table import converter, one_op, register
from partita.graph.types import numpy_dtype

one_op("shape_array", "Shape")
register("size_array", lambda c: c.result("Reshape", c.Size(c.data, name="size"), c.integers("one", [1])), onnx="Size")


def _filled(c: Conversion, shape: NodeEntry, value: float, dtype: str) -> NodeEntry:
    """The MXNet node's value: filled with this number. It is computed at run time: a shape in a file may be huge."""
    return c.result("ConstantOfShape", shape, value=np.asarray([value], numpy_dtype(dtype)))


@converter("_zeros _ones _full _zeros_without_dtype", "shape dtype value", inputs=0, onnx="ConstantOfShape")
def full(c: Conversion) -> NodeEntry:
    shape = c.params.integers("shape")
    if not shape or min(shape) < 1:
        c.params.fail("shape", "sizes that are known")
    value = {"_ones": 1.0, "_full": c.params.number("value", 0.0)}.get(c.kind, 0.0)
    return _filled(c, c.integers("shape", shape), value, c.params.dtype("dtype", "float32"))


@converter("zeros_like ones_like", onnx="ConstantOfShape")
def full_like(c: Conversion) -> NodeEntry:
    return _filled(c, c.shape_of("shape", c.data), float(c.kind == "ones_like"), c.dtype(c.data))


@converter("_arange", "start stop step repeat infer_range dtype", inputs=0, onnx="Range")
def arange(c: Conversion) -> NodeEntry:
    """start, start + step, ..., each `repeat` times. The number of steps is computed first, so that rounding cannot add one."""
    params = c.params
    start, step = params.scalar("start", 0.0), params.scalar("step", 1.0)
    if params.boolean("infer_range"):
        params.fail("infer_range", "False")
    if "stop" not in params:  # a single number is the end
        start, stop = 0.0, start
    else:
        stop = params.scalar("stop")
    if step == 0:
        params.fail("step", "other than 0")
    count = c.constant("count", max(0, math.ceil((stop - start) / step)), "int64")
    dtype, repeat = params.dtype("dtype", "float32"), params.integer("repeat", 1, least=1)
    if repeat > 1:
        count = c.Mul(count, c.constant("repeats", repeat, "int64"), name="count_repeated")
    scaled = c.Mul(c.cast("number", _counted(c, count), dtype), c.constant("step", step, dtype), name="scaled")
    return c.result("Add", scaled, c.constant("start", start, dtype))


@converter("_contrib_arange_like", "start step repeat axis", onnx="Range")
def arange_like(c: Conversion) -> NodeEntry:
    rank, dtype, axis = c.rank(c.data), c.dtype(c.data), c.params.optional_integer("axis")
    axes = range(rank) if axis is None else [c.axis(axis, rank)]
    shape = c.shape_value("shape", [c.size_at(c.data, i) for i in axes])
    index = _counted(c, c.ReduceProd(shape, keepdims=0, name="count"))
    step = c.constant("step", c.params.scalar("step", 1.0), dtype)
    scaled = c.Mul(c.cast("number", index, dtype), step, name="scaled")
    shifted = c.Add(scaled, c.constant("start", c.params.scalar("start", 0.0), dtype), name="shifted")
    return c.result("Reshape", shifted, shape)


def _counted(c: Conversion, count: NodeEntry) -> NodeEntry:
    """`count` integers from 0, each `repeat` times."""
    steps = c.Range(c.constant("zero", 0, "int64"), count, c.constant("one", 1, "int64"), name="steps")
    repeat = c.params.integer("repeat", 1, least=1)
    return steps if repeat == 1 else c.Div(steps, c.constant("repeat", repeat, "int64"), name="index")


@converter("_eye", "N M k dtype", inputs=0, onnx="EyeLike")
def eye(c: Conversion) -> NodeEntry:
    rows = c.params.integer("N", least=1)
    columns, dtype = c.params.integer("M", 0, least=0) or rows, c.params.dtype("dtype", "float32")
    zeros = c.ConstantOfShape(c.integers("shape", [rows, columns]), value=np.zeros(1, numpy_dtype(dtype)), name="zeros")
    return c.result("EyeLike", zeros, k=c.params.integer("k", 0))
