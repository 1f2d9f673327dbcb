"""EliminateDead: removes the nodes that no output needs."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.order import reachable
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.bodies import everywhere, holds_body, without_captures
from partita.passes.registry import REQUESTS, register_pass


@register_pass("EliminateDead", keeps=("shape", "dtype", *REQUESTS))
def eliminate_dead(g: Graph) -> Graph:
    """The graph, and each body in it, without nodes that no output needs. Graph inputs are kept. Linear."""
    return everywhere(g, _eliminate)


def _eliminate(g: Graph) -> Graph:
    g = _without_idle_captures(g)
    needed = reachable([*g.inputs, *(entry.node for entry in g.outputs)])
    return g if len(needed) == len(g.nodes) else g.evolve(nodes=())


def _without_idle_captures(g: Graph) -> Graph:
    """The graph without captures that no body of the capturing node reads."""
    if not any(node.captures for node in g.nodes):
        return g
    return rewrite(g, _release)


def _release(node: Node, rewriter: Rewriter) -> None:
    rebuilt = rewriter.rebuilt(node)
    if rebuilt.captures and holds_body(rebuilt):
        idle = set.intersection(*(_idle(body, len(rebuilt.captures)) for _, body in rebuilt.bodies))
        if idle:
            rebuilt = without_captures(rebuilt, dict.fromkeys(idle))
    rewriter.keep(node, rebuilt)


def _idle(body: Graph, count: int) -> set[int]:
    """Indices of those among the last `count` inputs that nothing reads."""
    bound = body.inputs[len(body.inputs) - count :]
    read = {e.node for node in body.nodes for e in node.reads} | {e.node for e in body.outputs}
    return {i for i, node in enumerate(bound) if node not in read}
