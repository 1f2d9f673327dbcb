"""Graphs of a single op, for engines, compilers and shape rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from partita.graph.build import variable
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry


def graph_of_node(
    node: Node, opsets: Mapping[str, int], stand_in: Callable[[NodeEntry, int], NodeEntry], name: str = "single"
) -> Graph:
    """A graph of this op alone.

    For each value that the op reads, inputs first and then captures, `stand_in` returns its replacement: a constant,
    or a variable, which becomes an input of the graph, renamed if the op or a constant has its name. It is called once
    per value, with the number of variables so far."""
    stand_ins: dict[NodeEntry, NodeEntry] = {}
    variables: list[Node] = []
    taken = {node.name, *node.output_names, *(entry.node.name for entry in node.reads if entry.node.value is not None)}
    for entry in node.reads:
        if entry not in stand_ins:
            stands = stand_in(entry, len(variables))
            if stands.node.value is None:
                stands = _under(unique(stands.node.name, taken), stands)
                variables.append(stands.node)
            stand_ins[entry] = stands
    inner = node.evolve(
        inputs=tuple(None if entry is None else stand_ins[entry] for entry in node.inputs),
        captures=tuple(stand_ins[entry] for entry in node.captures),
        after=(),
        affinity=None,
    )
    return Graph([entry for entry in inner.outputs if entry.name], variables, name, opsets, nodes=[inner])


def _under(name: str, entry: NodeEntry) -> NodeEntry:
    """The variable with this name."""
    return entry if entry.node.name == name else variable(name, type=entry.type)[0]
