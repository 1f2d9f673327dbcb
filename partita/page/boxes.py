"""A graph as boxes: one for each op, nested in those of calls and bodies, with edges between the innermost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.graph.errors import GraphError
from partita.graph.formatting import counted, truncated
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType, Type
from partita.page.scene import NOWHERE, Item, Value

MOST_OPS = 60_000
"""Maximum number of boxes of a page; calls beyond that are drawn closed."""

LONGEST = 160
"""Maximum length of a text; longer ones are cut."""

MOST_DETAILS = 24
"""Maximum number of weights and attributes listed for a node."""


class Boxes:
    """Items, values and edges of a graph with all calls opened."""

    def __init__(self, graph: Graph, owners: Mapping[str, str]) -> None:
        """`owners`: the owner of each call without a device, by name."""
        self.items: list[Item] = []
        self.values: list[Value] = []
        self.edges: list[tuple[int, int]] = []
        self.calls: list[tuple[int, Node]] = []
        """Outermost calls, with their items."""
        self.by_name: dict[str, int] = {}
        """Item of each input, op and call by name: the first with that name."""
        self._owners = owners
        self._seen: set[tuple[int, int]] = set()
        if len(graph.nodes) > MOST_OPS:
            raise GraphError(
                f"the page can show {MOST_OPS:,} nodes at the outermost level, and the graph has {len(graph.nodes):,}",
                where=f"graph {graph.name!r}",
                remedy="Partition it into larger subgraphs first (growth='largest'), or look at plan.to_json()",
            )
        ends = self._graph(graph, NOWHERE, "", {})
        for name, end in zip(graph.output_names, ends, strict=True):
            box = self._add(Item("output", name, "output", NOWHERE))
            self._edge(end, box)

    def _add(self, item: Item) -> int:
        self.items.append(item)
        if item.kind in ("input", "op", "call"):
            self.by_name.setdefault(item.name, len(self.items) - 1)
        return len(self.items) - 1

    def _edge(self, value: int, box: int) -> None:
        if value >= 0 and self.values[value].source != box and (value, box) not in self._seen:
            self._seen.add((value, box))
            self.edges.append((value, box))

    def _graph(self, graph: Graph, parent: int, owner: str, bound: Mapping[Node, int]) -> list[int]:
        """Draw the nodes.

        `bound` has the values of a body's inputs. Returns the indices of the outputs' values."""
        values: dict[NodeEntry, int] = {}
        for node in graph.nodes:
            if node.is_constant:
                continue
            if node in bound:
                values[NodeEntry(node)] = bound[node]
            elif node.subgraph is not None:
                self._call(node, parent, owner, values)
            else:
                self._node(node, parent, owner, values)
        return [values.get(entry, NOWHERE) for entry in graph.outputs]

    def _node(self, node: Node, parent: int, owner: str, values: dict[NodeEntry, int]) -> None:
        kind = "input" if node.is_variable else "op"
        here = "" if node.is_variable else node.affinity or owner
        box = self._add(Item(kind, node.name, op_name(node) or "input", parent, here, _details(node)))
        for entry in node.reads:
            self._edge(values.get(entry, NOWHERE), box)
        for name, body in node.bodies:
            inner = self._add(Item("body", name, _contents(body), box, here))
            formal = len(body.inputs) - len(node.captures)
            captured = [values.get(entry, NOWHERE) for entry in node.captures]
            self._graph(body, inner, here, dict(zip(body.inputs[formal:], captured)))
        self._values(node, box, values)

    def _values(self, node: Node, box: int, values: dict[NodeEntry, int]) -> None:
        for entry in node.outputs:
            values[entry] = len(self.values)
            self.values.append(Value(box, entry.name, "" if entry.type is None else str(entry.type), nbytes(entry.type)))

    def _call(self, node: Node, parent: int, owner: str, values: dict[NodeEntry, int]) -> None:
        assert node.subgraph is not None
        here = node.affinity or self._owners.get(node.name) or owner
        box = self._add(Item("call", node.name, _contents(node.subgraph), parent, here, _details(node)))
        if parent == NOWHERE:
            self.calls.append((box, node))
        bound = [NOWHERE if entry is None else values.get(entry, NOWHERE) for entry in node.inputs]
        body = node.subgraph
        if len(self.items) + len(body.nodes) > MOST_OPS or len(body.inputs) != len(bound):
            for value in bound:
                self._edge(value, box)
            self._values(node, box, values)
            return
        values.update(zip(node.outputs, self._graph(body, box, here, dict(zip(body.inputs, bound)))))


def op_name(node: Node) -> str:
    """The op with its domain, except ONNX's own."""
    return f"{node.domain}::{node.op}" if node.domain else node.op or ""


def nbytes(kind: Type | None) -> int:
    """Size in bytes of a value of this type; -1 if unknown."""
    size = kind.nbytes if isinstance(kind, TensorType) else None
    return NOWHERE if size is None else size


def count_ops(body: Graph) -> int:
    """Number of ops in a body."""
    return sum(node.is_op for node in body.nodes)


def _contents(body: Graph) -> str:
    return counted(count_ops(body), "op")


def _details(node: Node) -> tuple[str, ...]:
    """Weights and attributes, a line each."""
    if node.is_variable:
        return ()
    held = [entry for entry in node.reads if entry.node.is_constant]
    lines = [f"weight {entry.name}" + (f": {entry.type}" if entry.type else "") for entry in dict.fromkeys(held)]
    lines += [f"{key} = {_attribute(value)}" for key, value in node.attrs.items() if not any(_graphs(value))]
    kept = [truncated(line, LONGEST) for line in lines[:MOST_DETAILS]]
    return tuple(kept) if len(kept) == len(lines) else (*kept, f"… {len(lines) - len(kept)} more")


def _graphs(value: Any) -> list[bool]:
    return [isinstance(item, Graph) for item in (value if isinstance(value, (list, tuple)) else (value,))]


def _attribute(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and len(value) > 16:
        return f"{list(value[:16])} … {len(value)} in all".replace("] …", ", …]")
    return repr(value)[: 4 * LONGEST]
