"""Symbols that count what came before: a decoder's first call has none of it.

Kernels are written for sizes of one at least. The size of such an input is therefore one less than its symbol."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

READERS = frozenset("Concat Identity Shape Size Transpose".split())
"""Ops that read a tensor without any numbers as well as another."""


def past_dimensions(graph: Graph) -> frozenset[tuple[Node, int]]:
    """The dimensions along which inputs are joined with what comes behind them, where the result is an output. Linear."""
    pasts = set[tuple[Node, int]]()
    for entry in graph.outputs:
        node = entry.node
        if node.op != "Concat" or node.domain or len(node.inputs) < 2 or node.inputs[0] is None:
            continue
        past = node.inputs[0]
        rank = past.type.rank if isinstance(past.type, TensorType) else None
        if past.node in graph.inputs and rank:
            pasts.add((past.node, int(node.attrs.get("axis", 0)) % rank))
    return frozenset(pasts)
