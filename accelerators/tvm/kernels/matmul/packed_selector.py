"""Selects products by packed matrices, with their element-wise epilogue."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.bodies.packed import DOMAIN, PRODUCT
from partita.accelerators.tvm.kernels.matmul.gemm_selector import MatrixSelector
from partita.accelerators.tvm.kernels.matmul.packed_product import packed_root
from partita.accelerators.tvm.kernels.shared.shapes import real_shape
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.property import SubgraphProperty
from partita.partition.selector import SubgraphSelector


class PackedProperty(SubgraphProperty):
    """A product by a packed matrix, and the element-wise ops after it."""

    name = "packed"

    def create_subgraph_selector(self) -> SubgraphSelector:
        return PackedSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts subgraphs that the kernel supports; any other product stays by itself."""
        return packed_root(make_body(subgraph)) is not None and len(subgraph.outputs) <= 2


class PackedSelector(MatrixSelector):
    """As for other constant matrices, but no op comes before the matrix."""

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, real_shape(node[0]) or ()
        return node.domain == DOMAIN and node.op == PRODUCT and bool(self.whole)

    def select_input(self, cur: Node, new: Node) -> bool:
        return cur is not self.root and super().select_input(cur, new)
