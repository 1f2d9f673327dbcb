"""Names of values in the file: their own whenever ONNX's rules allow it."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.errors import WriteError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry


class FileNames:
    """The names in one graph of the file; a body sees those of enclosing graphs and may not reuse them."""

    def __init__(self, outer: FileNames | None = None) -> None:
        self.outer = outer
        """The names of the enclosing graph."""
        self.own: set[str] = set()
        """The names defined in this graph itself, including captured ones."""
        self.changed: dict[Node, list[str]] = {}
        """Output names in the file, for nodes whose own names differ from these."""
        self._counts: dict[str, int] = {}

    def of(self, entry: NodeEntry) -> str:
        """The value's name in the file."""
        return self.changed.get(entry.node, entry.node.output_names)[entry.index]

    def is_taken(self, name: str) -> bool:
        """True if the name is defined here, or in an enclosing graph."""
        level: FileNames | None = self
        while level is not None:
            if name in level.own:
                return True
            level = level.outer
        return False

    def fresh(self, name: str) -> str:
        """The name, or one made from it, which is then marked as taken."""
        free_name = name
        while self.is_taken(free_name):
            count = self._counts[name] = self._counts.get(name, 0) + 1
            free_name = f"{name}_{count}"
        self.own.add(free_name)
        return free_name

    def bind(self, entry: NodeEntry, name: str) -> None:
        """Sets the value's name in the file."""
        self.own.add(name)
        if entry.name != name:
            self.changed.setdefault(entry.node, list(entry.node.output_names))[entry.index] = name

    def bind_rest(self, nodes: Sequence[Node], bound: set[NodeEntry]) -> None:
        """Binds all other values to their own names, or ones made from them."""
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
    """Each output's name in the file, and the source of an Identity for it, if it needs one.

    A value computed here takes the name of its first output. The names are `fixed` in the outermost graph; there an
    input may be an output under its own name. In a body, an engine would take such an output for an outer value."""
    bound_names: list[tuple[str, NodeEntry | None]] = []
    for entry, own in zip(graph.outputs, graph.output_names, strict=True):
        if entry in bound and names.of(entry) == own and names.outer is None:
            bound_names.append((own, None))
            continue
        if fixed and own in names.own:
            raise WriteError(
                f"the output {own!r} has the name of another value that is an input or output",
                where=f"graph {graph.name!r}",
                remedy="ONNX identifies outputs by name alone; rename this one with graph.evolve(output_names=...)",
            )
        name = names.fresh(own)
        if entry in bound:
            bound_names.append((name, entry))
        else:
            names.bind(entry, name)
            bound.add(entry)
            bound_names.append((name, None))
    return bound_names

