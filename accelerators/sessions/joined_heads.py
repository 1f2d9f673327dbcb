"""Decomposes onnxruntime's own attention with a cache, so that the join of the cache with new positions is visible.

GroupQueryAttention takes the number of valid positions of each sequence. In a session all are valid, so new positions follow all
earlier ones. If that did not hold, the attention would not be recognised, since its mask depends on the number."""

from __future__ import annotations

from partita.graph.body_builder import BodyBuilder, body_call
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.microsoft import DOMAIN, NoBody, body_of
from partita.graph.microsoft.grouped import appended
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite

PAST = {"GroupQueryAttention": 3, "MultiHeadAttention": 6}
"""For each op the index of the input with earlier keys."""


def with_joined_caches(graph: Graph) -> Graph:
    """The graph with each of these ops that has a cache decomposed. Linear."""
    if not any(_has_cache(node) for node in graph.nodes):
        return graph

    def visit(node: Node, rewriter: Rewriter) -> None:
        body = _body(node, graph) if _has_cache(node) else None
        if body is None:
            rewriter.keep(node)
            return
        rewriter.keep(node, rewriter.rebuilt(body_call(node, body, "Joined")))

    return inline_calls(rewrite(graph, visit))


def _has_cache(node: Node) -> bool:
    past = PAST.get(str(node.op)) if node.domain == DOMAIN else None
    return past is not None and past < len(node.inputs) and node.inputs[past] is not None


def _body(node: Node, graph: Graph) -> Graph | None:
    builder = BodyBuilder(node, graph.opsets)
    try:
        if node.op == "GroupQueryAttention":
            return appended(builder)
        return body_of(node, builder.types, builder.values, builder.version).evolve(opsets=graph.opsets)
    except NoBody:
        return None
