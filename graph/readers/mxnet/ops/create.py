"""Values made without inputs, or from a shape."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.ops.registry import converter
from partita.graph.readers.mxnet.ops.sizes import shape_of, shape_value, size_at
from partita.graph.types import numpy_dtype


def filled(c: Conversion, shape: NodeEntry, value: float, dtype: str) -> NodeEntry:
    """The MXNet node's value: filled with this number. It is computed at run time: a shape in a file may be huge."""
    return c.result("ConstantOfShape", shape, value=np.asarray([value], numpy_dtype(dtype)))


@converter("_zeros _ones _full _zeros_without_dtype", "shape dtype value", inputs=0, onnx="ConstantOfShape")
def full(c: Conversion) -> NodeEntry:
    shape = c.params.integers("shape")
    if not shape or min(shape) < 1:
        c.params.fail("shape", "sizes that are known")
    value = {"_ones": 1.0, "_full": c.params.number("value", 0.0)}.get(c.kind, 0.0)
    return filled(c, c.integers("shape", shape), value, c.params.dtype("dtype", "float32"))


@converter("zeros_like ones_like", onnx="ConstantOfShape")
def full_like(c: Conversion) -> NodeEntry:
    data = c.inputs[0]
    return filled(c, shape_of(c, "shape", data), float(c.kind == "ones_like"), c.dtype(data))


@converter("_arange", "start stop step repeat infer_range dtype", inputs=0, onnx="Range")
def arange(c: Conversion) -> NodeEntry:
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
    count = max(0, math.ceil((stop - start) / step))
    return _steps(c, start, step, c.constant("count", count, "int64"), params.dtype("dtype", "float32"))


def _steps(c: Conversion, start: float, step: float, count: NodeEntry, dtype: str) -> NodeEntry:
    """start, start + step, ...: `count` numbers, each `repeat` times.

    The number of steps is computed first, so that rounding cannot add one.
    """
    repeat = c.params.integer("repeat", 1, least=1)
    if repeat > 1:
        count = c.Mul(count, c.constant("repeats", repeat, "int64"), name="count_repeated")
    whole = c.Range(c.constant("zero", 0, "int64"), count, c.constant("one", 1, "int64"), name="steps")
    if repeat > 1:
        whole = c.Div(whole, c.constant("repeat", repeat, "int64"), name="index")
    scaled = c.Mul(c.cast("number", whole, dtype), c.constant("step", step, dtype), name="scaled")
    return c.result("Add", scaled, c.constant("start", start, dtype))


@converter("_contrib_arange_like", "start step repeat axis", onnx="Range")
def arange_like(c: Conversion) -> NodeEntry:
    data = c.inputs[0]
    rank, dtype, axis = c.rank(data), c.dtype(data), c.params.optional_integer("axis")
    axes = range(rank) if axis is None else [c.axis(axis, rank)]
    repeat = c.params.integer("repeat", 1, least=1)
    shape = shape_value(c, "shape", [size_at(c, data, i) for i in axes])
    count = c.ReduceProd(shape, keepdims=0, name="count")
    whole = c.Range(c.constant("zero", 0, "int64"), count, c.constant("one", 1, "int64"), name="steps")
    index = whole if repeat == 1 else c.Div(whole, c.constant("repeat", repeat, "int64"), name="index")
    step = c.constant("step", c.params.scalar("step", 1.0), dtype)
    scaled = c.Mul(c.cast("number", index, dtype), step, name="scaled")
    shifted = c.Add(scaled, c.constant("start", c.params.scalar("start", 0.0), dtype), name="shifted")
    return c.result("Reshape", shifted, shape)


@converter("_eye", "N M k dtype", inputs=0, onnx="EyeLike")
def eye(c: Conversion) -> NodeEntry:
    rows = c.params.integer("N", least=1)
    columns = c.params.integer("M", 0, least=0) or rows
    dtype = c.params.dtype("dtype", "float32")
    shape = c.integers("shape", [rows, columns])
    zeros = c.ConstantOfShape(shape, value=np.zeros(1, numpy_dtype(dtype)), name="zeros")
    return c.result("EyeLike", zeros, k=c.params.integer("k", 0))


@converter("shape_array", onnx="Shape")
def shape_array(c: Conversion) -> NodeEntry:
    return c.result("Shape", c.inputs[0])


@converter("size_array", onnx="Size")
def size_array(c: Conversion) -> NodeEntry:
    return c.result("Reshape", c.Size(c.inputs[0], name="size"), c.integers("one", [1]))
