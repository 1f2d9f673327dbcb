"""Reader of NNVM's JSON form (see `partita.graph.writers.nnvm`): files of Partita, NNVM and MXNet.

In files of NNVM and MXNet attributes remain strings, and ops keep their names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from partita.graph.errors import PartitaError, ReadError
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.node import CONSTANT, Node, NodeEntry, frozen_attrs
from partita.graph.readers.text.parser import parse_array, parse_type, parse_value
from partita.graph.text.arrays import array_type
from partita.graph.text.literals import MAX_NESTING
from partita.graph.types import BY_MXNET_NUMBER, TensorType, Type
from partita.graph.writers import nnvm

MOST_OUTPUTS = 1024
"""Maximum plausible number of outputs of a node."""


def from_nnvm_json(text: str | bytes) -> Graph:
    """The graph in the JSON text."""
    try:
        document = json.loads(text)
    except RecursionError:
        refuse("the JSON text nests too deep", "the text")
    except (ValueError, TypeError) as error:
        refuse(f"this is not JSON text: {error}", "the text")
    with collector_paused():
        return _JsonReader().graph(document, "graph", 0)


class _JsonReader:
    def __init__(self) -> None:
        self.functions: dict[str, Graph] = {}
        self.types: dict[str, Type | None] = {}

    def graph(self, document: Any, where: str, depth: int) -> Graph:
        """Reads one graph."""
        if depth > MAX_NESTING:
            refuse(f"graphs nest more than {MAX_NESTING} deep", where)
        data = of_kind(dict, document, "an object with nodes, arg_nodes and heads", where)
        attrs = GraphAttributes(data.get("attrs", {}), where)
        raw = a_list(data.get("nodes"), f"{where}.nodes")
        counts = self.output_counts(data, raw, where)
        nodes: list[Node] = []
        for i, node in enumerate(raw):
            nodes.append(self.node(node, nodes, counts[i], attrs.ours, f"{where}.nodes[{i}]", depth))
        self.add_types(nodes, attrs, where)
        for i, number in enumerate(a_list(data.get("arg_nodes"), f"{where}.arg_nodes")):
            if nodes[an_index(number, len(nodes), f"{where}.arg_nodes[{i}]")].is_op:
                refuse(f"node {number} computes something and is not an argument", f"{where}.arg_nodes[{i}]")
        heads = [
            self.entry(head, nodes, f"{where}.heads[{i}]") for i, head in enumerate(a_list(data.get("heads"), f"{where}.heads"))
        ]
        graph = self.assembled(nodes, heads, attrs, where)
        if attrs.ours:
            self.functions[str(attrs.integer("number"))] = graph
        return graph

    def assembled(self, nodes: list[Node], heads: list[NodeEntry], attrs: GraphAttributes, where: str) -> Graph:
        """The graph of these parts."""
        if not attrs.ours:
            return checked(where, lambda: Graph(heads, [n for n in nodes if n.is_variable], nodes=nodes))
        numbers = [an_index(i, len(nodes), f"{where}.attrs.inputs") for i in attrs.integers("inputs")]
        opsets = {key: checked(where, int, text) for key, text in in_pairs(attrs.strings("opsets"), where).items()}
        return checked(
            where,
            lambda: Graph(
                heads,
                [nodes[i] for i in numbers],
                attrs.string("name"),
                opsets,
                output_names=attrs.strings("output_names"),
                nodes=nodes,
                metadata=in_pairs(attrs.strings("metadata"), where),
            ),
        )

    def output_counts(self, data: Mapping[str, Any], raw: list[Any], where: str) -> list[int]:
        """Number of outputs per node, from `node_row_ptr`, or else from the highest output that is read."""
        rows = data.get("node_row_ptr")
        if rows is None:
            return _counts_by_use(raw, data.get("heads"))
        rows = a_list(rows, f"{where}.node_row_ptr")
        if len(rows) != len(raw) + 1:
            refuse(f"{len(rows)} numbers do not fit {len(raw)} nodes", f"{where}.node_row_ptr")
        for row in rows:
            of_kind(int, row, "a number", f"{where}.node_row_ptr")
        counts = [after - before for before, after in pairwise(rows)]
        plausible = all(0 <= count <= MOST_OUTPUTS for count in counts) and sum(counts) <= 64 * len(raw) + MOST_OUTPUTS
        if rows[0] != 0 or not plausible:
            refuse("these are not plausible numbers of outputs", f"{where}.node_row_ptr")
        return counts

    def node(self, record: Any, nodes: list[Node], count: int, ours: bool, where: str, depth: int) -> Node:
        """Reads one node; its inputs have been read before."""
        data = of_kind(dict, record, "a node", where)
        op = of_kind(str, data.get("op"), "the name of an op", f"{where}.op")
        name = of_kind(str, data.get("name"), "a name", f"{where}.name")
        texts = self.texts(data, where)
        for i, body in enumerate(a_list(data.get("subgraphs", []), f"{where}.subgraphs")):
            subgraph = self.graph(body, f"{where}.subgraphs[{i}]", depth + 1)
            if not ours:
                texts[f"subgraph{i}"] = subgraph
        raw = a_list(data.get("inputs", []), f"{where}.inputs")
        entries: list[NodeEntry | None] = [self.entry(e, nodes, f"{where}.inputs[{i}]") for i, e in enumerate(raw)]
        deps = a_list(data.get("control_deps", []), f"{where}.control_deps")
        after = tuple(nodes[an_index(i, len(nodes), f"{where}.control_deps")] for i in deps)
        if ours:
            return _OwnNode(self, texts, f"{where}.attrs").node(name, op, entries, after, count)
        if op == nnvm.NULL and (entries or count != 1):
            refuse("an argument reads nothing and makes one value", where)
        names = (name,) if count == 1 else tuple(f"{name}_output{i}" for i in range(count))
        return Node(
            name, None if op == nnvm.NULL else op, tuple(entries), frozen_attrs(texts), names, (None,) * count, after=after
        )

    def texts(self, data: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The node's attributes, from any of the three keys that have been used."""
        strings: dict[str, Any] = {}
        for key in ("attrs", "attr", "param"):
            for name, value in of_kind(dict, data.get(key, {}), "an object", f"{where}.{key}").items():
                strings[name] = of_kind(str, value, "a string", f"{where}.{key}.{name}")
        return strings

    def entry(self, listed: Any, nodes: list[Node], where: str) -> NodeEntry:
        """`[node, output, version]`; the version may be absent."""
        parts = a_list(listed, where)
        if len(parts) not in (2, 3):
            refuse("a value is a node's number, an output's number and a version", where)
        if isinstance(parts[0], int) and parts[0] >= len(nodes):
            refuse(f"node {parts[0]} does not stand above: the graph has a cycle, or its nodes are not in order", where)
        node = nodes[an_index(parts[0], len(nodes), where)]
        return NodeEntry(node, an_index(parts[1], len(node.output_names), where))

    def add_types(self, nodes: list[Node], attrs: GraphAttributes, where: str) -> None:
        """Sets the type of each value from the graph's attributes."""
        total = sum(len(node.output_names) for node in nodes)
        types = self.own_types(attrs, where) if attrs.ours else attrs.shapes_and_dtypes(total)
        if types is None:
            return
        if len(types) != total:
            refuse(f"there are {total} values and {len(types)} types", f"{where}.attrs.types")
        start = 0
        for node in nodes:
            end = start + len(node.output_names)
            # The reader has just made this node, which is not shared yet.
            object.__setattr__(node, "output_types", tuple(types[start:end]))
            start = end

    def own_types(self, attrs: GraphAttributes, where: str) -> list[Type | None]:
        """The types in the text form's spelling."""
        types = []
        for text in attrs.strings("types"):
            if text not in self.types:
                self.types[text] = checked(f"{where}.attrs.types", parse_type, text)
            types.append(self.types[text])
        return types


