"""Products of few rows: a GPU's kernel for any number of them computes whole tiles."""

from __future__ import annotations

import math

from accelerators.tvm.sizes.extent import Extent, Size, sizes_of
from graph.graph import Graph

FEW = 8
"""With fewer rows than that in its products a size is compiled by itself."""


def enough_rows(graph: Graph) -> tuple[Extent, ...]:
    """What is no less than zero where products of any rows by constants have enough of them, the larger ones counting more."""
    room: Size = 0
    for node in graph.nodes:
        weight = node.inputs[1] if node.op in ("MatMul", "Gemm") else None
        if weight is None or weight.node.value is None:
            continue
        shape = sizes_of(node[0].type)
        rows = None if shape is None else math.prod(shape[:-1])
        if isinstance(rows, Extent):
            room = room + (rows - FEW) * int(weight.node.value.size)
    return (room,) if isinstance(room, Extent) else ()
