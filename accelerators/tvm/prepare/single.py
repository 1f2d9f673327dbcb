"""One op by itself: a graph of the node, the constants that it reads, and inputs for everything else."""

from __future__ import annotations

from graph.build import variable
from graph.graph import Graph
from graph.node import Node, NodeEntry


def alone(node: Node, graph: Graph, *, constants: bool = True) -> Graph:
    """The node between inputs of its inputs' types; constants stay what they are, or become inputs too."""
    variables: dict[NodeEntry, NodeEntry] = {}
    for entry in node.reads:
        if entry not in variables and not (constants and entry.node.value is not None):
            variables[entry] = variable(f"x{len(variables)}", type=entry.type)[0]
    inner = node.evolve(
        inputs=tuple(None if e is None else variables.get(e, e) for e in node.inputs),
        captures=tuple(variables.get(e, e) for e in node.captures),
        after=(),
        affinity=None,
    )
    inputs = [entry.node for entry in variables.values()]
    outputs = [entry for entry in inner.outputs if entry.name]
    return Graph(outputs, inputs, "one", graph.opsets, nodes=[inner])
