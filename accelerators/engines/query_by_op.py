"""Queries an engine op by op, after type inference."""

from __future__ import annotations

from partita.accelerators.interface.query import Judge, Support, refused_inside
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.passes.infer import with_missing_types


def query_by_op(graph: Graph, judge: Judge) -> Support:
    """The judge's answer for each op; a call is supported if all ops of its body are."""
    shown = with_missing_types(graph)
    return {node.name: _judged(node, shown, judge) for node in shown.nodes if node.is_op}


def _judged(node: Node, graph: Graph, judge: Judge) -> bool | str:
    if not node.is_call:
        return judge(node, graph)
    return judged_inside(node, judge) or True


def judged_inside(node: Node, judge: Judge) -> str | None:
    """The first refusal in the node's bodies; inner calls are judged by their own bodies."""
    return refused_inside(node, lambda inner, body: _judged(inner, body, judge))
