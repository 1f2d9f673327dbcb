"""Validates and remaps the inputs of a node that a property returned already connected."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry
from partita.partition.bodies import Draft
from partita.partition.hooks import Hooks

UNCONNECTED = "Leave the node unconnected; connect_subgraph_inputs connects it to the values that the subgraph reads"
SEVERAL = "One node replaces the subgraph; to put several ops in its place, return call(Graph([output], inputs)) of them"
EACH = "Read each input of the subgraph, or none: a node without inputs is connected to all of them, as a call is"


class Connecting:
    """Connects the nodes of one graph's properties."""

    def __init__(self, graph: Graph, taken: set[str]) -> None:
        self._graph = graph
        self._taken = taken
        self._values: set[str] | None = None
        self._brought: dict[Node, Node] = {}

    def connected(self, hooks: Hooks, node: Node, draft: Draft, body: Graph, first: Node) -> Node:
        """The node reading the graph's values: the outer value for each of the body's inputs; constants stay.

        It has to read each of the body's inputs, unless the property connects its nodes itself."""
        outer = dict(zip(draft.variables, draft.entries, strict=True))
        allowed = set(draft.entries)
        inner = {inside.name for inside in body.nodes if inside.is_op}
        leaving = {entry.name for entry in body.outputs}
        for entry in node.reads:
            if entry.node not in outer and entry not in allowed and not entry.node.is_constant:
                cause = self._wrong(entry, node, inner, leaving)
                if cause is not None:
                    remedy = UNCONNECTED if entry.node.name else SEVERAL
                    raise hooks.error("create_subgraph_node", first, f"it returned a node that {cause}", remedy)

        def mapped(entry: NodeEntry) -> NodeEntry:
            if entry.node.is_constant:
                return NodeEntry(self._constant(entry.node), entry.index)
            return outer.get(entry.node, entry)

        inputs = tuple([None if entry is None else mapped(entry) for entry in node.inputs])
        connected = node.evolve(inputs=inputs, captures=tuple(map(mapped, node.captures)))
        if not hooks.overrides("connect_subgraph_inputs"):
            read = set(connected.reads)
            missing = [v.name for v, entry in zip(draft.variables, draft.entries, strict=True) if entry not in read]
            if missing:
                cause = f"it returned a node that reads something, and not the subgraph's inputs {', '.join(missing)}"
                raise hooks.error("create_subgraph_node", first, cause, f"{EACH}; or override connect_subgraph_inputs")
        return connected

    def _wrong(self, entry: NodeEntry, node: Node, inner: set[str], leaving: set[str]) -> str | None:
        """The reason why the node must not read this value, or None."""
        if entry.node.is_variable:
            if entry.node in self._graph.index.number:
                return None
            return f"reads %{entry.name}, which is neither an input of the subgraph nor one of the graph"
        if not entry.node.name:
            return f"reads another new op, a {entry.node.op}"
        if entry.node.name == node.name or (entry.node.name in inner and entry.name in leaving):
            return f"reads its own output: %{entry.name}"
        if entry.node.name in inner:
            return f"reads %{entry.name}, which is computed inside the subgraph that the node replaces"
        return f"reads what the subgraph does not read: %{entry.name}"

    def _constant(self, node: Node) -> Node:
        """The constant, renamed if the property added it under a name that is taken."""
        if node in self._graph.index.number or not node.name:
            return node
        if node not in self._brought:
            if self._values is None:
                self._values = {name for known in self._graph.nodes for name in known.output_names}
            name, value = unique(node.name, self._taken), unique(node.output_names[0], self._values)
            same = (name, value) == (node.name, node.output_names[0])
            self._brought[node] = node if same else node.evolve(name=name, output_names=(value,))
        return self._brought[node]
