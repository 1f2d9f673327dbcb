"""Selects the attentions that become one kernel each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.bodies.labels import LabelProperty
from partita.accelerators.tvm.kernels.attention.pattern import Attention, find_attention
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.heads import found_in
from partita.accelerators.tvm.kernels.shared.operands import NARROWEST, readers_of
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.graph import Graph


class AttentionProperty(LabelProperty):
    """Labels each attention that is found from its Softmax."""

    name = "attention"

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        self.labels = {node: i for i, match in enumerate(attentions(graph)) for node in match.nodes}

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts only subgraphs that are exactly one attention."""
        return found_in(make_body(subgraph), "Softmax", find_attention) is not None


def attentions(graph: Graph) -> list[Attention]:
    """The attentions of the graph. Linear."""
    readers, version = readers_of(graph), graph.opsets.get("", 1)
    matches = [find_attention(node, readers, version) for node in graph.nodes if node.op == "Softmax"]
    return [match for match in matches if match is not None and _is_wide(match)]


def _is_wide(reads: Attention) -> bool:
    widths = [(real_shape(node[0]) or (0,))[-1] for node in (reads.scores, reads.mix)]
    return all(isinstance(width, Extent) or width >= NARROWEST for width in widths)
