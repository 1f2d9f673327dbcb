"""Selects the attentions that become one kernel each."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.found import FoundProperty
from partita.accelerators.tvm.kernels.shared.operands import NARROWEST, Readers, readers_of
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.graph import Graph
from partita.graph.node import Node


class AttentionProperty(FoundProperty):
    """Labels each attention that is found from its Softmax."""

    name = "attention"

    def matches(self, graph: Graph) -> list[Attention]:
        return attentions(graph)

    def find(self, root: Node, readers: Readers, version: int) -> Attention | None:
        return find_attention(root, readers, version)


def attentions(graph: Graph) -> list[Attention]:
    """The attentions of the graph. Linear."""
    readers, version = readers_of(graph), graph.opsets.get("", 1)
    matches = [find_attention(node, readers, version) for node in graph.nodes]
    return [match for match in matches if match is not None and _is_wide(match)]


def _is_wide(reads: Attention) -> bool:
    widths = [(real_shape(node[0]) or (0,))[-1] for node in (reads.scores, reads.mix)]
    return all(isinstance(width, Extent) or width >= NARROWEST for width in widths)
