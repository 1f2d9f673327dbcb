"""Selects matrix products, with the ops around them, that become one kernel each."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.bodies.packed import DOMAIN, PRODUCT
from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.bodies.quantized import is_dequantize
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import before_turn, find_product
from partita.accelerators.tvm.kernels.contraction.matmul.packed_product import packed_root
from partita.accelerators.tvm.kernels.contraction.matmul.product import find_value_product
from partita.accelerators.tvm.kernels.contraction.operands import NARROWEST, FoundProperty, Readers, TwoSided, is_value_product
from partita.accelerators.tvm.kernels.shared.element_access import number_shape, real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import LATEST, formula
from partita.accelerators.tvm.kernels.shared.epilogue import is_matrix_of, read_size
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.partition.property import SubgraphProperty
from partita.partition.selector import SubgraphSelector

LONGEST = 24
"""Maximum number of ops after a product."""


class MatrixProperty(SubgraphProperty):
    """A product by a constant matrix, and the element-wise ops after it."""

    name = "matmul"

    def create_subgraph_selector(self) -> SubgraphSelector:
        return MatrixSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts subgraphs that the kernel supports; any other product stays by itself."""
        return find_product(make_body(subgraph)) is not None and len(subgraph.outputs) <= 2


class MatrixSelector(SubgraphSelector):
    """Follows the data flow from the product as long as each op has the product's rows and columns, and goes against it where
    that leads back to the product. A transpose of the constant is included."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.whole: tuple[int, ...] = ()
        self.taken = 0

    def select(self, node: Node) -> bool:
        right = node.inputs[1] if len(node.inputs) > 1 else None
        if node.op not in ops("matmul") or node.domain or right is None:
            return False
        if right.node.value is None and not _is_turned_constant(right.node):
            return False
        self.root, self.whole = node, real_shape(node[0]) or ()
        return bool(self.whole)

    def select_input(self, cur: Node, new: Node) -> bool:
        if cur is self.root:
            return cur.inputs[1] == new[0] and _is_turned_constant(new)
        return self._fits(new) and (is_dequantize(new) or self._descends(new))

    def select_output(self, cur: Node, new: Node) -> bool:
        return not _is_turned_constant(cur) and self._fits(new)

    def filter(self, graph: Graph, candidates: list[Node]) -> list[Node]:  # type: ignore[override]
        """Drops dequantizations that are also read outside: each reader dequantizes for itself."""
        kept = dict.fromkeys(candidates)
        for node in reversed(candidates):
            readers = list(graph.consumers(node)) if is_dequantize(node) else []
            if is_dequantize(node) and not (readers and all(reader in kept for reader in readers)):
                del kept[node]
        return list(kept)

    def reset(self) -> None:
        self.taken = 0

    def _fits(self, new: Node) -> bool:
        output = number_shape(new[0]) if len(new.output_names) == 1 and new.domain in ("", QUANTIZED) else None
        if output is None or not is_matrix_of(output, self.whole) or self.taken == LONGEST:
            return False
        if new.op not in VIEWS:
            if formula(new, LATEST) is None or any(read_size(number_shape(entry), output) is None for entry in new.reads):
                return False
        self.taken += 1
        return True

    def _descends(self, node: Node) -> bool:
        """True if the node depends on the product, over few ops of the same matrix shape."""
        waiting, seen = [node], {node}
        while waiting and len(seen) <= LONGEST:
            for entry in waiting.pop().reads:
                if entry.node is self.root:
                    return True
                known = number_shape(entry) if entry.node.is_op else None
                if entry.node not in seen and known is not None and is_matrix_of(known, self.whole):
                    seen.add(entry.node)
                    waiting.append(entry.node)
        return False


def _is_turned_constant(node: Node) -> bool:
    before = before_turn(node)
    return before is not None and before.node.value is not None


class PackedProperty(SubgraphProperty):
    """A product by a packed matrix, and the element-wise ops after it."""

    name = "packed"

    def create_subgraph_selector(self) -> SubgraphSelector:
        return _PackedSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts subgraphs that the kernel supports; any other product stays by itself."""
        return packed_root(make_body(subgraph)) is not None and len(subgraph.outputs) <= 2


class _PackedSelector(MatrixSelector):
    """As for other constant matrices, but no op comes before the matrix."""

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, real_shape(node[0]) or ()
        return node.domain == DOMAIN and node.op == PRODUCT and bool(self.whole)

    def select_input(self, cur: Node, new: Node) -> bool:
        return cur is not self.root and super().select_input(cur, new)


class ProductProperty(FoundProperty[TwoSided]):
    """Labels each remaining MatMul, whose second matrix is a value or a batch of matrices, with the ops around it that only move
    or scale, and its epilogue."""

    name = "product"

    def is_root(self, node: Node) -> bool:
        return is_value_product(node) and _is_wide(node)

    def find(self, root: Node, readers: Readers, version: int) -> TwoSided | None:
        return find_value_product(root, readers, version)


def _is_wide(root: Node) -> bool:
    """True if the product is as wide as any processor's vector, or has a dynamic size: then there is code for few columns too."""
    sizes = [size for entry in (root[0], *root.reads) for size in real_shape(entry) or ()]
    return any(isinstance(size, Extent) for size in sizes) or (real_shape(root[0]) or (0,))[-1] >= NARROWEST
