"""The opset that onnxruntime's own ops need to be taken apart."""

from __future__ import annotations

from graph.errors import PartitaError
from graph.graph import Graph
from graph.microsoft import is_known, needed_opset
from passes import apply_pass


def new_enough(graph: Graph) -> Graph:
    """The graph in an opset in which the bodies of its ops of onnxruntime's can be written; itself if there is no conversion."""
    needed = max((needed_opset(node) for node in graph.nodes if is_known(node)), default=0)
    if needed <= graph.opsets.get("", 1):
        return graph
    try:
        return apply_pass(graph, "ConvertOpset", opset=needed, verify=False)
    except PartitaError:
        return graph
