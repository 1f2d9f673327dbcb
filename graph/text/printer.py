"""Printer of the text form.
The document is the opset line, the bodies of calls (callee before caller), and the graph itself:

    opset 21

    func relu6(a: float32[N]) -> (b) {
      b = Clip(a) : float32[N]
    }

    graph net(x: float32[N]) -> (fused0, again=fused0) {
      fused0 = call relu6(x) : float32[N] @cpu
    }"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from partita.graph.errors import WriteError
from partita.graph.nested import bodies_of
from partita.graph.node import Node, NodeEntry
from partita.graph.text.arrays import array_type, print_payload
from partita.graph.text.literals import MAX_NESTING, print_type, print_value
from partita.graph.text.words import quoted, word

if TYPE_CHECKING:
    from partita.graph.graph import Graph

BIG = 16
"""Arrays with more elements than this are printed as a reference, `#hash`."""

WIDTH = 110
"""A graph's head that is longer gets one line per input."""

KEYWORDS = frozenset({"const", "input", "call"})
"""Ops with these names are quoted."""


def print_graph(graph: Graph, *, big: int | None = BIG, types: bool = True) -> str:
    """The graph as text, which `parse` reads back exactly: nodes, names, types, order, shared bodies, all but `graph.attrs`.

    Arrays of more than `big` elements are printed as the hash of their content, which `parse` looks up; with None
    each is written in full. `types=False` omits the types of computed values, for human readers only. Linear."""
    return _Printer(graph, big, types).document(graph)


class _Printer:
    def __init__(self, graph: Graph, big: int | None, types: bool) -> None:
        self.big = big
        self.types = types
        self.opsets = graph.opsets
        self.functions = _functions(graph)
        self.labels = _labels(self.functions)

    def document(self, graph: Graph) -> str:
        parts = [_opset_line(self.opsets)]
        for body in self.functions:
            label = self.labels[id(body)]
            named = "" if label == body.name else f" named {word(body.name)}"
            parts.append("\n" + self.graph(body, f"func {word(label)}{named}", ""))
        parts.append("\n" + self.graph(graph, f"graph {word(graph.name)}", ""))
        return "\n".join(parts)

    def graph(self, graph: Graph, head: str, indent: str) -> str:
        """Prints the graph's head and its statements, up to the closing brace."""
        if len(indent) >= 4 * MAX_NESTING:
            raise WriteError(f"graphs nest more than {MAX_NESTING} deep", where=f"graph {graph.name!r}")
        values = _references(graph)
        inner = indent + "  "
        inputs = [self.input(node, values, inner) for node in graph.inputs]
        results = ", ".join(_output(name, values(e)) for name, e in zip(graph.output_names, graph.outputs, strict=True))
        first = f"{head}({', '.join(inputs)}) -> ({results}) {{"
        if len(indent) + len(first) > WIDTH and inputs:
            lines = [f"{head}(", *(f"{inner}{text}," for text in inputs), f"{indent}) -> ({results}) {{"]
        else:
            lines = [first]
        if graph.opsets != self.opsets:
            lines.append(inner + _opset_line(graph.opsets))
        if graph.metadata:
            lines.append(inner + _metadata(graph.metadata))
        placed = _placed_by_head(graph)
        for node in graph.nodes:
            if not node.is_variable:
                lines.append(inner + self.node(node, values, inner))
            elif node not in placed:
                lines.append(f"{inner}{word(node.name)} = input")
        if len(lines) == 1:
            return lines[0] + "}"
        lines.append(indent + "}")
        return "\n".join(lines)

    def input(self, node: Node, values: _References, indent: str) -> str:
        """Prints a graph input in the head."""
        if len(node.output_names) != 1 or node.reads or node.after or node.domain or node.subgraph is not None:
            raise WriteError("a graph input makes one value and does nothing else", where=f"node {node.name!r}")
        name, declared = node.output_names[0], node.output_types[0]
        shown = "" if declared is None else f": {print_type(declared)}"
        return f"{word(name) if name else '_'}{shown}{self.tail(node, values, indent)}"

    def node(self, node: Node, values: _References, indent: str) -> str:
        """Prints one statement."""
        results = ", ".join([word(name) if name else "_" for name in node.output_names]) or "()"
        shown = ""
        if node.value is not None:
            if len(node.output_names) != 1 or node.inputs or node.domain or not node.is_constant:
                raise WriteError("a constant makes one value and does nothing else", where=f"node {node.name!r}")
            natural = array_type(node.value)
            body = f"const {print_type(natural)} {print_payload(node.value, self.big)}"
            if node.output_types[0] != natural:
                shown = f" : {print_type(node.output_types[0])}"
        else:
            body = self.operation(node, values)
            if self.types and any(t is not None for t in node.output_types):
                shown = f" : {', '.join(map(print_type, node.output_types))}"
        return f"{results} = {body}{self.tail(node, values, indent, shown)}"

    def operation(self, node: Node, values: _References) -> str:
        """Prints the operation: op and inputs."""
        inputs = ", ".join(["_" if entry is None else values(entry) for entry in node.inputs])
        name = node.op or ""
        if node.subgraph is not None:
            label = word(self.labels[id(node.subgraph)])
            if name == "Call" and node.domain == "partita":
                return f"call {label}({inputs})"
            return f"{_op(name, node.domain)}({inputs}) calls {label}"
        return f"{_op(name, node.domain)}({inputs})"

    def tail(self, node: Node, values: _References, indent: str, types: str = "") -> str:
        """Prints whatever follows the operation: attributes, then the node's other parts."""
        parts = []
        if node.attrs:
            parts.append(self.attributes(node, indent))
        if node.captures:
            parts.append(f" captures({', '.join(map(values, node.captures))})")
        if node.after:
            parts.append(f" after({', '.join(word(n.name) for n in node.after)})")
        if not node.output_names or node.output_names[0] != node.name:
            parts.append(f" name={word(node.name)}")
        parts.append(types)
        if node.affinity is not None:
            parts.append(f" @{word(node.affinity)}")
        if node.metadata:
            parts.append(f" {_metadata(node.metadata)}")
        return "".join(parts)

    def attributes(self, node: Node, indent: str) -> str:
        """Prints the attributes in braces; if there is a body among them, one per line."""
        where = f"node {node.name!r}"
        if not node.bodies or all(id(body) in self.labels for _, body in node.bodies):
            pairs = [f"{word(key)}={self.value(value, where, indent)}" for key, value in node.attrs.items()]
            return f" {{{', '.join(pairs)}}}"
        inner = indent + "  "
        pairs = [f"{inner}{word(key)}={self.value(value, where, inner)},\n" for key, value in node.attrs.items()]
        return f" {{\n{''.join(pairs)}{indent}}}"

    def value(self, value: Any, where: str, indent: str) -> str:
        """Prints an attribute's value."""
        return print_value(value, self.big, where, lambda body: self.body(body, indent))

    def body(self, body: Graph, indent: str) -> str:
        """Prints a graph as an attribute's value: its label if it is printed separately, or the graph itself."""
        label = self.labels.get(id(body))
        return self.graph(body, f"graph {word(body.name)}", indent) if label is None else f"func {word(label)}"


