"""Products of few rows: a GPU's kernel for any number of them computes whole tiles."""

from __future__ import annotations

import math

from partita.accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from partita.graph.graph import Graph
from partita.graph.ops.traits import ops

FEW = 8
"""With fewer rows than that in its products a size is compiled by itself."""


def enough_rows(graph: Graph) -> tuple[Extent, ...]:
    """What is no less than zero where products of any rows by constants have enough of them, the larger ones counting more. Those
    of a convolution are the pixels of all images, of a transposed one those that it reads."""
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
