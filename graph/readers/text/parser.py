"""Parser of the text form, printed by `partita.graph.text.printer` or written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from partita.graph.errors import ReadError
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import DEFAULT_OPSET, Graph
from partita.graph.node import CONSTANT, NOTHING, Node, NodeEntry, next_place
from partita.graph.readers.text.parts import PartReader, Scope
from partita.graph.text.arrays import array_type
from partita.graph.types import Type


def parse(text: str, constants: Graph | Mapping[str, np.ndarray[Any, Any]] | None = None) -> Graph:
    """The graph in the text. The nodes are in the order of the text.

    `constants` has the arrays printed as `#hash`: a graph that holds them, or a mapping from hash to array;
    by default the arrays that this process has printed and that are still alive. Linear.

    >>> print(parse("graph net(x: float32[N]) -> (y) { y = Relu(x) }"))
    opset 21
    <BLANKLINE>
    graph net(x: float32[N]) -> (y) {
      y = Relu(x)
    }
    """
    if not isinstance(text, str):
        raise ReadError(f"the text form of a graph is a string, not {type(text).__name__}", remedy="Use load for files")
    with collector_paused():
        return _GraphParser(text, constants).document()


def parse_type(text: str) -> Type | None:
    """Parses a type."""
    parser = _GraphParser(text, None)
    return parser.alone(parser.type)


def parse_array(text: str, constants: Any = None) -> np.ndarray[Any, Any]:
    """Parses the type and content of an array."""
    parser = _GraphParser(text, constants)
    return parser.alone(parser.array)


def parse_value(text: str, functions: Mapping[str, Graph], constants: Any = None) -> Any:
    """Parses an attribute's value; `func LABEL` in it is looked up in `functions`."""
    parser = _GraphParser(text, constants)
    parser.functions.update(functions)
    return parser.alone(parser.attribute)


