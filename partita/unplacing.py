"""The original graph of a partitioned one."""

from __future__ import annotations

from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.passes import apply_pass

COMPILED = "partita.package"
"""Domain of the op that stands for a subgraph in a file exported without its bodies."""


def unplaced(graph: Graph, remedy: str = "Give the model itself") -> Graph:
    """The graph before partitioning: calls are inlined and affinities removed."""
    inlined = apply_pass(graph, "InlineSubgraphs")
    if any(node.domain == COMPILED for node in inlined.nodes):
        raise ReadError("it holds machine code alone, and not what that computes", remedy=remedy)

    def visit(node: Node, rewriter: Rewriter) -> None:
        changed = map_bodies(rewriter.rebuilt(node), unplaced)
        if changed.affinity is not None:
            changed = changed.evolve()
            changed.affinity = None
        rewriter.keep(node, changed)

    return rewrite(inlined, visit)
