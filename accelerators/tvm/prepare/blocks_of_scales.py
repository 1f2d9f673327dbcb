"""QuantizeLinear and DequantizeLinear whose scales stand for blocks along a dimension: each position gets its block's scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType, numpy_dtype

ONNX_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5}
"""ONNX's numbers for the element types that are taken."""


def has_blocks(node: Node) -> bool:
    """Has each block of positions along a dimension a scale of its own?"""
    return node.op in ops("quantizing") and not node.domain and int(node.attrs.get("block_size", 0)) > 0


def parts_of_blocks(node: Node, graph: Graph) -> Graph | None:
    """The op's body, its inputs named x0, x1, … after the node's; None for other numbers than float32 and integers of one or two
    bytes, and where the size of the dimension is not known."""
    given = [None if entry is None else variable(f"x{i}", type=entry.type) for i, entry in enumerate(node.inputs)]
    data, result = (_known(entry) for entry in (node.inputs[0], node[0]))
    if data is None or result is None or _known(node.inputs[1]) is None or data.shape is None:
        return None
    axis, block = int(node.attrs.get("axis", 1)) % max(len(data.shape), 1), int(node.attrs["block_size"])
    size = data.shape[axis]
    if not isinstance(size, int) or {data.dtype, result.dtype} - set(ONNX_TYPES) or _dtype(node.inputs[1]) != "float32":
        return None

    def computed(kind: str, *read: NodeEntry, **attributes: Any) -> NodeEntry:
        return op(kind, *read, opset=graph.opsets.get("", 1), **attributes)[0]

    def spread(i: int) -> NodeEntry | None:
        """An input with a number for each position, as float32."""
        stated = given[i] if i < len(given) else None
        if stated is None:
            return None
        whole = computed("Gather", stated[0], constant(np.arange(size, dtype=np.int64) // block)[0], axis=axis)
        return whole if i == 1 else computed("Cast", whole, to=ONNX_TYPES["float32"])

    source, scale, point = given[0], spread(1), spread(2)
    assert source is not None and scale is not None
    if node.op == "DequantizeLinear":
        number = computed("Cast", source[0], to=ONNX_TYPES["float32"])
        whole = computed("Mul", number if point is None else computed("Sub", number, point), scale)
    else:
        limits = np.iinfo(numpy_dtype(result.dtype))
        bounds = [constant(np.float32(bound))[0] for bound in (limits.min, limits.max)]
        rounded = computed("Round", computed("Div", source[0], scale))
        moved = rounded if point is None else computed("Add", rounded, point)
        whole = computed("Cast", computed("Clip", moved, *bounds), to=ONNX_TYPES[result.dtype])
    return Graph([whole], [stated for stated in given if stated is not None], "parts", graph.opsets)


def _known(entry: NodeEntry | None) -> TensorType | None:
    return entry.type if entry is not None and isinstance(entry.type, TensorType) else None


def _dtype(entry: NodeEntry | None) -> str:
    known = _known(entry)
    return "" if known is None else str(known.dtype)
