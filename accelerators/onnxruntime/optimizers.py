"""onnxruntime's graph optimizers that would change results."""

from __future__ import annotations

from partita.accelerators.onnxruntime.session_options import WRONG
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType

PROPAGATION = "QDQPropagationTransformer"
"""Adds another quantization after each op that moves dequantized values: to uint8 if there is no zero point, whatever the
original type, or to int32, which is invalid."""

_DROPPED = ops("forwarding") | {"Cast"}
"""The ops that another optimizer may have removed before."""


def wrong_optimizers(graph: Graph) -> list[str]:
    """The optimizers to disable for this graph. Linear."""
    return [*WRONG, PROPAGATION] if any(_breaks(inner) for inner in graphs_in(graph)) else [*WRONG]


def _breaks(graph: Graph) -> bool:
    """True if dequantized values are moved that the added quantization would not restore."""
    waiting: set[NodeEntry] = set()
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and not _comes_back(node):
            waiting.add(node[0])
        elif waiting.intersection(node.reads):
            if node.op in ops("propagated"):
                return True
            if node.op in _DROPPED:
                waiting.add(node[0])
    return False


def _comes_back(node: Node) -> bool:
    """True if quantizing with the same inputs, and no attribute, restores the dequantized values."""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    dtype = data_type.dtype if isinstance(data_type, TensorType) else None
    return dtype == "uint8" or (dtype != "int32" and len(node.inputs) > 2 and node.inputs[2] is not None)
