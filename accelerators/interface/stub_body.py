"""Bodies reduced to inputs and outputs: a device that has the compiled code may not need the rest."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node

DOMAIN = "partita.package"
"""The domain of nodes that stand for compiled subgraphs."""

OP = "Compiled"
"""Their op."""


def is_skeleton(body: Graph) -> bool:
    """True if the graph is only the interface of a body that was left out."""
    return DOMAIN in body.opsets


def skeleton(body: Graph) -> Graph:
    """The body reduced to its inputs and outputs."""
    inputs = body.inputs
    inner = Node(
        "body", OP, tuple(node[0] for node in inputs), {}, tuple(f"y{i}" for i in range(len(body.outputs))),
        tuple(entry.type for entry in body.outputs), DOMAIN,
    )
    return Graph(list(inner.outputs), inputs, body.name, {DOMAIN: 1, **body.opsets}, output_names=body.output_names)
