"""Tile by numbers that follow from sizes, of which TVM has no form, as an Expand between two Reshapes: each dimension gets one
before it, along which it is repeated."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from partita.accelerators.tvm.sizes.extent import Extent
from partita.accelerators.tvm.sizes.in_parts import whole
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

LEAST_OPSET = 13
"""Since this version of ONNX the dimensions that Unsqueeze makes are an input."""


def is_repeated_by_sizes(node: Node, reading: Reading, version: int) -> bool:
    """Does it say how often it repeats something by a size that is not known?"""
    if node.op != "Tile" or node.domain or version < LEAST_OPSET:
        return False
    return any(isinstance(count, Extent) for count in reading.vector(node.inputs[1]))


def repeated_parts(node: Node, rank: int, graph: Graph) -> Graph:
    """The body of one that repeats a tensor of so many dimensions."""
    computed = partial(op, opset=graph.opsets.get("", 1))
    read, counts = node.reads[0], variable("counts", type=node.reads[1].type)
    data = variable("x", type=read.type) if read.node.value is None else constant(read.node.value)
    sizes = computed("Shape", data)
    pairs = [position for d in range(rank) for position in (d, rank + d)]
    spread = computed("Gather", computed("Concat", counts, sizes, axis=0), whole(pairs))
    apart = computed("Unsqueeze", data, whole([2 * d for d in range(rank)]))
    repeated = computed("Reshape", computed("Expand", apart, spread), computed("Mul", counts, sizes))
    return Graph([repeated], [counts] if data.value is not None else [data, counts], "repeated", graph.opsets)
