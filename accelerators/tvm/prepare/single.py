"""One op by itself: a graph of the node, the constants that it reads, and inputs for everything else."""

from __future__ import annotations

from partita.graph.build import variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.single_node import graph_of_node


def alone(node: Node, graph: Graph, *, constants: bool = True) -> Graph:
    """The node between inputs of its inputs' types; constants stay what they are, or become inputs too."""

    def stand_in(entry: NodeEntry, number: int) -> NodeEntry:
        is_kept = constants and entry.node.value is not None
        return entry if is_kept else variable(f"x{number}", type=entry.type)[0]

    return graph_of_node(node, graph.opsets, stand_in)