class _References:
    """References to a graph's values: by name, or by node and index if the name is ambiguous."""

    def __init__(self, doubtful: frozenset[str]) -> None:
        self.doubtful = doubtful
        """The empty name, and names of several values: `verify` rejects such a graph, but it can still be printed."""

    def __call__(self, entry: NodeEntry) -> str:
        name = entry.node.output_names[entry.index]
        return f"%{word(entry.node.name)}[{entry.index}]" if name in self.doubtful else word(name)


def _references(graph: Graph) -> _References:
    seen: set[str] = set()
    doubtful = {""}
    for node in graph.nodes:
        for name in node.output_names:
            if name in seen:
                doubtful.add(name)
            seen.add(name)
    return _References(frozenset(doubtful))


def _output(name: str, reference: str) -> str:
    return reference if word(name) == reference else f"{word(name)}={reference}"


def _op(name: str, domain: str) -> str:
    spelled = quoted(name) if name in KEYWORDS else word(name)
    return f"{word(domain)}::{spelled}" if domain else spelled


def _opset_line(opsets: Any) -> str:
    entries = [f"{word(domain)} {version}" if domain else f"{version}" for domain, version in opsets.items()]
    return f"opset {', '.join(entries)}"


def _metadata(metadata: Any) -> str:
    return f"metadata {{{', '.join(f'{word(key)}={quoted(value)}' for key, value in metadata.items())}}}"


def _placed_by_head(graph: Graph) -> set[Node]:
    """The inputs that come first among the nodes in the order of the head; each of the others gets a line at its place."""
    position = {node: i for i, node in enumerate(graph.inputs)}
    placed: set[Node] = set()
    last = -1
    for node in graph.nodes:
        if not node.is_variable or position[node] < last:
            break
        last = position[node]
        placed.add(node)
    return placed


def _bodies_in(graph: Graph) -> Iterator[tuple[Graph, bool]]:
    """All graphs that the nodes hold, and whether each is the body of a call."""
    for node in graph.nodes:
        for body in bodies_of(node):
            yield body, body is node.subgraph


def _functions(graph: Graph) -> list[Graph]:
    """The bodies printed separately: those of calls, and those that are used several times; callees first."""
    order: list[Graph] = []
    apart: set[int] = set()
    seen: set[int] = set()
    path = [(graph, _bodies_in(graph))]
    while path:
        repeated = next(path[-1][1], None)
        if repeated is None:
            order.append(path.pop()[0])
            continue
        body, called = repeated
        if called or id(body) in seen:
            apart.add(id(body))
        if id(body) not in seen:
            seen.add(id(body))
            path.append((body, _bodies_in(body)))
    return [body for body in order if id(body) in apart]


def _labels(functions: list[Graph]) -> dict[int, str]:
    """A unique label for each body that is printed separately."""
    taken: set[str] = set()
    counts: dict[str, int] = {}
    labels = {}
    for body in functions:
        label = body.name
        while label in taken:
            counts[body.name] = counts.get(body.name, 1) + 1
            label = f"{body.name}_{counts[body.name]}"
        taken.add(label)
        labels[id(body)] = label
    return labels
