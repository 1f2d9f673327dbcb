"""ONNX's QLinear ops as what they mean: numbers for the integers, the op, and integers again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry

ALONG_AN_AXIS = 13
"""Since this version a scale may differ from channel to channel."""


def linear_parts(node: Node, graph: Graph) -> Graph | None:
    """The body of a QLinearConv or QLinearMatMul, its inputs named x0, x1, … after the node's; None where scales differ along
    another axis than the weight's last or first."""
    version = graph.opsets.get("", 1)
    inputs = [None if e is None else variable(f"x{i}", type=e.type) for i, e in enumerate(node.inputs)]
    given: list[NodeEntry | None] = [None if node is None else node[0] for node in inputs]
    x, x_scale, x_point, w, w_scale, w_point, scale, point, bias = (*given, None)[:9]
    is_conv = node.op == "QLinearConv"
    if x is None or w is None or not all(_is_single(entry) for entry in (x_scale, x_point, scale, point)):
        return None
    along: dict[str, Any] = {} if _is_single(w_scale) and _is_single(w_point) else {"axis": 0 if is_conv else -1}
    if bias is not None and any(entry is None or entry.node.value is None for entry in (node.inputs[1], node.inputs[4])):
        return None
    if along and (version < ALONG_AN_AXIS or len(getattr(w_scale.type, "shape", ())) != 1):  # type: ignore[union-attr]
        return None

    def computed(kind: str, *read: NodeEntry | None, **attributes: Any) -> NodeEntry:
        return op(kind, *read, opset=version, **attributes)[0]

    def single(entry: NodeEntry | None) -> NodeEntry:
        assert entry is not None
        known = node.inputs[given.index(entry)]
        if known is not None and known.node.value is not None:
            return constant(known.node.value.reshape(()))[0]
        return computed("Reshape", entry, constant(np.array([], np.int64))[0])

    def shared(entry: NodeEntry | None) -> NodeEntry | None:
        return entry if along else single(entry)

    left = computed("DequantizeLinear", x, single(x_scale), single(x_point))
    right = computed("DequantizeLinear", w, shared(w_scale), shared(w_point), **along)
    operands = [left, right]
    if is_conv and bias is not None:
        operands.append(computed("DequantizeLinear", bias, _product(node.inputs[1], node.inputs[4], along), **along))
    result = computed("Conv", *operands, **node.attrs) if is_conv else computed("MatMul", *operands)
    whole = computed("QuantizeLinear", result, single(scale), single(point))
    return Graph([whole], [variable_ for variable_ in inputs if variable_ is not None], "parts", graph.opsets)


def _product(left: NodeEntry | None, right: NodeEntry | None, along: Mapping[str, Any]) -> NodeEntry:
    """The scale of a bias: that of the image times that of the weights."""
    assert left is not None and left.node.value is not None and right is not None and right.node.value is not None
    scale = left.node.value.reshape(()) * (right.node.value if along else right.node.value.reshape(()))
    return constant(np.asarray(scale, np.float32))[0]


def _is_single(entry: NodeEntry | None) -> bool:
    shape = getattr(entry.type, "shape", None) if entry is not None else None
    return shape is not None and all(size == 1 for size in shape)
