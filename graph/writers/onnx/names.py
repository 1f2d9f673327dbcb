"""The names that values have in the file: their own wherever ONNX's rules allow."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.errors import WriteError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry


class FileNames:
    """The names in one graph of the file; a body sees those around it and may not use them again."""

    def __init__(self, outer: FileNames | None = None) -> None:
        self.outer = outer
        """The names around."""
        self.own: set[str] = set()
        """The names that mean something in this very graph, captured ones included."""
        self.changed: dict[Node, list[str]] = {}
        """The output names of those nodes that have others in the file."""
        self._counts: dict[str, int] = {}

    def of(self, entry: NodeEntry) -> str:
        """The value's name in the file."""
        return self.changed.get(entry.node, entry.node.output_names)[entry.index]

    def taken(self, name: str) -> bool:
        """Does the name mean something here, or in a graph around?"""
        level: FileNames | None = self
        while level is not None:
            if name in level.own:
                return True
            level = level.outer
        return False

    def fresh(self, name: str) -> str:
        """The name, or one made from it, that is free from here on."""
        free_name = name
        while self.taken(free_name):
            count = self._counts[name] = self._counts.get(name, 0) + 1
            free_name = f"{name}_{count}"
        self.own.add(free_name)
        return free_name

    def bind(self, entry: NodeEntry, name: str) -> None:
        """The value has this name in the file."""
        self.own.add(name)
        if entry.name != name:
            self.changed.setdefault(entry.node, list(entry.node.output_names))[entry.index] = name

    def bind_rest(self, nodes: Sequence[Node], bound: set[NodeEntry]) -> None:
        """All other values take their own names, or ones made from them."""
        own, main = self.own, self.outer is None
        for node in nodes:
            for i, name in enumerate(node.output_names):
                if not name or (bound and NodeEntry(node, i) in bound):
                    continue
                if main and name not in own:
                    own.add(name)
                else:
                    self.bind(NodeEntry(node, i), self.fresh(name))


def bind_outputs(names: FileNames, graph: Graph, bound: set[NodeEntry], fixed: bool) -> list[tuple[str, NodeEntry | None]]:
    """Each output's name in the file, and the value that an Identity has to give it, where one has to.

    A value made here takes the name of the first output that it is. The names are `fixed` in the outermost graph; there an
    input may be an output under its own name, while in a body an engine would take it for an outer value."""
    bound_names: list[tuple[str, NodeEntry | None]] = []
    for entry, own in zip(graph.outputs, graph.output_names, strict=True):
        if entry in bound and names.of(entry) == own and names.outer is None:
            bound_names.append((own, None))
            continue
        if fixed and own in names.own:
            raise WriteError(
                f"the output {own!r} bears the name of another value that is an input or output",
                where=f"graph {graph.name!r}",
                remedy="ONNX knows outputs by their names alone; give this one another, with graph.evolve(output_names=...)",
            )
        name = names.fresh(own)
        if entry in bound:
            bound_names.append((name, entry))
        else:
            names.bind(entry, name)
            bound.add(entry)
            bound_names.append((name, None))
    return bound_names

