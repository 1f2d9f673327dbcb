"""Rewrites Attention with packed heads (rank 3) to Attention with a separate head axis (rank 4)."""

from __future__ import annotations

import numpy as np

from partita.graph.build import constant, op
from partita.graph.graph import Graph
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
