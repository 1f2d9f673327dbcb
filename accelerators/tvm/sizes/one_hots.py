"""OneHot as a comparison with the numbers of the classes, for indices of any size too."""

from __future__ import annotations

from functools import partial

import numpy as np

from partita.accelerators.tvm.sizes.in_parts import whole
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

INT64 = 7
"""ONNX's number for the element type."""

LEAST_OPSET = 16
"""Since this version of ONNX all ops mean what they are used for here."""


def is_one_hot(node: Node, version: int) -> bool:
    """True for a OneHot of a static number of classes that has its two values."""
    depth = node.inputs[1] if node.op == "OneHot" and not node.domain and version >= LEAST_OPSET else None
    values = node.inputs[2].type if depth is not None and node.inputs[2] is not None else None
    count = values.shape[0] if isinstance(values, TensorType) and values.shape else None
    return depth is not None and depth.node.value is not None and (count == 2 or not isinstance(count, int))


def one_hot_parts(node: Node, rank: int, graph: Graph) -> Graph:
    """The body of one, whose indices have so many dimensions. Negative ones count from the end; those outside are of no class."""
    computed = partial(op, opset=graph.opsets.get("", 1))
    indices, depth, values = (_given(entry, f"x{i}") for i, entry in enumerate(node.inputs))
    assert depth.node.value is not None
    count, axis = int(depth.node.value.item()), int(node.attrs.get("axis", -1)) % (rank + 1)
    spread = computed("Unsqueeze", computed("Cast", indices, to=INT64), whole([axis]))
    classes = constant(np.arange(count, dtype=np.int64).reshape(-1, *[1] * (rank - axis)))
    counted = computed("Where", computed("Less", spread, whole(0)), computed("Add", spread, whole(count)), spread)
    off, on = (
        computed("Gather", values, whole(i)) if values.node.value is None else constant(values.node.value[i]) for i in (0, 1)
    )
    hot = computed("Where", computed("Equal", counted, classes), on, off)
    return Graph([hot], [entry.node for entry in (indices, values) if entry.node.value is None], "one_hot", graph.opsets)


def _given(entry: NodeEntry | None, name: str) -> NodeEntry:
    """The body's own of an input: the constant, or an input of the body."""
    assert entry is not None
    return constant(entry.node.value)[0] if entry.node.value is not None else variable(name, type=entry.type)[0]
