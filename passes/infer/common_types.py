"""One body for calls with inputs of several types: its types are those that hold for all calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.passes.infer.sequences import common


def with_bodies(g: Graph, variants: Mapping[Graph, Sequence[Graph]]) -> Graph:
    """The graph with typed bodies of calls: one per body, merged from its variants, which differ in types only."""
    done: dict[Graph, Graph] = {}

    def settled(body: Graph) -> Graph:
        if body not in done:
            typed = variants.get(body) or [body]
            done[body] = through(typed[0], typed[1:])
        return done[body]

    def through(base: Graph, others: Sequence[Graph]) -> Graph:
        peers = {node: [other.nodes[i] for other in others] for i, node in enumerate(base.nodes)}

        def visit(node: Node, rewriter: Rewriter) -> None:
            rebuilt = rewriter.rebuilt(node)
            pairs = enumerate(node.output_types)
            types = tuple([common((known, *[peer.output_types[i] for peer in peers[node]])) for i, known in pairs])
            if types != node.output_types:
                rebuilt = rebuilt.evolve(output_types=types)
            if node.subgraph is not None:
                body = settled(node.subgraph)
                rebuilt = rebuilt if body is node.subgraph else rebuilt.evolve(subgraph=body)
            elif node.bodies:
                inner = {id(body): [peer.attrs[key] for peer in peers[node]] for key, body in node.bodies}
                rebuilt = map_bodies(rebuilt, lambda body: through(body, inner[id(body)]))
            rewriter.keep(node, rebuilt)

        return rewrite(base, visit)

    return through(g, ())
