"""Selects products of two values, single or batched, with the ops around them that only move or scale, and their epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.bodies.labels import LabelProperty
from partita.accelerators.tvm.kernels.matmul.product import find_value_product
from partita.accelerators.tvm.kernels.shared.heads import found_in
from partita.accelerators.tvm.kernels.shared.operands import NARROWEST, readers_of
from partita.accelerators.tvm.kernels.shared.shapes import real_shape
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.graph import Graph
from partita.graph.node import Node


class ProductProperty(LabelProperty):
    """Labels each remaining MatMul: its second matrix is a value, or a batch of matrices."""

    name = "product"

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        readers, version = readers_of(graph), graph.opsets.get("", 1)
        self.labels = {}
        for i, root in enumerate(graph.nodes):
            if root.op == "MatMul" and root not in self.labels and _is_wide(root):
                match = find_value_product(root, readers, version)
                for node in () if match is None else match.nodes - self.labels.keys():
                    self.labels[node] = i

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts only subgraphs that the kernel supports."""
        return found_in(make_body(subgraph), "MatMul", find_value_product) is not None


def _is_wide(root: Node) -> bool:
    """True if the product is as wide as any processor's vector, or has a dynamic size: then there is code for few columns too."""
    sizes = [size for entry in (root[0], *root.reads) for size in real_shape(entry) or ()]
    return any(isinstance(size, Extent) for size in sizes) or (real_shape(root[0]) or (0,))[-1] >= NARROWEST
