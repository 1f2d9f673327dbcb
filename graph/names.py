"""Names that no other node or value has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from partita.graph.errors import GraphError
from partita.graph.nested import graphs_in
from partita.graph.node import Body, Node, NodeEntry, name_node, replace_attributes
from partita.graph.rewrite import Rewriter, map_bodies, rewrite


def unique(name: str, taken: set[str], counts: dict[str, int] | None = None) -> str:
    """The name, with a number appended if it is taken; it is then marked as taken.

    `counts` keeps the last number of each name, so that a series of calls tries no number twice."""
    numbers = {} if counts is None else counts
    free_name = name
    while free_name in taken:
        count = numbers[name] = numbers.get(name, 0) + 1
        free_name = f"{name}_{count}"
    taken.add(free_name)
    return free_name


def check_names(nodes: Sequence[Node]) -> None:
    """Raises if two nodes, or two values, have the same name.

    Nodes without a name and absent outputs are skipped. Linear."""
    names = {node.name for node in nodes}
    if len(names) < len(nodes):
        _check_node_names(nodes)
    values = [name for node in nodes for name in node.output_names]
    if len(set(values)) < len(values):
        _check_value_names(nodes)


def _check_node_names(nodes: Sequence[Node]) -> None:
    first: dict[str, Node] = {}
    for node in nodes:
        if node.name and first.setdefault(node.name, node) is not node:
            raise GraphError(
                f"two nodes are named {node.name!r}: {first[node.name]!r} and {node!r}",
                remedy="Give one of them another name= (or none: unnamed nodes are named by the graph)",
            )


def _check_value_names(nodes: Sequence[Node]) -> None:
    first: dict[str, NodeEntry] = {}
    for node in nodes:
        for entry in node.outputs:
            if entry.name and first.setdefault(entry.name, entry) != entry:
                raise GraphError(
                    f"two values are named {entry.name!r}: {_described(first[entry.name])} and {_described(entry)}",
                    where=f"node {node.name!r} ({node.op or 'input'})",
                    remedy="Give one of the nodes another name=, or its values other names with output_names=[...]",
                )


def check_output_names(outputs: Sequence[NodeEntry], names: Sequence[str]) -> None:
    """Raises if two different values are returned under one name; one value may be returned twice under one name."""
    if len(set(names)) == len(names):
        return
    first: dict[str, NodeEntry] = {}
    for name, entry in zip(names, outputs, strict=True):
        if first.setdefault(name, entry) != entry:
            raise GraphError(
                f"two outputs are named {name!r}: {_described(first[name])} and {_described(entry)}",
                remedy="Give each a name of its own in output_names=, or leave output_names out",
            )


def _described(value: NodeEntry) -> str:
    node = value.node
    if node.is_op:
        return f"output {value.index} of {repr(node.name) if node.name else 'a new node'} ({node.op})"
    return f"the {'input' if node.is_variable else 'constant'} {node.name!r}"


def name_nodes(nodes: Sequence[Node]) -> None:
    """Gives unnamed nodes, and their values, names that no other node or value has. Linear."""
    unnamed = [node for node in nodes if not node.name]
    if not unnamed:
        return
    taken = {name for node in nodes for name in (node.name, *node.output_names)}
    taken.update(inner.name for node in nodes if node.attrs for inner in _inside(node))
    counts: dict[str, int] = {}
    for node in unnamed:
        stem = (node.op or "input").lower()
        while True:
            name = f"{stem}_{counts.setdefault(stem, 0)}"
            counts[stem] += 1
            output_names = _value_names(node, name)
            if taken.isdisjoint((name, *output_names)):
                break
        name_node(node, name, output_names or node.output_names)
        taken.update((name, *output_names))


def name_bodies_apart(nodes: Sequence[Node]) -> None:
    """Renames ops in bodies whose generated names also occur in this graph or in other bodies. Linear."""
    holders = [node for node in nodes if node.attrs and node.is_op and any(isinstance(v, Body) for v in node.attrs.values())]
    if not holders:
        return
    taken = {node.name for node in nodes if node.is_op}
    reserved = taken | {inner.name for node in holders for inner in _inside(node)}
    for node in holders:
        changed = {}
        for key, body in node.bodies:
            if key != "subgraph" and any(inner.name in taken for inner in _nodes_in(body)):
                changed[key] = body = _renamed(body, taken, reserved)
            taken.update(inner.name for inner in _nodes_in(body))
        if changed:
            replace_attributes(node, {**node.attrs, **changed})


def _inside(node: Node) -> Iterator[Node]:
    """The ops in the node's bodies."""
    for _, body in node.bodies:
        yield from _nodes_in(body)


def _nodes_in(body: Body) -> Iterator[Node]:
    return (node for graph in graphs_in(body) for node in graph.nodes if node.is_op)  # type: ignore[arg-type]


def _renamed(body: Any, taken: set[str], reserved: set[str]) -> Any:
    """The body with new names for ops whose generated names are taken."""
    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        stem, _, number = node.name.rpartition("_")
        if node.is_op and node.name in taken and number.isdigit() and stem == (node.op or "").lower():
            count = int(number)
            while f"{stem}_{count}" in reserved:
                count += 1
            name = f"{stem}_{count}"
            reserved.add(name)
            length = len(node.name)
            values = [name + value[length:] if value.startswith(node.name) else value for value in node.output_names]
            rebuilt = rebuilt.evolve(name=name, output_names=tuple(values))
        rewriter.keep(node, map_bodies(rebuilt, lambda inner: _renamed(inner, taken, reserved)) if rebuilt.bodies else rebuilt)

    return rewrite(body, visit)


def _value_names(node: Node, name: str) -> tuple[str, ...]:
    """The names of the node's values once it has this name; empty if any value has a name (values without one are absent)."""
    count = len(node.output_names)
    if any(node.output_names):
        return ()
    return (name,) if count == 1 else tuple([f"{name}_{i}" for i in range(count)])
