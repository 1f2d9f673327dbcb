"""One body for calls with inputs of several types: its types are those that hold for all calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.types import SparseTensorType, TensorType, Type


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
            types = tuple(
                [
                    _common(t, [peer.output_types[i] for peer in peers[node]])
                    for i, t in enumerate(node.output_types)
                ]
            )
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


def _common(known: Type | None, others: Sequence[Type | None]) -> Type | None:
    """The most specific type that all these types agree on."""
    for other in others:
        if known != other:
            known = _common_of_two(known, other)
    return known


def _common_of_two(a: Type | None, b: Type | None) -> Type | None:
    if type(a) is not type(b) or not isinstance(a, (TensorType, SparseTensorType)):
        return None
    assert isinstance(b, (TensorType, SparseTensorType))
    if a.dtype != b.dtype:
        return None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return attrs.evolve(a, shape=None)
    return attrs.evolve(a, shape=tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)))
