"""Bounds on dynamic sizes for which int32 accumulators cannot overflow."""

from __future__ import annotations

import math

from partita.accelerators.tvm.layouts.scales import BYTE, DEEPEST, LARGEST_SUM
from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops

PRODUCTS = ops("matmul") | {"MatMulInteger"}


def whole_sums(graph: Graph, is_for_gpu: bool) -> tuple[Extent, ...]:
    """Conditions (each ≥ 0) under which the sums of global pools fit int32 and, on a GPU, which has kernels of dynamic depth, the
    sums of matrix products too. Empty if no value is quantized. Linear."""
    if all(node.op not in ops("quantizing", "integer_product") for node in graph.nodes):
        return ()
    pools = [sizes_of(node.reads[0].type) or () for node in graph.nodes if node.op == "GlobalAveragePool"]
    depths = [_depth(node) for node in graph.nodes if node.op in PRODUCTS and is_for_gpu]
    rooms = [*(LARGEST_SUM // BYTE - math.prod(sizes[2:]) for sizes in pools), *(DEEPEST - depth for depth in depths)]
    return tuple([room for room in dict.fromkeys(rooms) if isinstance(room, Extent)])


def _depth(node: Node) -> Size:
    """Number of products per sum; 0 if it is unknown."""
    sizes = sizes_of(node.reads[0].type) or (0,)
    return sizes[0 if node.attrs.get("transA", 0) else -1]
