"""One op by itself, for whoever asks about that op alone: an engine, a compiler, a shape rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graph.graph import Graph
from graph.node import Node, NodeEntry


def graph_of_node(
    node: Node, opsets: Mapping[str, int], stand_in: Callable[[NodeEntry, int], NodeEntry], name: str = "single"
) -> Graph:
    """A graph of this op alone.

    For each value that the op reads, inputs first and then captures, `stand_in` gives the value that is read instead: a constant,
    or a variable, which becomes an input of the graph. It is asked once about each value, and told how many variables came
    before.
    """
    stand_ins: dict[NodeEntry, NodeEntry] = {}
    variables: list[Node] = []
    for entry in node.reads:
        if entry not in stand_ins:
            stand_ins[entry] = stand_in(entry, len(variables))
            if stand_ins[entry].node.value is None:
                variables.append(stand_ins[entry].node)
    inner = node.evolve(
        inputs=tuple(None if entry is None else stand_ins[entry] for entry in node.inputs),
        captures=tuple(stand_ins[entry] for entry in node.captures),
        after=(),
        affinity=None,
    )
    return Graph([entry for entry in inner.outputs if entry.name], variables, name, opsets, nodes=[inner])
