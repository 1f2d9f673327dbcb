"""Products and pools of quantized values, each with all element-wise ops after it: bias, activation, rounding, residual add, and
rounding again; products of two quantized values, with ops around them that only reorder elements."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.quantized import DOMAIN, is_dequantize, is_pair_product
from partita.accelerators.tvm.kernels.contraction.operands import FoundProperty, Readers
from partita.accelerators.tvm.kernels.contraction.quantized.matmul import PairProduct, find_pair_product
from partita.accelerators.tvm.kernels.shared.element_access import any_shape
from partita.accelerators.tvm.kernels.shared.elementwise import LATEST, formula
from partita.accelerators.tvm.kernels.shared.epilogue import folded
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.partition.property import SubgraphProperty
from partita.partition.selector import SubgraphSelector

ROOTS = frozenset("Product Depthwise Mean Mix".split())
"""Ops whose kernels have an epilogue."""

LONGEST = 24
"""Maximum number of ops after a product in its kernel."""


OF_OPERANDS = ops("ring") | {"Cast"}
"""Ops on per-channel values that a kernel recomputes for each result: scales and zero points, multiplied and added."""


class QuantizedProperty(SubgraphProperty):
    """A product or a pool of quantized values, and the element-wise ops after it."""

    name = "quantized"

    def __init__(self, computes_operands: bool = False) -> None:
        """True if the kernel computes its epilogue's operands too. On a GPU that costs less than a launch."""
        self.computes_operands = computes_operands

    def create_subgraph_selector(self) -> SubgraphSelector:
        return QuantizedSelector(self.computes_operands)

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Rejects a subgraph with many results, which is better as several kernels."""
        return len(subgraph.outputs) <= 2


class QuantizedSelector(SubgraphSelector):
    """Grows from the root along the data flow, as long as shapes stay; against it if that leads back to the root, or to
    per-channel operands if the kernel computes these too."""

    def __init__(self, computes_operands: bool) -> None:
        self.computes_operands = computes_operands
        self.root: Node | None = None
        self.whole: tuple[int, ...] = ()
        self.taken: set[Node] = set()

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, any_shape(node[0]) or ()
        return node.domain == DOMAIN and node.op in ROOTS

    def select_input(self, cur: Node, new: Node) -> bool:
        inside = any(entry.node in self.taken or entry.node is self.root for entry in new.reads)
        if cur is self.root:
            return False
        return ((inside or self._is_dequantize(new)) and self._fits(new)) or (self.computes_operands and self._is_operand(new))

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._has_shape(cur) and self._fits(new)

    def filter(self, graph: Graph, candidates: list[Node]) -> list[Node]:  # type: ignore[override]
        """Drops a dequantization whose value others read: the value stays integers, which each reader dequantizes itself. An
        operand that others read is computed once, for all of them."""
        kept, returned = dict.fromkeys(candidates), {entry.node for entry in graph.outputs}
        for node in reversed(candidates):
            readers = [reader in kept for reader in graph.consumers(node)]
            is_shared = not self._has_shape(node) and (node in returned or not all(readers))
            if is_shared or (is_dequantize(node) and not any(readers)):
                del kept[node]
        return list(kept)

    def reset(self) -> None:
        self.taken = set()

    def _is_dequantize(self, new: Node) -> bool:
        """True for a dequantization of another value than the root's own input, which is read in one way only."""
        return is_dequantize(new) and self.root is not None and new.inputs[0] != self.root.inputs[0]

    def _has_shape(self, node: Node) -> bool:
        """True if the node's result has the root's shape."""
        return any_shape(node[0]) == self.whole

    def _is_operand(self, new: Node) -> bool:
        """True for a per-channel or scalar operand that is computed from such."""
        return new.op in OF_OPERANDS and not self._has_shape(new) and self._is_spread(new[0]) and self._joins(new)

    def _fits(self, new: Node) -> bool:
        return self._has_shape(new) and self._joins(new)

    def _joins(self, new: Node) -> bool:
        if len(self.taken) == LONGEST or len(new.output_names) != 1:
            return False
        if formula(new, LATEST) is None or not all(self._is_spread(entry) for entry in new.reads):
            return False
        self.taken.add(new)
        return True

    def _is_spread(self, entry: NodeEntry) -> bool:
        """True if the value has an element per result, per channel or per pixel, or a single one."""
        groups = [(0, len(self.whole) - 1), (len(self.whole) - 1, len(self.whole))]
        shape = any_shape(entry)
        return shape is not None and folded(shape, self.whole, groups) is not None


class PairProperty(FoundProperty[PairProduct]):
    """Each MatMul of two quantized values."""

    name = "quantized_pair"

    def is_root(self, node: Node) -> bool:
        return is_pair_product(node)

    def find(self, root: Node, readers: Readers, version: int) -> PairProduct | None:
        return find_pair_product(root, readers, version)
