"""Dimensions of a decoder's cache, which are 0 in its first call.

Kernels assume symbols of at least 1. The size of such a dimension is therefore its symbol minus one."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

READERS = frozenset("Concat Identity Shape Size Transpose".split())
"""Ops that can read a tensor without elements."""


def past_dimensions(graph: Graph) -> frozenset[tuple[Node, int]]:
    """The axes along which inputs are first operands of a Concat whose result is an output. Linear."""
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
