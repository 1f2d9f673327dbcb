"""ConvInteger and MatMulInteger that no kernel takes as they are, as products that have one. All sums are of 32 bits, as ONNX has
them, so that both sides agree bit for bit.

A weight whose distances to its zero point are no signed bytes is a signed byte plus one number for each result. The product by
that number is the number times the sum of what is read. A product of two values whose zero points are known only later is that
of their integers, less what the zero points add to it. A ConvInteger by weights that are values, or of other things than images,
multiplies doubles, which hold every sum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from partita.accelerators.tvm.bodies.quantized import around_zero
from partita.accelerators.tvm.kernels.shared.shapes import any_shape
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import Array

INT32, DOUBLE = 6, 11
"""ONNX's numbers for the element types."""

LARGEST_PRODUCT = 255 * 255
"""The largest product of two bytes' distances to their zero points."""

LARGEST_SUM = 2**31 - 1
"""The largest sum that 32 bits hold."""

REFUSAL = "kernels of whole products take signed bytes around zero, and this is taken apart first"

REDUCES_BY_INPUT = 13
"""Since this version ReduceSum takes its axes as an input."""


def is_far(node: Node) -> bool:
    """Has the op constant weights whose distances to their zero point are no signed bytes?"""
    weight, point = _weight_of(node), _point_of(node)
    if weight is None or point is None:
        return False
    return around_zero(weight, point.astype(np.int16).reshape(_along_results(node, point, weight))) is None


def is_pair_of_unknown_points(node: Node) -> bool:
    """Is it a MatMulInteger of two values with a zero point that is computed?"""
    if node.op != "MatMulInteger" or node.domain:
        return False
    if any(entry is None or entry.node.value is not None for entry in node.inputs[:2]):
        return False
    points = [entry for entry in node.inputs[2:] if entry is not None]
    return any(entry.node.value is None for entry in points) and all(_is_single(entry) for entry in points)


def whole_parts(node: Node, graph: Graph) -> Graph | None:
    """The op's body, its inputs named x0, x1, … after the node's; None where it needs none or has none."""
    writing = _Writing(node, graph)
    if is_pair_of_unknown_points(node):
        return writing.pair() if all(any_shape(entry) is not None for entry in node.inputs[:2]) else None
    if is_far(node):
        return writing.far()
    return writing.doubles() if node.op == "ConvInteger" else None