class _OwnNode:
    """A node of a file that Partita wrote."""

    def __init__(self, reader: _JsonReader, texts: dict[str, str], where: str) -> None:
        self.reader = reader
        self.texts = texts
        self.where = where

    def node(self, name: str, op: str, entries: list[NodeEntry | None], after: tuple[Node, ...], count: int) -> Node:
        take = self.texts.pop
        value = self.array(take(nnvm.VALUE, None))
        kind = CONSTANT if value is not None else None if op == nnvm.NULL else op
        kind = take(nnvm.OP, kind)
        domain, affinity, called = take(nnvm.DOMAIN, ""), take(nnvm.AFFINITY, None), take(nnvm.CALL, None)
        names = tuple(self.strings(nnvm.OUTPUTS)) if nnvm.OUTPUTS in self.texts else (name,)
        metadata = in_pairs(self.strings(nnvm.METADATA), self.where)
        held = self.parsed(take(nnvm.CAPTURES, "0"))
        captured = len(entries) - an_index(held, len(entries) + 1, f"{self.where}.{nnvm.CAPTURES}")
        captures = tuple(entry for entry in entries[captured:] if entry is not None)
        inputs = entries[:captured]
        for i in a_list(self.parsed(take(nnvm.ABSENT, "[]")), f"{self.where}.{nnvm.ABSENT}"):
            inputs.insert(an_index(i, len(inputs) + 1, f"{self.where}.{nnvm.ABSENT}"), None)
        if len(names) != count:
            refuse(f"there are {len(names)} names for {count} outputs", self.where)
        if (kind is None or value is not None) and (entries or count != 1):
            refuse("a variable or constant reads nothing and makes one value", self.where)
        subgraph = None if called is None else self.parsed(f'func "{an_index(self.parsed(called), 10**9, self.where)}"')
        attributes = {key.removeprefix(nnvm.ESCAPE): self.parsed(text) for key, text in self.texts.items()}
        return Node(
            name,
            kind,
            tuple(inputs),
            frozen_attrs(attributes),
            names,
            (None,) * count if value is None else (array_type(value),),
            domain,
            captures,
            subgraph,
            value,
            after,
            frozen_attrs(metadata),
            affinity=affinity,
        )

    def array(self, text: str | None) -> np.ndarray[Any, Any] | None:
        return None if text is None else checked(self.where, parse_array, text)

    def parsed(self, text: str) -> Any:
        return checked(self.where, parse_value, text, self.reader.functions)

    def strings(self, key: str) -> list[str]:
        listed = a_list(self.parsed(self.texts.pop(key, "[]")), f"{self.where}.{key}")
        return [of_kind(str, text, "a string", f"{self.where}.{key}") for text in listed]


