"""Application of a change to a graph and all graphs inside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from partita.graph.graph import Graph
from partita.graph.node import Body, Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite


def everywhere(g: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Applies `change` to every body, innermost first, and to the graph itself; a shared body is changed once."""
    done: dict[int, Graph] = {}

    def once(graph: Graph) -> Graph:
        if id(graph) not in done:
            done[id(graph)] = change(rewrite(graph, into_bodies) if has_bodies(graph) else graph)
        return done[id(graph)]

    def into_bodies(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node, map_bodies(rewriter.rebuilt(node), once))

    changed = once(g)
    done.clear()  # The two functions form a reference cycle, which keeps this alive until garbage collection.
    return changed


def has_bodies(g: Graph) -> bool:
    """True if there is a graph inside this one."""
    return any(node.subgraph is not None or holds_body(node) for node in g.nodes)


def holds_body(node: Node) -> bool:
    """True if the node has a body among its attributes, as If, Loop and Scan have."""
    return bool(node.attrs) and any(isinstance(value, Body) for value in node.attrs.values())


def control_targets(g: Graph) -> frozenset[Node]:
    """The nodes with control dependents, which must not be changed."""
    return frozenset(target for node in g.nodes if node.after for target in node.after)


def without_captures(node: Node, gone: Mapping[int, Node | None]) -> Node:
    """The node without the captures with these indices.

    In its bodies each is replaced by the given constant; None is for a capture that nothing reads."""
    count = len(node.captures)

    def narrowed(body: Graph) -> Graph:
        bound = body.inputs[len(body.inputs) - count :]
        stand_ins = {bound[i]: constant for i, constant in gone.items()}
        rewriter = Rewriter(body)
        for inner in body.nodes:
            if inner not in stand_ins:
                rewriter.keep(inner)
            elif (stand_in := stand_ins[inner]) is not None:
                stand_in = stand_in.evolve(
                    name=inner.name, output_names=inner.output_names, place=inner.place, metadata={}
                )
                rewriter.replace(inner[0], stand_in[0])
        return rewriter.finish(inputs=[variable for variable in body.inputs if variable not in stand_ins])

    captures = tuple(entry for i, entry in enumerate(node.captures) if i not in gone)
    return map_bodies(node, narrowed).evolve(captures=captures)
