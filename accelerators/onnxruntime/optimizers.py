"""What onnxruntime does to a graph before it runs it, and would change its numbers."""

from __future__ import annotations

from partita.accelerators.onnxruntime.session_options import WRONG
from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

PROPAGATION = "QDQPropagationTransformer"
"""Quantizes again behind each op that only moves dequantized numbers: to uint8 where the zero point is left out, whatever was
dequantized, and to int32, which cannot be quantized to."""

_MOVED = frozenset("MaxPool Reshape Slice Squeeze Transpose Unsqueeze Flatten".split())
"""The ops behind which it does so, and one that it takes for a Reshape."""

_DROPPED = frozenset("Identity Dropout Cast".split())
"""The ops that another optimizer may have taken out before."""


def wrong_optimizers(graph: Graph) -> list[str]:
    """The optimizers to switch off for this graph. Linear."""
    return [*WRONG, PROPAGATION] if any(_breaks(inner) for inner in graphs_in(graph)) else [*WRONG]


def _breaks(graph: Graph) -> bool:
    """Would numbers that cannot be quantized again as they were be moved?"""
    waiting: set[NodeEntry] = set()
    for node in graph.nodes:
        if node.op == "DequantizeLinear" and not _comes_back(node):
            waiting.add(node[0])
        elif waiting.intersection(node.reads):
            if node.op in _MOVED:
                return True
            if node.op in _DROPPED:
                waiting.add(node[0])
    return False


def _comes_back(node: Node) -> bool:
    """Does quantizing with the same inputs, and no attribute, give back what was dequantized?"""
    data_type = node.inputs[0].type if node.inputs[0] is not None else None
    dtype = data_type.dtype if isinstance(data_type, TensorType) else None
    return dtype == "uint8" or (dtype != "int32" and len(node.inputs) > 2 and node.inputs[2] is not None)
