"""Ops that we take apart ourselves: ONNX has no body for them, or one that loses digits.

ONNX's own bodies of the norms subtract the mean's square from the mean of squares: where the mean is large beside the deviation
nothing is left of the difference, or less than nothing. Here the mean is subtracted first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accelerators.tvm.known_wrong import UNREDUCED, reduces_nothing
from accelerators.tvm.layouts.resizing import matrix
from graph.build import constant, op, variable
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.types import TensorType, numpy_dtype

TAPS = 8
"""A resize whose results see more places than this along one dimension is left to others."""

SINGLE = 1
"""ONNX's number for float32."""


def own_parts(node: Node, graph: Graph) -> Graph | None:
    """The op's body, its inputs named x0, x1, … after the node's; None where the op has no parts of ours."""
    make = _PARTS.get(str(node.op)) if not node.domain else None
    return None if make is None else make(_Parts(node, graph))


def has_own_parts(node: Node) -> bool:
    """Do we take such ops apart?"""
    return not node.domain and node.op in _PARTS


class _Parts:
    """A body being written."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node = node
        self.graph = graph
        self.version = graph.opsets.get("", 1)
        self.inputs = {i: variable(f"x{i}", type=e.type) for i, e in enumerate(node.inputs) if e is not None}
        self.read: list[Node] = []

    def input(self, i: int) -> NodeEntry | None:
        """The input, which is one of the body's from here on; None if it is absent."""
        node = self.inputs.get(i)
        if node is not None and node not in self.read:
            self.read.append(node)
        return None if node is None else node[0]

    def op(self, name: str, *inputs: NodeEntry, **attributes: Any) -> NodeEntry:
        return op(name, *inputs, opset=self.version, **attributes)[0]

    def numbers(self, values: Any, dtype: Any = np.int64) -> NodeEntry:
        return constant(np.asarray(values, dtype))[0]

    def mean(self, x: NodeEntry, axes: Sequence[int]) -> NodeEntry:
        if self.version < 18:
            return self.op("ReduceMean", x, axes=list(axes), keepdims=1)
        return self.op("ReduceMean", x, self.numbers(axes), keepdims=1)

    def centred(self, x: NodeEntry, axes: Sequence[int]) -> tuple[NodeEntry, NodeEntry, NodeEntry]:
        """What is left without the mean, its mean square, and the mean."""
        mean = self.mean(x, axes)
        rest = self.op("Sub", x, mean)
        return rest, self.mean(self.op("Mul", rest, rest), axes), mean

    def done(self, *outputs: NodeEntry) -> Graph:
        return Graph(list(outputs), self.read, "parts", self.graph.opsets)


def _type(entry: NodeEntry | None) -> TensorType | None:
    made = entry.type if entry is not None else None
    return made if isinstance(made, TensorType) else None


