"""Bodies of which only inputs and outputs are left: a device that has its code may not need the rest."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node

DOMAIN = "partita.package"
"""The domain of the nodes that stand for compiled subgraphs."""

OP = "Compiled"
"""Their op."""


def is_skeleton(body: Graph) -> bool:
    """Is the graph only the interface of a body that was left behind?"""
    return DOMAIN in body.opsets


def skeleton(body: Graph) -> Graph:
    """A body of which only inputs and outputs are left."""
    inputs = body.inputs
    inner = Node(
        "body", OP, tuple(node[0] for node in inputs), {}, tuple(f"y{i}" for i in range(len(body.outputs))),
        tuple(entry.type for entry in body.outputs), DOMAIN,
    )
    return Graph(list(inner.outputs), inputs, body.name, {DOMAIN: 1, **body.opsets}, output_names=body.output_names)
