"""Products with few rows, for which a GPU's kernel of dynamic rows is wasteful, since it computes whole tiles."""

from __future__ import annotations

import math

from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.graph import Graph
from partita.graph.ops.traits import ops

FEW = 8
"""Least number of rows in products; sizes with fewer rows are compiled on their own."""


def enough_rows(graph: Graph) -> tuple[Extent, ...]:
    """Conditions (each ≥ 0) under which products of dynamic rows by constants have enough rows, weighted by the constants' sizes.
    Rows of a convolution are the pixels of all results, of a transposed one those of all images."""
    room: Size = 0
    for node in graph.nodes:
        weight = node.inputs[1] if node.op in ops("convolution", "matmul") else None
        if weight is None or weight.node.value is None:
            continue
        counted = node.reads[0] if node.op == "ConvTranspose" else node[0]
        shape = sizes_of(counted.type)
        ways = () if shape is None else (shape[0], *shape[2:]) if node.op in ops("convolution") else shape[:-1]
        rows = math.prod(ways)
        if isinstance(rows, Extent):
            room = room + (rows - FEW) * int(weight.node.value.size)
    return (room,) if isinstance(room, Extent) else ()
