"""Names of nodes: names of op nodes are unique in a graph and all graphs inside it."""

from __future__ import annotations

from collections.abc import Container

from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite


def names_in(graph: Graph) -> set[str]:
    """The names of all nodes, and of the ops in all bodies."""
    _, *bodies = graphs_in(graph)
    names = {node.name for node in graph.nodes}
    names |= op_names_in(*bodies)
    return names


def op_names_in(*graphs: Graph) -> set[str]:
    """The names of the ops in these graphs. Linear."""
    return {node.name for graph in graphs for node in graph.nodes if node.op is not None and node.value is None}


def with_own_names(graph: Graph, own: Container[str], taken: set[str]) -> Graph:
    """The graph with ops renamed whose names are taken, except those in `own`."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node.is_op:
            rebuilt = map_bodies(rebuilt, lambda body: with_own_names(body, own, taken))
            if node.name not in own:
                name = unique(node.name, taken)
                rebuilt = rebuilt if name == node.name else rebuilt.evolve(name=name)
        rewriter.keep(node, rebuilt)

    return rewrite(graph, visit)
