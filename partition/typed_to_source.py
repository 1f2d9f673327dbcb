"""Maps nodes of the typed copy of a graph, which hooks see, back to the original graph.

Types that were inferred for the hooks are not part of the result: the original graph is partitioned and inlined."""

from __future__ import annotations

from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.partition.with_types import Typed


class Declared:
    """The original nodes of a typed copy. Nodes are identified by their names, which copies keep."""

    def __init__(self, typed: Typed) -> None:
        pairs = [(copy, own) for copy, own in zip(typed.graph.nodes, typed.source.nodes, strict=True) if copy is not own]
        self._own = dict(pairs)
        self._copies = {own: copy for copy, own in pairs}
        self._pairs = {own.name: (copy, own) for copy, own in pairs}

    def entry(self, entry: NodeEntry) -> NodeEntry:
        """The original graph's value for one of the copy."""
        own = self._own.get(entry.node)
        return entry if own is None else NodeEntry(own, entry.index)

    def shown(self, node: Node) -> Node:
        """A hook's node, reading the copy's values instead of the original graph's: a hook may have kept the latter."""

        def copied(entry: NodeEntry) -> NodeEntry:
            copy = self._copies.get(entry.node)
            return entry if copy is None else NodeEntry(copy, entry.index)

        inputs = tuple([None if entry is None else copied(entry) for entry in node.inputs])
        return node.evolve(inputs=inputs, captures=tuple(map(copied, node.captures)))

    def input(self, entry: NodeEntry | None) -> NodeEntry | None:
        """Like `entry`, for an input, which may be absent."""
        return None if entry is None else self.entry(entry)

    def adjusted(self, copy: Node, changed: Node) -> Node:
        """The node that a hook made from a copied node, reading the original graph's values."""
        own = self._own.get(copy)
        if own is None:
            return changed
        return self._restored(changed, copy, own).evolve(inputs=own.inputs, captures=own.captures, after=own.after)

    def body(self, body: Graph) -> Graph:
        """A body whose ops have their original types, unless a hook changed them. Linear."""

        def visit(node: Node, rewriter: Rewriter) -> None:
            rebuilt = rewriter.rebuilt(node)
            pair = self._pairs.get(node.name) if node.is_op else None
            if pair is not None:
                rebuilt = self._restored(rebuilt, *pair)
            rewriter.keep(node, map_bodies(rebuilt, self.body))

        return rewrite(body, visit)

    @staticmethod
    def _restored(node: Node, copy: Node, own: Node) -> Node:
        changes: dict[str, Any] = {}
        for field in ("output_types", "attrs", "subgraph"):
            mine = getattr(own, field)
            if getattr(node, field) is getattr(copy, field) is not mine:
                changes[field] = mine
        return node.evolve(**changes) if changes else node
