"""A graph of a single op and its constants, with graph inputs in place of its other operands."""

from __future__ import annotations

from partita.graph.build import variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.single_node import graph_of_node


def alone(node: Node, graph: Graph, *, constants: bool = True) -> Graph:
    """The graph of the node alone; its constants are kept, unless `constants` is False, and become inputs then."""

    def stand_in(entry: NodeEntry, number: int) -> NodeEntry:
        is_kept = constants and entry.node.value is not None
        return entry if is_kept else variable(f"x{number}", type=entry.type)[0]

    return graph_of_node(node, graph.opsets, stand_in)
