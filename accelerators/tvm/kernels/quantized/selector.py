"""Products and pools of quantized values, each with all that follows number by number: bias, activation, rounding, residual add,
rounding once more."""

from __future__ import annotations

from accelerators.tvm.bodies.quantized import DOMAIN, is_dequantize
from accelerators.tvm.kernels.shared.epilogue import folded
from accelerators.tvm.kernels.shared.formulas import LATEST, formula
from accelerators.tvm.kernels.shared.shapes import any_shape
from graph.graph import Graph
from graph.node import Node
from partition.property import SubgraphProperty
from partition.selector import SubgraphSelector

ROOTS = frozenset("Product Depthwise Mean Mix".split())
"""Ops whose kernels have an epilogue."""

LONGEST = 24
"""The number of ops that may follow a product in its kernel."""


class QuantizedProperty(SubgraphProperty):
    """A product or a pool of quantized values, and the element-wise ops after it."""

    name = "quantized"

    def create_subgraph_selector(self) -> SubgraphSelector:
        return QuantizedSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Refuse a subgraph with many results, which is better as several kernels."""
        return len(subgraph.outputs) <= 2


class QuantizedSelector(SubgraphSelector):
    """From the root along the data flow, as long as shapes stay; against it where that leads back to the root."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.whole: tuple[int, ...] = ()
        self.taken: set[Node] = set()

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, any_shape(node[0]) or ()
        return node.domain == DOMAIN and node.op in ROOTS

    def select_input(self, cur: Node, new: Node) -> bool:
        inside = any(entry.node in self.taken or entry.node is self.root for entry in new.reads)
        return cur is not self.root and (inside or self._is_dequantize(new)) and self._fits(new)

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._fits(new)

    def filter(self, graph: Graph, candidates: list[Node]) -> list[Node]:  # type: ignore[override]
        """A value that others read stays integers: each of its readers dequantizes it for itself."""
        kept = dict.fromkeys(candidates)
        for node in reversed(candidates):
            if is_dequantize(node) and not any(reader in kept for reader in graph.consumers(node)):
                del kept[node]
        return list(kept)

    def reset(self) -> None:
        self.taken = set()

    def _is_dequantize(self, new: Node) -> bool:
        """A value that is added may be read as integers; what the root reads itself is read in one way only."""
        return is_dequantize(new) and self.root is not None and new.inputs[0] != self.root.inputs[0]

    def _fits(self, new: Node) -> bool:
        if len(self.taken) == LONGEST or len(new.output_names) != 1 or any_shape(new[0]) != self.whole:
            return False
        groups = [(0, len(self.whole) - 1), (len(self.whole) - 1, len(self.whole))]
        shapes = [any_shape(entry) for entry in new.reads]
        if formula(new, LATEST) is None or any(size is None or folded(size, self.whole, groups) is None for size in shapes):
            return False
        self.taken.add(new)
        return True
