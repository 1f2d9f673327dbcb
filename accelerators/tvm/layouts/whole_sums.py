"""Means of quantized images as a whole: their kernels add up integers of 32 bits."""

from __future__ import annotations

import math

from accelerators.tvm.layouts.scales import BYTE, LARGEST_SUM
from accelerators.tvm.sizes.extent import Extent, sizes_of
from graph.graph import Graph


def whole_sums(graph: Graph) -> tuple[Extent, ...]:
    """What is no less than zero where the sums of all images' bytes fit; nothing where no value is quantized. Linear."""
    if all(node.op != "DequantizeLinear" for node in graph.nodes):
        return ()
    pools = [sizes_of(node.reads[0].type) or () for node in graph.nodes if node.op == "GlobalAveragePool"]
    rooms = dict.fromkeys(LARGEST_SUM // BYTE - math.prod(sizes[2:]) for sizes in pools)
    return tuple([room for room in rooms if isinstance(room, Extent)])
