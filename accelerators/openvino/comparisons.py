"""Comparisons in the form in which openvino computes them rightly."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.bodies import everywhere

_TURNED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def turned(graph: Graph) -> Graph:
    """The graph with a > b written as b < a, and a >= b as b <= a, in bodies too.

    openvino computes a > b as "a is not at most b", which is true where one of both is NaN; its a < b is false there,
    as it has to be. Names and types stay."""
    return everywhere(graph, lambda inner: rewrite(inner, _turn))


def _turn(node: Node, rewriter: Rewriter) -> None:
    op = None if node.domain or node.attrs else _TURNED.get(node.op or "")
    rebuilt = rewriter.rebuilt(node)
    rewriter.keep(node, rebuilt if op is None else rebuilt.evolve(op=op, inputs=rebuilt.inputs[::-1]))
