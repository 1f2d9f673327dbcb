"""Norms as means and products.

ONNX's own functions subtract the squared mean from the mean of squares: if the mean is much larger than the deviation, the
difference cancels to zero or becomes negative. Here the mean is subtracted first."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.passes.decompose.halves import HALVES

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
    return b.done(y, *((mean, inverse) if wide == "float32" else (b.Cast(value, to=SINGLE) for value in (mean, inverse))))


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
    return (b.Cast(b.input(0), to=SINGLE), "float32") if dtype in HALVES else (b.input(0), dtype)


def _centred(b: BodyBuilder, x: NodeEntry, axes: Sequence[int]) -> tuple[NodeEntry, NodeEntry, NodeEntry]:
    """The value minus its mean, the mean square of that, and the mean."""
    mean = b.along("ReduceMean", x, axes, keepdims=1)
    rest = b.Sub(x, mean)
    return rest, b.along("ReduceMean", b.Mul(rest, rest), axes, keepdims=1), mean
