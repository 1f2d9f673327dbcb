"""Rewrites comparisons to the form that openvino computes correctly."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.bodies import everywhere

_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def turned(graph: Graph) -> Graph:
    """The graph with a > b written as b < a, and a >= b as b <= a, in bodies too.

    openvino computes a > b as "not a <= b", which is true if one of them is NaN; its a < b is false there,
    as specified. Names and types are unchanged."""
    return everywhere(graph, lambda inner: rewrite(inner, _turn))


def _turn(node: Node, rewriter: Rewriter) -> None:
    op = None if node.domain or node.attrs else _TURNED.get(node.op or "")
    rebuilt = rewriter.rebuilt(node)
    rewriter.keep(node, rebuilt if op is None else rebuilt.evolve(op=op, inputs=rebuilt.inputs[::-1]))
