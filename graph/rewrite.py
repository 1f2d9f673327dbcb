"""Rewriting of graphs: unchanged nodes are shared, readers of changed values are rebuilt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.graph.gc_pause import collector_paused
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

if TYPE_CHECKING:
    from partita.graph.graph import Graph


class Rewriter:
    """Visit the graph's nodes in order; `keep`, `replace` or omit each; then `finish`.

    The values of an omitted node must be replaced if they are still read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes: dict[Node, Node] = {}
        self._values: dict[NodeEntry, NodeEntry] = {}
        self._kept: list[Node] = []

    def value(self, entry: NodeEntry) -> NodeEntry:
        """The new graph's value for this value of the old graph."""
        replacement = self._values.get(entry) if self._values else None
        if replacement is not None:
            return replacement
        node = self._nodes.get(entry.node, entry.node)
        return entry if node is entry.node else NodeEntry(node, entry.index)

    def rebuilt(self, node: Node, **changes: Any) -> Node:
        """The node reading the new values, with these fields changed; the same object if nothing changes."""
        if not (self._nodes or self._values):
            return node.evolve(**changes) if changes else node
        inputs = [None if e is None else self.value(e) for e in node.inputs]
        if any(map(is_not, inputs, node.inputs)):
            changes["inputs"] = tuple(inputs)
        if node.captures:
            captures = [self.value(e) for e in node.captures]
            if any(map(is_not, captures, node.captures)):
                changes["captures"] = tuple(captures)
        if node.after:
            changes["after"] = tuple([self._nodes.get(n, n) for n in node.after])
        return node.evolve(**changes) if changes else node

    def keep(self, node: Node, replacement: Node | None = None) -> Node:
        """Keeps the node, as `replacement` (by default `rebuilt`). Its values keep their indices."""
        replacement = self.rebuilt(node) if replacement is None else replacement
        if replacement is not node:
            self._nodes[node] = replacement
        self._kept.append(replacement)
        return replacement

    def replace(self, old: NodeEntry, new: NodeEntry) -> None:
        """Replaces `old` by `new`, a value of the new graph."""
        self._values[old] = new

    def finish(self, **changes: Any) -> Graph:
        """The new graph; constructor arguments given here take precedence. Graph attributes are carried over."""
        graph = self.graph
        fields: dict[str, Any] = {
            "outputs": [self.value(entry) for entry in graph.outputs],
            "inputs": [self._nodes.get(node, node) for node in graph.inputs],
            "nodes": self._kept,
        }
        fields.update(changes)
        if not (changes or self._nodes or self._values or len(self._kept) != len(graph.nodes)) and all(
            _same(fields[key], getattr(graph, key)) for key in ("outputs", "inputs")
        ):
            return graph
        return graph.evolve(**fields)


def _same(a: Iterable[Any], b: Iterable[Any]) -> bool:
    return all(x is y or (isinstance(x, NodeEntry) and x == y) for x, y in zip(a, b, strict=True))


def rewrite(graph: Graph, visit: Callable[[Node, Rewriter], None]) -> Graph:
    """Calls `visit` for each node in order with the rewriter, on which it keeps or replaces the node."""
    with collector_paused():
        rewriter = Rewriter(graph)
        try:
            for node in graph.nodes:
                visit(node, rewriter)
        except Exception as error:
            error.add_note(f"node {node.name!r} ({node.op})")
            raise
        return rewriter.finish()


def with_changes(graph: Graph, changes: Callable[[Node], Mapping[str, Any]]) -> Graph:
    """The graph with these fields of each node changed; a node without changes is shared, unless what it reads has changed."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node, rewriter.rebuilt(node, **changes(node)))

    return rewrite(graph, visit)


def with_affinities(graph: Graph, labels: Mapping[str, str]) -> Graph:
    """The graph with copies of the ops named here, each with its label as affinity."""
    return with_changes(graph, lambda node: {"affinity": labels[node.name]} if node.is_op and node.name in labels else {})


def with_sizes_of(graph: Graph, arrays: Sequence[Any]) -> Graph:
    """The graph with the sizes of these arrays as its inputs' sizes, and without types for the ops' results."""
    given = dict(zip(graph.inputs, arrays, strict=True))

    def changes(node: Node) -> dict[str, Any]:
        kind = node.output_types[0] if node.is_variable else None
        if isinstance(kind, TensorType) and isinstance(given[node], np.ndarray):
            return {"output_types": (attrs.evolve(kind, shape=given[node].shape),)}
        return {"output_types": (None,) * len(node.output_names)} if node.is_op else {}

    return with_changes(graph, changes)


def map_bodies(node: Node, change: Callable[[Graph], Graph]) -> Node:
    """The node with each of its bodies changed; the same object if none is."""
    new = {key: change(body) for key, body in node.bodies}
    if all(new[key] is body for key, body in node.bodies):
        return node
    subgraph = new.pop("subgraph", node.subgraph)
    return node.evolve(attrs={**node.attrs, **new}, subgraph=subgraph)