class _GraphParser(PartReader):
    def __init__(self, text: str, constants: Any) -> None:
        super().__init__(text, constants)
        self.opsets: dict[str, int] = {"": DEFAULT_OPSET}

    def document(self) -> Graph:
        """Reads the opset line, the bodies of calls, and the graph."""
        lexer = self.lexer
        if lexer.at_word("opset"):
            self.opsets = self.opset_line()
        while lexer.at_word("func"):
            self.function()
        if not lexer.at_word("graph"):
            lexer.expected("graph, func or opset")
        lexer.advance()
        graph = self.graph(self.name("the graph's name"))
        if lexer.kind != "end":
            lexer.expected("the end of the text after the graph")
        return graph

    def alone(self, read: Callable[[], Any]) -> Any:
        """The result of `read`; raises if more text follows."""
        value = read()
        if self.lexer.kind != "end":
            self.lexer.expected("the end of the text")
        return value

    def function(self) -> None:
        """Reads the named body of calls."""
        lexer = self.lexer
        lexer.advance()
        start, label = lexer.start, self.name("the function's name")
        name = label
        if lexer.at_word("named"):
            lexer.advance()
            name = self.name("the graph's name")
        body = self.graph(name)
        if self.functions.setdefault(label, body) is not body:
            lexer.fail(f"there are two functions {label!r}", start=start)

    def opset_line(self) -> dict[str, int]:
        """Reads a line such as `opset 21, ai.onnx.ml 3`."""
        self.lexer.advance()
        opsets: dict[str, int] = {}
        while True:
            domain = "" if self.lexer.kind == "int" else self.name("an opset: a domain and a number")
            opsets[domain] = self.integer("the opset's number")
            if not self.lexer.take(","):
                return opsets

    def graph(self, name: str) -> Graph:
        """Reads a graph from its inputs to its closing brace."""
        return self.nested(lambda: self.closed_graph(name))

    def closed_graph(self, name: str) -> Graph:
        lexer = self.lexer
        start = lexer.start
        scope = Scope(lexer)
        lexer.need("(")
        inputs = self.listed(lambda: self.input(scope), ")")
        lexer.need("->")
        lexer.need("(")
        heads = self.listed(self.result, ")")
        lexer.need("{")
        opsets = self.opsets
        if lexer.at_word("opset") and lexer.following() not in ("=", ","):
            opsets = self.opset_line()
        metadata: Mapping[str, str] = NOTHING
        if lexer.at_word("metadata") and lexer.following() == "{":
            metadata = self.metadata()
        while not lexer.take("}"):
            self.statement(scope)
        outputs = [scope.value(n, at) if i is None else scope.output(n, i, at) for _, n, i, at in heads]
        output_names = [head[0] for head in heads]
        return self.checked(
            lambda: Graph(
                outputs, inputs, name, opsets, output_names=output_names, nodes=scope.order, metadata=metadata
            ),
            start=start,
        )

    def input(self, scope: Scope) -> Node:
        """Reads an input in the head of a graph."""
        lexer = self.lexer
        start, name = lexer.start, self.value_name()
        declared = self.type() if lexer.take(":") else None
        tail = self.tail(scope, on_line=False)
        node = Node(
            name if tail.name is None else tail.name,
            None,
            (),
            tail.attrs,
            (name,),
            (declared,),
            metadata=tail.metadata,
            affinity=tail.affinity,
        )
        scope.add(node, start)
        return node

    def result(self) -> tuple[str, str, int | None, int]:
        """Reads a graph output: its name, and its value (resolved when the statements are read)."""
        start = self.lexer.start
        if self.lexer.kind == "mark":
            self.lexer.expected("the name of an output")
        name = self.name("the name of an output")
        if self.lexer.take("="):
            value = self.lexer.start
            return (name, *self.reference_parts(), value)
        return name, name, None, start

    def statement(self, scope: Scope) -> None:
        """Reads one node, or the place of an input."""
        lexer = self.lexer
        start = lexer.start
        names: list[str] = []
        if lexer.take("("):
            lexer.need(")")
        else:
            names.append(self.value_name())
            while lexer.take(","):
                names.append(self.value_name())
        lexer.need("=")
        if lexer.at_word("input"):
            lexer.advance()
            self.place_input(scope, names, start)
            return
        op, domain, inputs, value, subgraph = self.operation(scope)
        tail = self.tail(scope)
        types = tail.types
        if types is None:
            types = [None] * len(names) if value is None else [array_type(value)]
        if len(types) != len(names):
            lexer.fail(f"there are {len(names)} values and {len(types)} types", start=start)
        name = tail.name if tail.name is not None else names[0] if names else ""
        node = Node(
            name,
            op,
            inputs,
            tail.attrs,
            tuple(names),
            tuple(types),
            domain,
            tail.captures,
            subgraph,
            value,
            tail.after,
            tail.metadata,
            affinity=tail.affinity,
        )
        scope.add(node, start)

    def place_input(self, scope: Scope, names: list[str], start: int) -> None:
        """Handles `x = input`: the input's place in the order is here, and not at the head."""
        if len(names) != 1:
            self.lexer.fail("the place of one input is expected", start=start)
        node = scope.node(names[0], start)
        if not node.is_variable:
            self.lexer.fail(f"{names[0]!r} is not an input of the graph", start=start)
        # The parser has just made this node, which is not shared yet.
        object.__setattr__(node, "place", next_place())

    def operation(
        self, scope: Scope
    ) -> tuple[str, str, tuple[NodeEntry | None, ...], np.ndarray[Any, Any] | None, Graph | None]:
        """Reads op, domain, inputs, the array of a constant, and the body of a call."""
        lexer = self.lexer
        if lexer.at_word("const"):
            lexer.advance()
            return CONSTANT, "", (), self.array(), None
        if lexer.at_word("call"):
            lexer.advance()
            body = self.function_named()
            return "Call", "partita", self.arguments(scope), None, body
        op, domain = self.name("an op, const, call or input"), ""
        if lexer.take("::"):
            op, domain = self.name("an op"), op
        inputs = self.arguments(scope)
        subgraph = None
        if lexer.at_word("calls") and not lexer.on_new_line:
            lexer.advance()
            subgraph = self.function_named()
        return op, domain, inputs, None, subgraph

    def arguments(self, scope: Scope) -> tuple[NodeEntry | None, ...]:
        """Reads the inputs in parentheses after an op."""
        self.lexer.need("(")
        return tuple(self.listed(lambda: self.optional_value(scope), ")"))