def _is_half(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16")


def _widened(parts: _Parts, dtype: str) -> NodeEntry:
    """The first input, of more digits where it has few."""
    x = parts.input(0)
    assert x is not None
    return parts.op("Cast", x, to=SINGLE) if _is_half(dtype) else x


def _layer(parts: _Parts) -> Graph | None:
    node, made = parts.node, _type(parts.node.inputs[0])
    if made is None or made.rank is None or int(node.attrs.get("stash_type", SINGLE)) != SINGLE:
        return None
    axes = range(int(node.attrs.get("axis", -1)) % made.rank, made.rank)
    wide = _widened(parts, made.dtype)
    rest, square, mean = parts.centred(wide, axes)
    dtype = "float32" if _is_half(made.dtype) else made.dtype
    epsilon = parts.numbers(node.attrs.get("epsilon", 1e-5), dtype)
    inverse = parts.op("Reciprocal", parts.op("Sqrt", parts.op("Add", square, epsilon)))
    y = parts.op("Mul", rest, inverse)
    y = parts.op("CastLike", y, parts.input(0)) if _is_half(made.dtype) else y  # type: ignore[arg-type]
    scale, bias = parts.input(1), parts.input(2)
    y = y if scale is None else parts.op("Mul", y, scale)
    y = y if bias is None else parts.op("Add", y, bias)
    stashed = (mean, inverse) if dtype == "float32" else [parts.op("Cast", value, to=SINGLE) for value in (mean, inverse)]
    return parts.done(*(y, *stashed)[: len(node.output_names)])


def _group(parts: _Parts) -> Graph | None:
    node, made = parts.node, _type(parts.node.inputs[0])
    scale, bias = parts.input(1), parts.input(2)
    if made is None or made.rank is None or scale is None or bias is None or int(node.attrs.get("stash_type", SINGLE)) != SINGLE:
        return None
    x = _widened(parts, made.dtype)
    dtype = "float32" if _is_half(made.dtype) else made.dtype
    groups = int(node.attrs["num_groups"])
    rest, square, _ = parts.centred(parts.op("Reshape", x, parts.numbers([0, groups, -1])), [2])
    epsilon = parts.numbers(node.attrs.get("epsilon", 1e-5), dtype)
    y = parts.op("Div", rest, parts.op("Sqrt", parts.op("Add", square, epsilon)))
    y = parts.op("CastLike", y, scale) if _is_half(made.dtype) else y
    whole, column = parts.op("Shape", x), parts.numbers([-1, *[1] * (made.rank - 2)])
    if parts.version < 21:
        column = parts.numbers([-1, 1])
    else:
        y = parts.op("Reshape", y, whole)
    y = parts.op("Mul", y, parts.op("Reshape", scale, column))
    y = parts.op("Add", y, parts.op("Reshape", bias, column))
    return parts.done(y if parts.version >= 21 else parts.op("Reshape", y, whole))


def _mean_variance(parts: _Parts) -> Graph | None:
    made, x = _type(parts.node.inputs[0]), parts.input(0)
    if made is None or x is None or _is_half(made.dtype):
        return None
    rest, square, _ = parts.centred(x, parts.node.attrs.get("axes", (0, 2, 3)))
    return parts.done(parts.op("Div", rest, parts.op("Add", parts.op("Sqrt", square), parts.numbers(1e-9, made.dtype))))


def _resize(parts: _Parts) -> Graph | None:
    """One dimension after the other: each result the sum of what it sees, times its shares."""
    made, y = _type(parts.node.inputs[0]), parts.input(0)
    nearest = parts.node.attrs.get("mode", "nearest") == "nearest"
    if made is None or made.rank is None or y is None or not (nearest or made.dtype in ("float32", "float64")):
        return None
    for axis in range(made.rank):
        shares = matrix(parts.node, parts.graph, axis)
        if shares is None:
            return None
        if not np.array_equal(shares, np.eye(shares.shape[1])):
            taps = np.argsort(shares == 0, axis=1, kind="stable")[:, : int(np.count_nonzero(shares, axis=1).max())]
            if taps.shape[1] > TAPS:
                return None
            y = _mixed(parts, y, made.rank - axis, taps, np.take_along_axis(shares, taps, 1).astype(numpy_dtype(made.dtype)))
    return parts.done(y if y.node.is_op else parts.op("Identity", y))


def _mixed(parts: _Parts, x: NodeEntry, dims: int, places: np.ndarray, shares: np.ndarray) -> NodeEntry:
    """What each result sees along the first of the last dimensions; one place alone is taken as it is."""
    seen = [parts.op("Gather", x, parts.numbers(column), axis=-dims) for column in places.T]
    if len(seen) == 1 and (shares == 1).all():
        return seen[0]
    along = [-1, *[1] * (dims - 1)]
    first, *others = [parts.op("Mul", s, parts.numbers(w.reshape(along), w.dtype)) for s, w in zip(seen, shares.T, strict=True)]
    for other in others:
        first = parts.op("Add", first, other)
    return first


def _unreduced(parts: _Parts) -> Graph | None:
    """A reduction along no dimension: each number's own part of it is left."""
    x, how = parts.input(0), str(parts.node.op)
    if x is None or not reduces_nothing(parts.node):
        return None
    if how == "ReduceSumSquare":
        return parts.done(parts.op("Mul", x, x))
    return parts.done(parts.op("Log" if how == "ReduceLogSum" else "Abs", x))


_PARTS: dict[str, Callable[[_Parts], Graph | None]] = {
    "LayerNormalization": _layer, "GroupNormalization": _group, "MeanVarianceNormalization": _mean_variance,
    "Resize": _resize, "Upsample": _resize, **dict.fromkeys(UNREDUCED, _unreduced),
}  # fmt: skip
