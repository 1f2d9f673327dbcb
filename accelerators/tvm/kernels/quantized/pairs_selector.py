"""Products of two quantized values, with ops around them that only reorder elements, and the element-wise ops after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.bodies.labels import LabelProperty
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.quantized.pairs import find_pair_product
from partita.accelerators.tvm.kernels.shared.heads import found_in
from partita.accelerators.tvm.kernels.shared.operands import readers_of
from partita.graph.graph import Graph


class PairProperty(LabelProperty):
    """Each MatMul of two quantized values."""

    name = "quantized_pair"

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        self.labels = {}
        roots = [(i, node) for i, node in enumerate(graph.nodes) if node.op == "MatMul" and node.domain == DOMAIN]
        if not roots:
            return
        readers, version = readers_of(graph), graph.opsets.get("", 1)
        for i, root in roots:
            match = find_pair_product(root, readers, version)
            for node in () if match is None else match.nodes - self.labels.keys():
                self.labels[node] = i

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts only subgraphs that the kernel supports."""
        return found_in(make_body(subgraph), "MatMul", find_pair_product) is not None
