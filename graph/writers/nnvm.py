"""Writer of NNVM's JSON form with Partita's extensions, and its keywords.

NNVM's form has nodes with an op ("null" for variables and constants), a name, attributes that are strings, inputs
`[node, output, version]`, control dependencies and subgraphs; `arg_nodes`, `node_row_ptr` (where each node's outputs
begin among all values), `heads` (the outputs), and graph attributes tagged by their type. Everything else that a graph
of ours has goes where NNVM's own readers keep it without interpreting it: into node attributes named `__like_this__`,
and into graph attributes. Attribute values are spelled as in the text form.

Constants are "null" nodes whose `__value__` holds the array, in base64 if it is large, so the file needs no other.
A body that is used several times is written once and numbered; its other uses refer to that number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from partita.graph.errors import WriteError
from partita.graph.graph import Graph
from partita.graph.nested import bodies_of
from partita.graph.node import Node, NodeEntry
from partita.graph.text.literals import MAX_NESTING, print_array, print_type, print_value
from partita.graph.text.words import quoted
from partita.graph.types import ELEMENT_TYPES, TensorType

NULL = "null"
"""The op of variables and constants."""

PREFIX = "__"
"""Prefix and suffix of Partita's own attributes."""

ESCAPE = "__attr__"
"""Prefix that escapes a node attribute whose name looks like one of Partita's own."""

OP = "__op__"
"""The op, if its name is "null"."""

DOMAIN = "__domain__"
"""The op's domain."""

OUTPUTS = "__outputs__"
"""Names of the outputs, unless there is one output with the node's name."""

ABSENT = "__absent__"
"""Positions of absent inputs."""

CAPTURES = "__captures__"
"""Number of inputs, at the end, that are captures."""

CALL = "__call__"
"""The number of the body that is called."""

AFFINITY = "__affinity__"
"""The requested device."""

METADATA = "__metadata__"
"""Keys and values in turn."""

VALUE = "__value__"
"""The array of a constant."""

FORM = "partita"
"""The graph attribute that marks Partita's files; its value is the version of the form."""

FORM_VERSION = 1
"""The version written here."""


def to_nnvm_json(graph: Graph) -> str:
    """The graph as JSON text, including its arrays. `from_nnvm_json` reads it back exactly. Linear."""
    return json.dumps(_JsonWriter().graph(graph, 0), indent=1)


class _JsonWriter:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def graph(self, graph: Graph, depth: int) -> dict[str, Any]:
        """One graph, with each body inside the first node that holds it."""
        if depth > MAX_NESTING:
            raise WriteError(f"graphs nest more than {MAX_NESTING} deep", where=f"graph {graph.name!r}")
        number = self.numbers.setdefault(id(graph), len(self.numbers))
        position = {node: i for i, node in enumerate(graph.nodes)}
        nodes = [self.node(node, position, depth) for node in graph.nodes]
        rows = [0]
        for node in graph.nodes:
            rows.append(rows[-1] + len(node.output_names))
        types = [t for node in graph.nodes for t in node.output_types]
        return {
            "nodes": nodes,
            "arg_nodes": [i for i, node in enumerate(graph.nodes) if not node.is_op],
            "node_row_ptr": rows,
            "heads": [_entry(entry, position) for entry in graph.outputs],
            "attrs": {
                FORM: ["int", FORM_VERSION],
                "number": ["int", number],
                "name": ["str", graph.name],
                "opsets": ["list_str", _in_turn({key: str(version) for key, version in graph.opsets.items()})],
                "inputs": ["list_int", [position[node] for node in graph.inputs]],
                "output_names": ["list_str", list(graph.output_names)],
                "metadata": ["list_str", _in_turn(graph.metadata)],
                "types": ["list_str", [print_type(t) for t in types]],
                "shape": ["list_shape", [_shape(t) for t in types]],
                "dtype": ["list_int", [_dtype(t) for t in types]],
            },
        }

    def node(self, node: Node, position: Mapping[Node, int], depth: int) -> dict[str, Any]:
        """One node."""
        subgraphs = [self.graph(body, depth + 1) for body in bodies_of(node) if id(body) not in self.numbers]
        record: dict[str, Any] = {"op": node.op if node.is_op else NULL, "name": node.name}
        attributes = self.attributes(node)
        if attributes:
            record["attrs"] = attributes
        record["inputs"] = [_entry(entry, position) for entry in node.reads]
        if node.after:
            record["control_deps"] = [position[other] for other in node.after]
        if subgraphs:
            record["subgraphs"] = subgraphs
        return record

    def attributes(self, node: Node) -> dict[str, str]:
        """The node's attributes, and everything that NNVM has no field for, as strings."""
        where = f"node {node.name!r}"
        texts = {
            ESCAPE + key if key.startswith(PREFIX) else key: print_value(value, None, where, self.reference)
            for key, value in node.attrs.items()
        }
        absent = [i for i, entry in enumerate(node.inputs) if entry is None]
        extra = {
            OP: NULL if node.is_op and node.op == NULL else None,
            DOMAIN: node.domain or None,
            OUTPUTS: None if node.output_names == (node.name,) else _strings(node.output_names),
            ABSENT: str(absent) if absent else None,
            CAPTURES: str(len(node.captures)) if node.captures else None,
            CALL: None if node.subgraph is None else str(self.numbers[id(node.subgraph)]),
            AFFINITY: node.affinity,
            METADATA: _strings(_in_turn(node.metadata)) if node.metadata else None,
            VALUE: None if node.value is None else print_array(node.value, None),
        }
        texts.update((key, text) for key, text in extra.items() if text is not None)
        return texts

    def reference(self, body: Graph) -> str:
        """The reference to a body in an attribute."""
        number = self.numbers.get(id(body))
        if number is None:
            raise WriteError("a graph is in a list inside a list", where=f"graph {body.name!r}")
        return f'func "{number}"'


def _entry(entry: NodeEntry, position: Mapping[Node, int]) -> list[int]:
    return [position[entry.node], entry.index, 0]


def _in_turn(pairs: Mapping[str, str]) -> list[str]:
    return [text for pair in pairs.items() for text in pair]


def _strings(texts: Any) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def _shape(value_type: Any) -> list[int]:
    """Sizes, -1 if unknown; a type without a shape is empty."""
    shape = value_type.shape if isinstance(value_type, TensorType) else None
    return [dim if isinstance(dim, int) else -1 for dim in shape or ()]


def _dtype(value_type: Any) -> int:
    number = ELEMENT_TYPES[value_type.dtype].mxnet if isinstance(value_type, TensorType) else None
    return -1 if number is None else number
