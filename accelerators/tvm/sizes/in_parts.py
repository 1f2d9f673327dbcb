"""Ops that have no form for any size, and whose parts have one: each gives way to a body of these."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from partita.graph.build import CALL_DOMAIN, constant
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.passes.infer import infer

IN_PARTS = "InParts"
"""The op of a call that stands for such an op until it is inlined."""


def in_parts(graph: Graph, bodies: Mapping[Node, Graph]) -> Graph:
    """The graph with these ops as their bodies, whose inputs are those of the op's that are no constants. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        if node in bodies:
            read = tuple([entry for entry in rebuilt.inputs if entry is not None and entry.node.value is None])
            rebuilt = rebuilt.evolve(op=IN_PARTS, domain=CALL_DOMAIN, inputs=read, attrs={}, subgraph=bodies[node])
        rewriter.keep(node, rebuilt)

    return infer(inline_calls(rewrite(graph, visit), lambda call: call.op == IN_PARTS), strict=False)


def whole(numbers: int | list[int]) -> Node:
    """A constant of whole numbers."""
    return constant(np.array(numbers, np.int64))
