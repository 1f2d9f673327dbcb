"""Resizes whose positions are known only when the model is called, as sums of what the host says is read.

Whatever its mode, a resize is linear along each dimension: each result is a sum of few positions, times their shares. The host
works these out once for each size, by ONNX's own op on unit vectors, and the model gathers them. A dimension that keeps its size
is left as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graph.build import CALL_DOMAIN, constant, op, variable
from graph.graph import Graph
from graph.inline import inline_calls
from graph.node import Node, NodeEntry
from graph.rewrite import Rewriter, rewrite
from graph.types import TensorType
from passes.infer import infer

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""For each mode, how many positions along a dimension a result is made of."""

GATHERED = "GatheredResize"
"""The op of a call that stands for a resize until it is inlined."""

FLOAT32 = 1
"""ONNX's number for the element type."""

LEAST_OPSET = 18
"""Since this version of ONNX all ops mean what they are used for here."""


def can_gather(node: Node, version: int) -> bool:
    """Is it a resize of all dimensions whose results are sums of few positions?"""
    attributes, (_, _, scales, sizes) = node.attrs, (*node.inputs, None, None, None, None)[:4]
    if node.op != "Resize" or node.domain or version < LEAST_OPSET or (scales is None) == (sizes is None):
        return False
    is_plain = attributes.get("keep_aspect_ratio_policy", "stretch") == "stretch" and not attributes.get("antialias", 0)
    is_cropped = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    is_known = scales is None or scales.node.value is not None
    kind = node.output_types[0]
    is_float = isinstance(kind, TensorType) and kind.dtype == "float32"
    return is_plain and not is_cropped and is_known and is_float and attributes.get("axes") is None


def gathered(graph: Graph, resized: Mapping[Node, Sequence[int]]) -> Graph:
    """The graph with these resizes made of gathers, each along the dimensions whose size it changes. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node in resized:
            body = _parts(node, resized[node], graph)
            read = tuple([entry for entry in rebuilt.inputs if entry is not None and entry.node.value is None])
            rebuilt = rebuilt.evolve(op=GATHERED, domain=CALL_DOMAIN, inputs=read, attrs={}, subgraph=body)
        rewriter.keep(node, rebuilt)

    return infer(inline_calls(rewrite(graph, visit), lambda call: call.op == GATHERED), strict=False)


def _parts(node: Node, axes: Sequence[int], graph: Graph) -> Graph:
    """The body of one resize; its inputs are those of the node's that are no constants."""
    version = graph.opsets.get("", 1)

    def given(i: int) -> NodeEntry | None:
        entry = node.inputs[i] if i < len(node.inputs) else None
        if entry is None:
            return None
        return constant(entry.node.value)[0] if entry.node.value is not None else variable(f"x{i}", type=entry.type)[0]

    x, scales, sizes = given(0), given(2), given(3)
    assert x is not None and isinstance(x.type, TensorType) and x.type.rank is not None
    y = x
    for axis in axes:
        matrix = _matrix(node, x, axis, scales, sizes, version)
        y = _mixed(y, matrix, axis, x.type.rank, TAPS[str(node.attrs.get("mode", "nearest"))], version)
    inputs = [entry.node for entry in (x, sizes) if entry is not None and entry.node.value is None]
    return Graph([y], inputs, "gathered", graph.opsets)


def _matrix(
    node: Node, x: NodeEntry, axis: int, scales: NodeEntry | None, sizes: NodeEntry | None, version: int
) -> NodeEntry:
    """The shares [positions made, positions read] of one dimension: the resized unit vectors."""
    count = op("Shape", x, start=axis, end=axis + 1, opset=version)
    square = op("ConstantOfShape", op("Concat", count, count, axis=0, opset=version), opset=version)
    unit = op("EyeLike", square, dtype=FLOAT32, opset=version)
    if sizes is not None:
        wanted = op("Concat", op("Gather", sizes, _whole([axis]), opset=version), count, axis=0, opset=version)
        return op("Resize", unit, None, None, wanted, opset=version, **node.attrs)[0]
    assert scales is not None and scales.node.value is not None
    scale = np.array([scales.node.value[axis], 1], scales.node.value.dtype)
    return op("Resize", unit, None, constant(scale), opset=version, **node.attrs)[0]


def _mixed(y: NodeEntry, matrix: NodeEntry, axis: int, rank: int, taps: int, version: int) -> NodeEntry:
    """The value's positions along a dimension, each times its share, added up. There may be fewer positions than taps: positions
    without a share are those of the largest one."""
    columns = op("Shape", matrix, start=1, end=2, opset=version)
    room = op("Concat", op("Shape", matrix, start=0, end=1, opset=version), _whole([taps]), axis=0, opset=version)
    empty = op("ConstantOfShape", room, value=np.zeros(1, np.float32), opset=version)
    filled = op("Concat", matrix, empty, axis=1, opset=version)
    positions = op("TopK", op("Abs", filled, opset=version), _whole([taps]), axis=1, n_outputs=2, opset=version)[1]
    shares = op("GatherElements", filled, positions, axis=1, opset=version)
    is_none = op("Equal", shares, constant(np.float32(0)), opset=version)
    positions = op("Where", is_none, op("Gather", positions, _whole([0]), axis=1, opset=version), positions, opset=version)[0]
    positions = op("Min", positions, op("Sub", columns, _whole([1]), opset=version), opset=version)[0]
    if taps == 2:  # Half a position twice is the position, infinite or not; one that is infinite has no share of zero.
        half = op("Mul", op("Gather", shares, _whole([0]), axis=1, opset=version), constant(np.float32(0.5)), opset=version)
        is_one = op("Gather", is_none, _whole([1]), axis=1, opset=version)
        shares = op("Where", is_one, half, shares, opset=version)
    total = None
    for tap in range(taps):
        part = op("Gather", y, op("Gather", positions, _whole(tap), axis=1, opset=version), axis=axis, opset=version)
        if taps > 1:
            share = op("Gather", shares, _whole(tap), axis=1, opset=version)
            column = op("Reshape", share, _whole([-1, *[1] * (rank - 1 - axis)]), opset=version)
            part = op("Mul", part, column, opset=version)
        total = part if total is None else op("Add", total, part, opset=version)
    assert total is not None
    return total[0]


def _whole(numbers: int | list[int]) -> Node:
    return constant(np.array(numbers, np.int64))
