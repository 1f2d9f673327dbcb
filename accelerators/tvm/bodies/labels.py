"""Subgraphs from labels that were assigned before the partition."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from partita.graph.node import Node
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector


class LabelProperty(SubgraphProperty):
    """Makes a subgraph of each label that `pre_partition` assigned."""

    growth = "largest"

    def __init__(self) -> None:
        self.labels: dict[Node, int] = {}

    def create_subgraph_selector(self) -> SubgraphSelector:
        return LabelSelector(self.labels)


class LabelSelector(ContainOpSelector):
    """Selects the nodes of one label."""

    stateless = True

    def __init__(self, labels: Mapping[Node, int]) -> None:
        super().__init__(lambda node: node in labels)
        self.labels = labels

    def label(self, node: Node) -> Hashable | None:
        return self.labels.get(node)
