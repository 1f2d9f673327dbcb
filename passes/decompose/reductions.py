"""Reductions expressed by others: those along no axes, ReduceLogSumExp, GlobalMaxPool; and norms as means and products.

ONNX's own functions of norms subtract the squared mean from the mean of squares: if the mean is much larger than the deviation,
the difference cancels to zero or becomes negative. Here the mean is subtracted first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import HALVES

UNREDUCED = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceSumSquare": "Mul"}
"""For reductions that change elements even along no axes, the element-wise op; Mul multiplies the value by itself."""


def reduces_nothing(node: Node) -> bool:
    """True for a reduction with noop_with_empty_axes and no axes."""
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    empty = axes is None or (axes.node.value is not None and not axes.node.value.size)
    return bool(node.attrs.get("noop_with_empty_axes", 0)) and empty


def unreduced(b: BodyBuilder) -> Graph | None:
    """A reduction along no axes as an element-wise op; None if it takes no such elements."""
    if not reduces_nothing(b.node) or (b.node.op == "ReduceLogSum" and "float" not in b.type(0).dtype):
        return None
    return b.done(b.op(UNREDUCED[str(b.node.op)], *[b.input(0)] * (2 if b.node.op == "ReduceSumSquare" else 1)))


def log_sum_exp(b: BodyBuilder) -> Graph | None:
    """ReduceLogSumExp: the largest element is subtracted first, unless it is infinite; integers are computed in float64."""
    kind, rank, x = b.type(0), b.rank(0), b.input(0)
    if not rank or 0 in (kind.shape or ()) or kind.dtype in HALVES or (b.has(1) and b.values[1] is None):
        return None
    if reduces_nothing(b.node):
        return b.done(b.Identity(x))
    axes = (b.value(1).tolist() if b.has(1) else b.attr("axes", None)) or list(range(rank))
    dtype = kind.dtype if "float" in kind.dtype else "float64"
    x = x if dtype == kind.dtype else b.Cast(x, to=dtype)
    top = b.along("ReduceMax", x, axes, keepdims=1)
    # IsInf is newer than this op.
    finite = b.Less(b.Abs(top), b.constant(np.inf, dtype))
    top, keepdims = b.Where(finite, top, b.constant(0, dtype)), int(b.attr("keepdims", 1))
    total = b.along("ReduceSum", b.Exp(b.Sub(x, top)), axes, keepdims=keepdims)
    y = b.Add(b.Log(total), b.along("ReduceMax", top, axes, keepdims=keepdims))
    return b.done(y if dtype == kind.dtype else b.Cast(y, to=kind.dtype))


def global_max_pool(b: BodyBuilder) -> Graph:
    """GlobalMaxPool as a reduction; of no dimensions, it is the value itself."""
    if b.rank(0) < 3:
        return b.done(b.Identity(b.input(0)))
    return b.done(b.along("ReduceMax", b.input(0), range(2, b.rank(0)), keepdims=1))


# -- norms -----------------------------------------------------------------------------------------------

SINGLE = 1
"""ONNX's number for float32."""


def layer_normalization(b: BodyBuilder) -> Graph | None:
    """LayerNormalization, with its mean and its inverse standard deviation."""
    rank, dtype = b.rank(0), b.type(0).dtype
    if int(b.attr("stash_type", SINGLE)) != SINGLE or not rank:
        return None
    x, wide = _widened(b, dtype)
    rest, square, mean = _centred(b, x, range(int(b.attr("axis", -1)) % rank, rank))
    inverse = b.Reciprocal(b.Sqrt(b.Add(square, b.constant(b.attr("epsilon", 1e-5), wide))))
    y = b.Mul(rest, inverse)
    y = b.CastLike(y, b.input(0)) if dtype in HALVES else y
    y = b.Mul(y, b.input(1)) if b.has(1) else y
    y = b.Add(y, b.input(2)) if b.has(2) else y
    return b.done(y, *((mean, inverse) if wide == "float32" else (b.Cast(value, to="float32") for value in (mean, inverse))))


def group_normalization(b: BodyBuilder) -> Graph | None:
    """GroupNormalization, whose scales are per group before opset 21, and per channel since."""
    rank, dtype = b.rank(0), b.type(0).dtype
    if int(b.attr("stash_type", SINGLE)) != SINGLE:
        return None
    (x, wide), scale, bias = _widened(b, dtype), b.input(1), b.input(2)
    rest, square, _ = _centred(b, b.Reshape(x, [0, int(b.node.attrs["num_groups"]), -1]), [2])
    y = b.Div(rest, b.Sqrt(b.Add(square, b.constant(b.attr("epsilon", 1e-5), wide))))
    y = b.CastLike(y, scale) if dtype in HALVES else y
    shape, column = b.Shape(x), b.constant([-1, *[1] * (rank - 2)] if b.version >= 21 else [-1, 1])
    y = b.Reshape(y, shape) if b.version >= 21 else y
    y = b.Add(b.Mul(y, b.Reshape(scale, column)), b.Reshape(bias, column))
    return b.done(y if b.version >= 21 else b.Reshape(y, shape))


def mean_variance_normalization(b: BodyBuilder) -> Graph | None:
    """MeanVarianceNormalization; None in half precision."""
    dtype = b.type(0).dtype
    if dtype in HALVES:
        return None
    rest, square, _ = _centred(b, b.input(0), b.attr("axes", (0, 2, 3)))
    return b.done(b.Div(rest, b.Add(b.Sqrt(square), b.constant(1e-9, dtype))))


def _widened(b: BodyBuilder, dtype: str) -> tuple[NodeEntry, str]:
    """The first input, cast to float32 if it is half-precision, and its element type."""
    return (b.Cast(b.input(0), to="float32"), "float32") if dtype in HALVES else (b.input(0), dtype)


def _centred(b: BodyBuilder, x: NodeEntry, axes: Sequence[int]) -> tuple[NodeEntry, NodeEntry, NodeEntry]:
    """The value minus its mean, the mean square of that, and the mean."""
    mean = b.along("ReduceMean", x, axes, keepdims=1)
    rest = b.Sub(x, mean)
    return rest, b.along("ReduceMean", b.Mul(rest, rest), axes, keepdims=1), mean
