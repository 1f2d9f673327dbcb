"""Chains of element-wise ops of one shape: the selection of ops that share a kernel."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.kernels.elementwise.chain import find_chain
from partita.accelerators.tvm.kernels.shared.element_access import HALVES
from partita.accelerators.tvm.kernels.shared.formulas import FORMULAS, QUANTIZED_FORMULAS
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

ELEMENTWISE = frozenset(FORMULAS)
"""The element-wise ops that chains support: those with a formula."""

LONGEST_CHAIN = 32
"""Most ops of a chain; more of them have more live values than there are registers."""


class ChainProperty(SubgraphProperty):
    """Connected element-wise ops of one shape."""

    name = "chain"
    growth = "largest"
    min_subgraph_size = 2

    def create_subgraph_selector(self) -> SubgraphSelector:
        return ChainSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Rejects chains that would spill, and chains of half-precision or quantized elements that our kernel does not support:
        TVM's own would round half-precision elements after every op, and has no quantized ones."""
        ops = [node for node in subgraph.nodes if node.is_op]
        dtypes = {getattr(entry.type, "dtype", "") for node in ops for entry in (*node.reads, *node.outputs)}
        is_ours = bool(dtypes & HALVES) or any(node.domain == QUANTIZED for node in ops)
        return len(ops) <= LONGEST_CHAIN and (not is_ours or find_chain(make_body(subgraph)) is not None)


class ChainSelector(ContainOpSelector):
    """Element-wise ops, each labelled with the shape of its result."""

    stateless = True

    def __init__(self) -> None:
        super().__init__({*ELEMENTWISE, *(f"{QUANTIZED}::{op}" for op in QUANTIZED_FORMULAS)})

    def label(self, node: Node) -> Hashable | None:
        value_type = node.output_types[0]
        if super().label(node) is None or not isinstance(value_type, TensorType) or _alone(node):
            return None
        return value_type.shape, node.op in RING and "int" in value_type.dtype


RING = ops("ring")
"""Ops whose integers wrap around modulo the type's size, however their formulas are rearranged, as long as no other op joins
them. TVM simplifies comparisons, casts, minima and maxima of their results as if integers never overflowed, and tells LLVM so. It
does not do so with elements that are read from memory."""


def _alone(node: Node) -> bool:
    """True if the op gets a kernel of its own: powers of several element types, and ops from integers to integers whose results
    TVM would simplify wrongly (divisions, powers, absolute values, and casts to types that do not hold all values)."""
    stored, first = (str(getattr(entry.type, "dtype", "")) for entry in (node[0], node.reads[0]))
    if node.op == "Pow" and len({getattr(entry.type, "dtype", "") for entry in node.reads}) > 1:
        return True
    if "int" not in stored or "int" not in first:
        return False
    return node.op in ("Div", "Mod", "Pow", "Abs") or (node.op == "Cast" and not np.can_cast(first, stored))
