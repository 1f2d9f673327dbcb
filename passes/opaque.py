"""Nodes that ONNX's own tools know nothing of, hidden behind an op that they pass by.

ONNX's converter drops model-local functions, and its inference tells nothing of what is inside them. Behind an opaque op a call
is one node of which only its inputs and outputs show."""

from __future__ import annotations

from collections.abc import Callable

from graph.graph import Graph
from graph.node import Node
from graph.rewrite import Rewriter, map_bodies, rewrite

OPAQUE = "Opaque"
"""The op that stands for a hidden node; its attribute `key` numbers them."""

OPAQUE_DOMAIN = "partita.opaque"
"""Its domain."""


def hide(g: Graph, is_hidden: Callable[[Node], bool], hidden: list[Node]) -> Graph:
    """The graph with each such node, also in the bodies of those that stay, as an opaque op; they are appended to `hidden`.

    What a hidden node captures becomes further inputs. Where nothing is to be hidden the graph itself comes back."""
    opsets = {**g.opsets, OPAQUE_DOMAIN: 1}

    def inside(graph: Graph) -> Graph:
        made = rewrite(graph, visit)
        return graph if made is graph else made.evolve(opsets=opsets)

    def visit(node: Node, rewriter: Rewriter) -> None:
        made = rewriter.rebuilt(node)
        if node.is_op and is_hidden(node):
            made = made.evolve(
                op=OPAQUE,
                domain=OPAQUE_DOMAIN,
                inputs=made.inputs + made.captures,
                captures=(),
                subgraph=None,
                attrs={"key": len(hidden)},
            )
            hidden.append(node)
        elif node.bodies:
            made = map_bodies(made, inside)
        rewriter.keep(node, made)

    return inside(g)
