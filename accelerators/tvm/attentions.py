"""Attention as one kernel, and one product for the queries, keys and values that are made of one input."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from accelerators.tvm.bodies import make_body
from accelerators.tvm.templates.attention import find_in
from accelerators.tvm.templates.attention_pattern import Attention, find_attention, readers_of
from accelerators.tvm.templates.epilogue import static_shape
from graph.graph import Graph
from graph.node import Node
from partition.property import SubgraphProperty
from partition.selector import ContainOpSelector, SubgraphSelector

NARROWEST = 16
"""Fewer keys, or columns of values, than this are less than some processor's vector."""


class AttentionProperty(SubgraphProperty):
    """Each attention that is found from its softmax."""

    name = "attention"
    growth = "largest"

    def __init__(self) -> None:
        self.labels: dict[Node, int] = {}

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        self.labels = {node: i for i, found in enumerate(attentions(graph)) for node in found.nodes}

    def create_subgraph_selector(self) -> SubgraphSelector:
        return LabelSelector(self.labels)

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Only what the template takes."""
        return find_in(make_body(subgraph)) is not None


class LabelSelector(ContainOpSelector):
    """Nodes of one label."""

    stateless = True

    def __init__(self, labels: Mapping[Node, int]) -> None:
        super().__init__(lambda node: node in labels)
        self.labels = labels

    def label(self, node: Node) -> Hashable | None:
        return self.labels.get(node)


def attentions(graph: Graph) -> list[Attention]:
    """The attentions of the graph. Linear."""
    readers, version = readers_of(graph), graph.opsets.get("", 1)
    found = [find_attention(node, readers, version) for node in graph.nodes if node.op == "Softmax"]
    return [made for made in found if made is not None and _is_wide(made)]


def _is_wide(found: Attention) -> bool:
    return all((static_shape(node[0]) or (0,))[-1] >= NARROWEST for node in (found.scores, found.mix))
