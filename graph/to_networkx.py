"""The graph as a networkx graph, for its algorithms and drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partita.graph.errors import MissingDependency
from partita.graph.graph import Graph

if TYPE_CHECKING:
    import networkx


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """Nodes by name with `op` and `node`; one edge per value read, with the value's name, and per control dependency."""
    try:
        import networkx
    except ImportError as error:
        raise MissingDependency("networkx", None, "a graph of networkx's") from error

    networkx_graph: networkx.MultiDiGraph = networkx.MultiDiGraph(name=graph.name)
    for node in graph.nodes:
        networkx_graph.add_node(node.name, op=node.op, node=node)
    for node in graph.nodes:
        for entry in node.reads:
            networkx_graph.add_edge(entry.node.name, node.name, value=entry.name, type=entry.type)
        for source in node.after:
            networkx_graph.add_edge(source.name, node.name, value=None, type=None)
    return networkx_graph
