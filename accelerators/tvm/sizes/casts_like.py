"""CastLike, of which there is no kernel, as a Cast: the element type that it makes is known."""

from __future__ import annotations

from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType


def cast_parts(node: Node, graph: Graph) -> Graph:
    """The body of one; what it takes the type of is not read."""
    given, like = (
        variable(f"x{i}", type=entry.type) if entry.node.value is None else constant(entry.node.value)
        for i, entry in enumerate(node.reads)
    )
    assert isinstance(node.output_types[0], TensorType)
    cast = op("Cast", given, opset=graph.opsets.get("", 1), to=node.output_types[0].dtype)
    return Graph([cast], [value for value in (given, like) if value.value is None], "cast", graph.opsets)