def _counts_by_use(raw: list[Any], heads: Any) -> list[int]:
    """Per node one more than the highest output index that is read (malformed entries are detected later)."""
    counts = [1] * len(raw)
    read = [entry for node in raw if isinstance(node, dict) for entry in _loose(node.get("inputs"))]
    for entry in read + _loose(heads):
        if isinstance(entry, list) and len(entry) > 1 and all(isinstance(part, int) for part in entry[:2]):
            if 0 <= entry[0] < len(raw) and 0 <= entry[1] < MOST_OUTPUTS:
                counts[entry[0]] = max(counts[entry[0]], entry[1] + 1)
    return counts


def _loose(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def refuse(cause: str, where: str) -> NoReturn:
    raise ReadError(cause, where=where, remedy="The file must be one that SaveJSON, NNVM or MXNet wrote")


def of_kind(kind: type | tuple[type, ...], value: Any, what: str, where: str) -> Any:
    """The value, checked to be of this kind (booleans are not numbers)."""
    if not isinstance(value, kind) or isinstance(value, bool):
        refuse(f"{what} is expected, not {str(value)!r:.40}", where)
    return value


def a_list(value: Any, where: str) -> list[Any]:
    return of_kind(list, value, "a list", where)


def an_index(value: Any, limit: int, where: str) -> int:
    """An integer, checked to be below the limit."""
    if not 0 <= of_kind(int, value, "a number", where) < limit:
        refuse(f"the number {value} is not below {limit}", where)
    return value


def checked(where: str, make: Callable[..., Any], *given: Any) -> Any:
    """The result of `make`; errors in it get the position in the file."""
    try:
        return make(*given)
    except PartitaError as error:
        inner = f" ({error.where})" if error.where else ""
        raise ReadError(error.cause + inner, where=where, remedy=error.remedy) from None
    except ValueError as error:
        refuse(str(error), where)


def in_pairs(texts: list[str], where: str) -> dict[str, str]:
    """The mapping in a list of alternating keys and values."""
    if len(texts) % 2:
        refuse("a key has no value", where)
    return dict(zip(texts[::2], texts[1::2], strict=True))


class GraphAttributes:
    """The tagged attributes of a graph: {"name": [tag, value]}."""

    def __init__(self, section: Any, where: str) -> None:
        self.section = of_kind(dict, section, "an object", f"{where}.attrs")
        self.where = f"{where}.attrs"
        self.ours = nnvm.FORM in self.section
        if self.ours and self.integer(nnvm.FORM) != nnvm.FORM_VERSION:
            raise ReadError(
                f"this is version {self.integer(nnvm.FORM)} of the form; version {nnvm.FORM_VERSION} is known here",
                where=self.where,
                remedy="Read it with the Partita that wrote it, or a newer one",
            )

    def tagged(self, key: str, kind: type) -> Any:
        pair = a_list(self.section.get(key), f"{self.where}.{key}")
        if len(pair) != 2:
            refuse("a graph attribute is a tag and a value", f"{self.where}.{key}")
        return of_kind(kind, pair[1], f"a value of the kind {kind.__name__}", f"{self.where}.{key}")

    def integer(self, key: str) -> int:
        return self.tagged(key, int)

    def string(self, key: str) -> str:
        return self.tagged(key, str)

    def strings(self, key: str) -> list[str]:
        return [of_kind(str, item, "a string", f"{self.where}.{key}") for item in self.tagged(key, list)]

    def integers(self, key: str) -> list[int]:
        return [of_kind(int, item, "a number", f"{self.where}.{key}") for item in self.tagged(key, list)]

    def shapes_and_dtypes(self, total: int) -> list[Type | None] | None:
        """Types from NNVM's own "shape" and "dtype", if both are present, one per value."""
        if "shape" not in self.section or "dtype" not in self.section:
            return None
        shapes = [a_list(shape, f"{self.where}.shape") for shape in self.tagged("shape", list)]
        dtypes = self.integers("dtype")
        if not len(shapes) == len(dtypes) == total:
            refuse(f"{len(shapes)} shapes and {len(dtypes)} dtypes for {total} values", self.where)
        types: list[Type | None] = []
        for shape, dtype in zip(shapes, dtypes, strict=True):
            dims = [None if of_kind(int, dim, "a size", f"{self.where}.shape") < 0 else dim for dim in shape]
            types.append(TensorType(BY_MXNET_NUMBER[dtype], dims or None) if dtype in BY_MXNET_NUMBER else None)
        return types
