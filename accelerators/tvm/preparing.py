"""What happens to a subgraph before it is asked about or compiled: shapes and constants are worked out, norms folded."""

from __future__ import annotations

from graph.graph import Graph
from graph.inline import inline_calls
from passes import apply_pass

PASSES = (
    "InferShape",
    "FoldConstants",
    "SimplifyIdentities",
    "FoldBatchNorm",
    "MergeCommon",
    "EliminateDead",
    "InferShape",
)


def prepare(graph: Graph, supports: object = None) -> Graph:
    """The graph without calls, with what its constants and shapes settle settled."""
    return apply_pass(inline_calls(graph), PASSES, verify=False, InferShape={"strict": False})
