"""Parsing of the parts of a statement: references, attributes, and whatever follows an operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import NOTHING, Node, NodeEntry, frozen_attrs
from partita.graph.readers.text.lexer import Lexer
from partita.graph.readers.text.reader import StatementReader
from partita.graph.types import Type


class Tail:
    """The optional parts after a node's operation."""

    __slots__ = ("affinity", "after", "attrs", "captures", "metadata", "name", "types")

    def __init__(self) -> None:
        self.attrs: Mapping[str, Any] = NOTHING
        self.captures: tuple[NodeEntry, ...] = ()
        self.after: tuple[Node, ...] = ()
        self.name: str | None = None
        self.types: list[Type | None] | None = None
        self.affinity: str | None = None
        self.metadata: Mapping[str, str] = NOTHING


class PartReader(StatementReader, ABC):
    """A reader with the functions read so far, which can read nested graphs."""

    def __init__(self, text: str, constants: Any) -> None:
        super().__init__(text, constants)
        self.functions: dict[str, Graph] = {}

    @abstractmethod
    def graph(self, name: str) -> Graph:
        """Reads a graph from its inputs to its closing brace."""

    def value_name(self) -> str:
        """Reads the name of a new value; empty for `_`."""
        if self.lexer.at_word("_"):
            self.lexer.advance()
            return ""
        return self.name("the name of a value")

    def reference_parts(self) -> tuple[str, int | None]:
        """Reads a reference to a value: its name, or `%node[1]`."""
        if not self.lexer.take("%"):
            return self.name("a value"), None
        node = self.name("the name of a node")
        self.lexer.need("[")
        index = self.integer("the number of an output")
        self.lexer.need("]")
        if index < 0:
            self.lexer.fail(f"there is no output {index}")
        return node, index

    def value(self, scope: Scope) -> NodeEntry:
        """Reads a reference and returns the value."""
        start = self.lexer.start
        name, index = self.reference_parts()
        return scope.value(name, start) if index is None else scope.output(name, index, start)

    def earlier_node(self, scope: Scope) -> Node:
        """Reads the name of a node and returns the node."""
        start = self.lexer.start
        return scope.node(self.name("the name of a node"), start)

    def optional_value(self, scope: Scope) -> NodeEntry | None:
        """Like `value`, or None for `_`."""
        if self.lexer.at_word("_"):
            self.lexer.advance()
            return None
        return self.value(scope)

    def function_named(self) -> Graph:
        """Reads the label of a function and returns it; it must be defined above."""
        start, label = self.lexer.start, self.name("the name of a function")
        function = self.functions.get(label)
        if function is None:
            self.lexer.fail(f"there is no function {label!r} above", start=start, remedy="Write func before what calls it")
        return function

    def tail(self, scope: Scope, on_line: bool = True) -> Tail:
        """Reads the optional parts of a node, in any order, up to the end of the line."""
        lexer = self.lexer
        tail = Tail()
        while not (on_line and lexer.on_new_line):
            if lexer.take("{"):
                tail.attrs = frozen_attrs(self.pairs())
            elif lexer.take(":"):
                tail.types = [self.type()]
                while lexer.take(","):
                    tail.types.append(self.type())
            elif lexer.take("@"):
                tail.affinity = self.name("a device")
            elif lexer.kind != "word":
                break
            elif lexer.token == "name":
                lexer.advance()
                lexer.need("=")
                tail.name = self.name("the node's name")
            elif lexer.token == "captures":
                lexer.advance()
                lexer.need("(")
                tail.captures = tuple(self.listed(lambda: self.value(scope), ")"))
            elif lexer.token == "after":
                lexer.advance()
                lexer.need("(")
                tail.after = tuple(self.listed(lambda: self.earlier_node(scope), ")"))
            elif lexer.token == "metadata":
                tail.metadata = frozen_attrs(self.metadata())
            else:
                break
        return tail

    def metadata(self) -> dict[str, str]:
        """Reads metadata: `metadata {key="text"}`."""
        self.lexer.advance()
        start = self.lexer.start
        self.lexer.need("{")
        pairs = self.pairs()
        if not all(isinstance(value, str) for value in pairs.values()):
            self.lexer.fail("the values of metadata are strings", start=start)
        return pairs

    def pairs(self) -> dict[str, Any]:
        """Reads pairs up to the closing brace: `key=value, ...}`."""
        pairs: dict[str, Any] = {}

        def pair() -> None:
            start, key = self.lexer.start, self.name("the name of an attribute")
            self.lexer.need("=")
            value = self.attribute()
            if key in pairs:
                self.lexer.fail(f"{key!r} is given twice", start=start)
            pairs[key] = value

        self.listed(pair, "}")
        return pairs

    def attribute(self) -> Any:
        """Reads the value of an attribute."""
        lexer = self.lexer
        if lexer.at("["):
            numbers = self.integers()
            if numbers is not None:
                return numbers
        if lexer.take("["):
            return self.nested(lambda: self.listed(self.attribute, "]"))
        if lexer.take("("):
            return self.nested(lambda: tuple(self.listed(self.attribute, ")")))
        if lexer.at_word("graph"):
            lexer.advance()
            return self.graph(self.name("the graph's name"))
        if lexer.at_word("func"):
            lexer.advance()
            return self.function_named()
        return self.plain()


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
                remedy="A value comes before what reads it; bodies are closed and read inputs of their own",
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
