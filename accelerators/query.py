"""What a device supports, asked on the transformed graph and answered in the names of the original one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from graph.graph import Graph
from graph.nested import bodies_of, graphs_in
from graph.node import Node

if TYPE_CHECKING:
    from accelerators.interface import Accelerator

FUSED = "partita.fused"
"""The metadata key under which a fused node lists, one a line, the names of the original nodes that it replaces. A call need not:
the nodes in its body have kept their names."""

Judge = Callable[[Node, Graph], "bool | str"]
"""An op of a graph: True, or the reason why not."""

Support = dict[str, "bool | str"]
"""For each op node: True, or the reason why not."""


def query_through_transform(device: Accelerator, graph: Graph) -> Support:
    """Ask `device.supports` for each op of the transformed graph; linear in the graph.

    An original node answers for itself where it survived, for the fused nodes that name it where it was fused, and else
    (the transformation made it superfluous) as those that read it do."""
    transformed = device.transform(graph)
    answers: Support = {}
    for node in transformed.nodes:
        if node.is_op:
            answer = _supported(device, node, transformed)
            for name in (node.name, *(fused_names(node) if transformed is not graph else ())):
                answers[name] = worse(answers.get(name, True), answer)
    if transformed is not graph:
        _answer_for_vanished(graph, answers)
    return {node.name: answers[node.name] for node in graph.nodes if node.is_op}


def _supported(device: Accelerator, node: Node, graph: Graph) -> bool | str:
    """The device's word on the node, and, of an If, Loop or Scan, on all that its bodies hold."""
    answer = yes_or_why_not(device.supports(node, graph))
    if answer is True and not node.is_call:
        return refused_inside(node, lambda inner, body: _supported(device, inner, body)) or True
    return answer


def refused_inside(node: Node, judge: Judge) -> str | None:
    """The first refusal of an op in the node's bodies."""
    for body in bodies_of(node):
        for inner in body.nodes:
            answer = judge(inner, body) if inner.is_op else True
            if answer is not True:
                return f"its body holds {inner.name!r}: {answer}"
    return None


def yes_or_why_not(answer: object) -> bool | str:
    """What a device answered: True, or a reason; one that gives none has a reason all the same."""
    if isinstance(answer, (bool, np.bool_)) and answer:
        return True
    return answer if isinstance(answer, str) and answer else "it does not say why"


def fused_names(node: Node) -> list[str]:
    """The names of the original nodes that this one replaces."""
    listed = node.metadata.get(FUSED, "").splitlines()
    bodies = () if node.subgraph is None else graphs_in(node.subgraph)
    return listed + [inner.name for body in bodies for inner in body.nodes if inner.is_op]


def worse(a: bool | str, b: bool | str) -> bool | str:
    """The first refusal of two answers, if there is one."""
    return a if a is not True else b


def _answer_for_vanished(graph: Graph, answers: Support) -> None:
    index = graph.index
    known: dict[int, bool | str] = {}
    for i in reversed(range(len(index))):
        name = index.nodes[i].name
        if name not in answers:
            answer: bool | str = True
            for reader in index.consumers[i]:
                answer = worse(answer, known[reader])
            answers[name] = answer
        known[i] = answers[name]
