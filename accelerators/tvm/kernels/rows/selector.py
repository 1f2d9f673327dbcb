"""Norms, softmax and reductions over the last dimension, with the element-wise ops around them: one pass over memory."""

from __future__ import annotations

from collections.abc import Hashable

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.rows.row_steps import find_program, row_kind
from partita.accelerators.tvm.kernels.shared.element_access import number_shape
from partita.accelerators.tvm.kernels.shared.formulas import LATEST
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

LONGEST = 40
"""Most ops of a kernel; more of them have more live values than there are registers."""


class RowProperty(SubgraphProperty):
    """Connected ops on the same rows, at least one of which is not element-wise."""

    name = "rows"
    growth = "largest"
    min_subgraph_size = 2

    def __init__(self, extremes: bool = True) -> None:
        super().__init__()
        self._extremes = extremes
        """True to include ReduceMax and ReduceMin."""

    def create_subgraph_selector(self) -> SubgraphSelector:
        return RowSelector(self._extremes)

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts only subgraphs that the kernel supports."""
        ops = [node for node in subgraph.nodes if node.is_op]
        return len(ops) <= LONGEST and find_program(make_body(subgraph)) is not None


class RowSelector(ContainOpSelector):
    """Ops that row programs support, each labelled with the row dimensions of its result. Of a softmax older than opset 13 only
    the last dimension is taken."""

    stateless = True

    def __init__(self, extremes: bool = True) -> None:
        super().__init__(lambda node: self.label(node) is not None)
        self._left_out = () if extremes else ("ReduceMax", "ReduceMin")

    def label(self, node: Node) -> Hashable | None:
        taken = node.op not in self._left_out and row_kind(node, LATEST) is not None
        shape = number_shape(node[0]) if taken else None
        return None if shape is None else shape[:-1]
