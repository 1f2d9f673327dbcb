"""MatMul by a vector as a product of matrices: the vector becomes a row or a column, and that goes again behind the product."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from partita.accelerators.tvm.sizes.in_parts import whole
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

LEAST_OPSET = 13
"""Since this version of ONNX the dimensions that Unsqueeze makes are an input."""


def multiplies_a_vector(node: Node, reading: Reading, version: int) -> bool:
    """Is one of the two that a MatMul multiplies a vector?"""
    return node.op == "MatMul" and version >= LEAST_OPSET and any(len(reading.sizes(entry)) == 1 for entry in node.reads)


def vector_product_parts(node: Node, reading: Reading, graph: Graph) -> Graph:
    """The body of one such product."""
    computed = partial(op, opset=graph.opsets.get("", 1))
    given = [
        variable(f"x{i}", type=entry.type) if entry.node.value is None else constant(entry.node.value)
        for i, entry in enumerate(node.reads)
    ]
    is_vector = [len(reading.sizes(entry)) == 1 for entry in node.reads]
    matrices = [
        computed("Unsqueeze", value, whole([axis])) if alone else value
        for value, alone, axis in zip(given, is_vector, (0, 1), strict=True)
    ]
    product = computed("MatMul", *matrices)
    gone = [axis for axis, alone in zip((-2, -1), is_vector, strict=True) if alone]
    inputs = [value for value in given if value.value is None]
    return Graph([computed("Squeeze", product, whole(gone))], inputs, "product", graph.opsets)
