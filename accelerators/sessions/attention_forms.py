"""Rewrites attention to the forms that a decoder recognises."""

from __future__ import annotations

import numpy as np

from partita.graph.body_builder import BodyBuilder, body_call
from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.microsoft import DOMAIN, NoBody, body_of
from partita.graph.microsoft.grouped import appended
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType

HEADS = ("q_num_heads", "kv_num_heads", "kv_num_heads")
"""The attributes with the number of heads of the first three inputs."""


def with_heads(graph: Graph) -> Graph:
    """The graph with each Attention of rank 3 rewritten to one of rank 4 between reshapes and transposes. Linear."""
    if not any(_is_flat(node) for node in graph.nodes):
        return graph

    def visit(node: Node, rewriter: Rewriter) -> None:
        if _is_flat(node):
            _split(node, rewriter)
        else:
            rewriter.keep(node)

    return rewrite(graph, visit)


def _is_flat(node: Node) -> bool:
    kind = node.inputs[0].type if node.op == "Attention" and not node.domain and node.inputs[0] is not None else None
    return isinstance(kind, TensorType) and kind.rank == 3 and all(name in node.attrs for name in HEADS)


def _split(node: Node, rewriter: Rewriter) -> None:
    """Rewrites one Attention. Present keys and values have separate heads in both forms; the result's are packed again."""
    rebuilt = rewriter.rebuilt(node, output_types=(None, *node.output_types[1:]))
    read: list[NodeEntry | None] = list(rebuilt.inputs)
    for slot, name in enumerate(HEADS):
        entry = read[slot]
        assert entry is not None
        apart = rewriter.keep(op("Reshape", entry, rewriter.keep(constant(np.array([0, 0, int(node.attrs[name]), -1])))))
        read[slot] = rewriter.keep(op("Transpose", apart, perm=[0, 2, 1, 3]))[0]
    attrs = {name: value for name, value in rebuilt.attrs.items() if name not in HEADS}
    kept = rewriter.keep(node, rebuilt.evolve(inputs=tuple(read), attrs=attrs))
    turned = rewriter.keep(op("Transpose", kept, perm=[0, 2, 1, 3]))
    rewriter.replace(node[0], rewriter.keep(op("Reshape", turned, rewriter.keep(constant(np.array([0, 0, -1])))))[0])


_PAST = {"GroupQueryAttention": 3, "MultiHeadAttention": 6}
"""For each of onnxruntime's ops the index of the input with earlier keys."""


def with_joined_caches(graph: Graph) -> Graph:
    """The graph with each of onnxruntime's attentions that has a cache decomposed, so that the join of the cache with new
    positions is visible. Linear.

    GroupQueryAttention takes the number of valid positions of each sequence. In a session all are valid, so new positions follow
    all earlier ones. If that did not hold, the attention would not be recognised, since its mask depends on the number."""
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
    past = _PAST.get(str(node.op)) if node.domain == DOMAIN else None
    return past is not None and past < len(node.inputs) and node.inputs[past] is not None


def _body(node: Node, graph: Graph) -> Graph | None:
    builder = BodyBuilder(node, graph.opsets)
    try:
        if node.op == "GroupQueryAttention":
            return appended(builder)
        return body_of(node, builder.types, builder.values, builder.version).evolve(opsets=graph.opsets)
    except NoBody:
        return None
