"""Names defined so far by a graph's statements."""

from __future__ import annotations

from partita.graph.node import Node, NodeEntry
from partita.graph.text.lexer import Lexer


class Scope:
    """Values and nodes of one graph, in the order of the text."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.order: list[Node] = []
        """The nodes."""
        self._nodes: dict[str, Node] = {}
        self._values: dict[str, NodeEntry] = {}

    def add(self, node: Node, start: int) -> None:
        """Adds a node whose statement begins at `start`."""
        if node.name and self._nodes.setdefault(node.name, node) is not node:
            self.lexer.fail(f"there are two nodes named {node.name!r}", start=start, remedy="Give this one another name=")
        self.order.append(node)
        for i, name in enumerate(node.output_names):
            if name in self._values:
                remedy = f"{self._values[name].node.name!r} makes the first; give this one another"
                self.lexer.fail(f"there are two values named {name!r}", start=start, remedy=remedy)
            if name:
                self._values[name] = NodeEntry(node, i)

    def value(self, name: str, start: int) -> NodeEntry:
        """The value of that name."""
        entry = self._values.get(name)
        if entry is None:
            self.lexer.fail(
                f"there is no value {name!r} above",
                start=start,
                remedy="A value stands in the text before what reads it; bodies are closed and read inputs of their own",
            )
        return entry

    def output(self, name: str, index: int, start: int) -> NodeEntry:
        """Output number `index` of the node of that name."""
        node = self.node(name, start)
        if index >= len(node.output_names):
            self.lexer.fail(f"node {name!r} has no output {index}", start=start)
        return NodeEntry(node, index)

    def node(self, name: str, start: int) -> Node:
        """The node of that name."""
        node = self._nodes.get(name)
        if node is None:
            self.lexer.fail(f"there is no node {name!r} above", start=start)
        return node
