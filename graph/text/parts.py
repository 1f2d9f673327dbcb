"""Reading the parts of a statement: references, attributes, and what else follows an operation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from graph.graph import Graph
from graph.node import NOTHING, Node, NodeEntry, frozen_attrs
from graph.text.reader import Reader
from graph.text.scope import Scope
from graph.types import Type


class Tail:
    """What may follow a node's operation."""

    __slots__ = ("affinity", "after", "attrs", "captures", "metadata", "name", "types")

    def __init__(self) -> None:
        self.attrs: Mapping[str, Any] = NOTHING
        self.captures: tuple[NodeEntry, ...] = ()
        self.after: tuple[Node, ...] = ()
        self.name: str | None = None
        self.types: list[Type | None] | None = None
        self.affinity: str | None = None
        self.metadata: Mapping[str, str] = NOTHING


class PartReader(Reader, ABC):
    """A reader that knows the functions above and can read a graph inside."""

    def __init__(self, text: str, constants: Any) -> None:
        super().__init__(text, constants)
        self.functions: dict[str, Graph] = {}

    @abstractmethod
    def graph(self, name: str) -> Graph:
        """A graph from its inputs to its closing brace."""

    def value_name(self) -> str:
        """The name of a value that is made here; `_` makes none."""
        if self.lexer.at_word("_"):
            self.lexer.advance()
            return ""
        return self.name("the name of a value")

    def reference_parts(self) -> tuple[str, int | None]:
        """`value`, or `%node[1]`."""
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
        """A value that is read."""
        start = self.lexer.start
        name, index = self.reference_parts()
        return scope.value(name, start) if index is None else scope.output(name, index, start)

    def earlier_node(self, scope: Scope) -> Node:
        """A node by name."""
        start = self.lexer.start
        return scope.node(self.name("the name of a node"), start)

    def optional_value(self, scope: Scope) -> NodeEntry | None:
        """The same, or `_` for an absent one."""
        if self.lexer.at_word("_"):
            self.lexer.advance()
            return None
        return self.value(scope)

    def function_named(self) -> Graph:
        """A function that stands above."""
        start, label = self.lexer.start, self.name("the name of a function")
        made = self.functions.get(label)
        if made is None:
            self.lexer.fail(f"there is no function {label!r} above", start=start, remedy="Write func before what calls it")
        return made

    def tail(self, scope: Scope, on_line: bool = True) -> Tail:
        """Attributes and what else a node has, in any order, up to the end of the line."""
        lexer = self.lexer
        made = Tail()
        while not (on_line and lexer.on_new_line):
            if lexer.take("{"):
                made.attrs = frozen_attrs(self.pairs())
            elif lexer.take(":"):
                made.types = [self.type()]
                while lexer.take(","):
                    made.types.append(self.type())
            elif lexer.take("@"):
                made.affinity = self.name("a device")
            elif lexer.kind != "word":
                break
            elif lexer.token == "name":
                lexer.advance()
                lexer.need("=")
                made.name = self.name("the node's name")
            elif lexer.token == "captures":
                lexer.advance()
                lexer.need("(")
                made.captures = tuple(self.listed(lambda: self.value(scope), ")"))
            elif lexer.token == "after":
                lexer.advance()
                lexer.need("(")
                made.after = tuple(self.listed(lambda: self.earlier_node(scope), ")"))
            elif lexer.token == "metadata":
                made.metadata = frozen_attrs(self.metadata())
            else:
                break
        return made

    def metadata(self) -> dict[str, str]:
        """`metadata {key="text"}`."""
        self.lexer.advance()
        start = self.lexer.start
        self.lexer.need("{")
        made = self.pairs()
        if not all(isinstance(value, str) for value in made.values()):
            self.lexer.fail("the values of metadata are strings", start=start)
        return made

    def pairs(self) -> dict[str, Any]:
        """`key=value, ...}`."""
        made: dict[str, Any] = {}

        def pair() -> None:
            start, key = self.lexer.start, self.name("the name of an attribute")
            self.lexer.need("=")
            value = self.attribute()
            if key in made:
                self.lexer.fail(f"{key!r} is given twice", start=start)
            made[key] = value

        self.listed(pair, "}")
        return made

    def attribute(self) -> Any:
        """The value of an attribute."""
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
