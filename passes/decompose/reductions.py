"""Reductions expressed by others: those along no axes, ReduceLogSumExp, GlobalMaxPool."""

from __future__ import annotations

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.passes.decompose.halves import HALVES

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
