"""Raises the opset for the decompositions of onnxruntime's own ops, and for old Upsamples."""

from __future__ import annotations

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.microsoft import is_known, needed_opset
from partita.graph.node import Node
from partita.graph.numerics.resize import RESIZES_SAY_HOW
from partita.passes import apply_pass
from partita.passes.registry import REQUESTS, register_pass


@register_pass("RaiseOpset", keeps=REQUESTS, family="tvm")
def raise_opset(graph: Graph) -> Graph:
    """The graph in the opset that its Upsamples and the decompositions of its com.microsoft ops need; unchanged if it cannot be
    converted."""
    needed = max((_needed(node) for node in graph.nodes), default=0)
    if needed <= graph.opsets.get("", 1):
        return graph
    try:
        return apply_pass(graph, "ConvertOpset", opset=needed, verify=False)
    except PartitaError:
        return graph


def _needed(node: Node) -> int:
    if node.op == "Upsample" and not node.domain and len(node.inputs) < 2:
        return RESIZES_SAY_HOW
    return needed_opset(node) if is_known(node) else 0