class _Writing:
    """A body that is being written."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph, self.version = node, graph, graph.opsets.get("", 1)
        self.given = [None if entry is None else variable(f"x{i}", type=entry.type) for i, entry in enumerate(node.inputs)]

    def op(self, name: str, *inputs: NodeEntry | None, **attributes: Any) -> NodeEntry:
        return op(name, *inputs, opset=self.version, **attributes)[0]

    def input(self, i: int) -> NodeEntry | None:
        """The body's input of that number; None if the node has none."""
        node = self.given[i] if i < len(self.given) else None
        return None if node is None else node[0]

    def done(self, result: NodeEntry) -> Graph:
        return Graph([result], [node for node in self.given if node is not None], "parts", self.graph.opsets)

    def far(self) -> Graph:
        """The product by the weights as signed bytes, and that by ones, times what those bytes are too small."""
        weight, point = _weight_of(self.node), _point_of(self.node)
        assert weight is not None and point is not None
        moved = 128 if weight.dtype == np.uint8 else 0
        signed = (weight.astype(np.int16) - moved).astype(np.int8)
        missing = np.asarray(moved - point.astype(np.int32), np.int32).reshape(_along_channels(self.node, point))
        sums, ones = (self._product(array) for array in (signed, self._ones(weight)))
        return self.done(self.op("Add", sums, self.op("Mul", ones, constant(missing)[0])))

    def _ones(self, weight: Array) -> Array:
        """Weights that sum up a window: one result for all of the op's, or one for each, where these are in groups."""
        if self.node.op == "MatMulInteger":
            return np.ones((len(weight), 1), np.int8)
        results = 1 if int(self.node.attrs.get("group", 1)) == 1 else len(weight)
        return np.ones((results, *weight.shape[1:]), np.int8)

    def _product(self, weight: Array) -> NodeEntry:
        """The op by other weights, whose zero point is 0."""
        return self.op(str(self.node.op), self.input(0), constant(weight)[0], self.input(2), **self.node.attrs)

    def pair(self) -> Graph:
        """The product of the integers, less what the zero points add."""
        left, right = self.input(0), self.input(1)
        assert left is not None and right is not None
        depth = (any_shape(self.node.inputs[0]) or (1,))[-1]
        points = [self._number(2), self._number(3)]
        result = self.op("MatMulInteger", left, right)
        # A single row, and a single column, is a dimension that the product has not.
        rows, columns = (len(any_shape(entry) or ()) > 1 for entry in self.node.inputs[:2])
        sums = (right, -2 if columns else -1, rows and columns, points[0]), (left, -1, rows and columns, points[1])
        for value, axis, is_kept, point in sums:
            if point is not None:
                result = self.op("Sub", result, self.op("Mul", self._summed(value, axis, is_kept), point))
        if points[0] is not None and points[1] is not None:
            both = self.op("Mul", self.op("Mul", *points), constant(np.array(depth, np.int32))[0])
            result = self.op("Add", result, both)
        return self.done(result)

    def doubles(self) -> Graph | None:
        """The convolution of doubles; None where its sums might not fit 32 bits, and where sizes are not known."""
        image, weight = self.input(0), self.input(1)
        shape, results = any_shape(self.node.inputs[1]), any_shape(self.node[0])
        if image is None or weight is None or not shape or not results or math.prod(shape[1:]) * LARGEST_PRODUCT > LARGEST_SUM:
            return None
        points = [self.input(i) for i in (2, 3)]
        if any(entry is not None and len(any_shape(entry) or ()) > 1 for entry in points):
            return None
        along = constant(np.array([-1, *[1] * (len(shape) - 1)]))[0]
        around = None if points[1] is None else self.op("Reshape", points[1], along)
        sides = [self._as_double(value, point) for value, point in ((image, points[0]), (weight, around))]
        return self.done(self.op("Cast", self.op("Conv", *sides, **self.node.attrs), to=INT32))

    def _as_double(self, value: NodeEntry, point: NodeEntry | None) -> NodeEntry:
        """How far integers are from their zero point."""
        number = self.op("Cast", value, to=DOUBLE)
        return number if point is None else self.op("Sub", number, self.op("Cast", point, to=DOUBLE))

    def _number(self, i: int) -> NodeEntry | None:
        """A zero point as a single whole number; None where there is none."""
        point = self.input(i)
        if point is None:
            return None
        return self.op("Reshape", self.op("Cast", point, to=INT32), constant(np.zeros(0, np.int64))[0])

    def _summed(self, value: NodeEntry, axis: int, is_kept: bool) -> NodeEntry:
        """The sums of integers along a dimension, which is kept as one of size 1 or left out."""
        wide, keepdims = self.op("Cast", value, to=INT32), int(is_kept)
        if self.version < REDUCES_BY_INPUT:
            return self.op("ReduceSum", wide, axes=[axis], keepdims=keepdims)
        return self.op("ReduceSum", wide, constant(np.array([axis], np.int64))[0], keepdims=keepdims)


def _weight_of(node: Node) -> Array | None:
    """The constant weights of a whole product of a value; None for any other node."""
    if node.op not in ops("integer_product") or node.domain or node.inputs[0] is None or node.inputs[0].node.value is not None:
        return None
    array = None if node.inputs[1] is None else node.inputs[1].node.value
    fits = array is not None and array.size and (array.ndim == 2 if node.op == "MatMulInteger" else array.ndim > 2)
    return array if fits else None


def _point_of(node: Node) -> Array | None:
    """The zero point of the weights, if it is known: one number, or one for each result."""
    entry, weight = (*node.inputs, None, None)[3], _weight_of(node)
    if entry is None or weight is None:
        return np.zeros((), np.int32)
    point, results = entry.node.value, weight.shape[0 if node.op == "ConvInteger" else 1]
    return point if point is not None and point.ndim < 2 and point.size in (1, results) else None


def _along_results(node: Node, point: Array, weight: Array) -> tuple[int, ...]:
    """The shape in which the zero points are taken from the weights."""
    if point.size == 1:
        return ()
    return (-1, *[1] * (weight.ndim - 1)) if node.op == "ConvInteger" else (-1,)


def _along_channels(node: Node, point: Array) -> tuple[int, ...]:
    """The shape in which what belongs to each zero point is added to the results."""
    rank = len(any_shape(node[0]) or ())
    return () if point.size == 1 else (-1, *[1] * (rank - 2)) if node.op == "ConvInteger" else (-1,)


def _is_single(entry: NodeEntry) -> bool:
    return any_shape(entry) in ((), (1,))
