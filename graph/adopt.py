"""The names in a new graph: nodes without one get one, and no name stands for two nodes, two values or two outputs."""

from __future__ import annotations

from collections.abc import Sequence

from graph.errors import GraphError
from graph.node import Node, NodeEntry, name_node


def check_names(nodes: Sequence[Node]) -> None:
    """Refuse a name that two nodes have, or two values.

    Nodes without a name and absent outputs are passed over. Linear.
    """
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
                f"two nodes bear the name {node.name!r}: {first[node.name]!r} and {node!r}",
                remedy="Give one of them another name= (or none: unnamed nodes are named by the graph)",
            )


def _check_value_names(nodes: Sequence[Node]) -> None:
    first: dict[str, NodeEntry] = {}
    for node in nodes:
        for entry in node.outputs:
            if entry.name and first.setdefault(entry.name, entry) != entry:
                raise GraphError(
                    f"two values bear the name {entry.name!r}: {_described(first[entry.name])} and {_described(entry)}",
                    where=f"node {node.name!r} ({node.op or 'input'})",
                    remedy="Give one of the nodes another name=, or its values other names with output_names=[...]",
                )


def check_output_names(outputs: Sequence[NodeEntry], names: Sequence[str]) -> None:
    """Refuse a name under which two different values are to be returned; one value may be returned twice under one name."""
    if len(set(names)) == len(names):
        return
    first: dict[str, NodeEntry] = {}
    for name, entry in zip(names, outputs, strict=True):
        if first.setdefault(name, entry) != entry:
            raise GraphError(
                f"two outputs bear the name {name!r}: {_described(first[name])} and {_described(entry)}",
                remedy="Give each a name of its own in output_names=, or leave output_names out",
            )


def _described(value: NodeEntry) -> str:
    node = value.node
    if node.is_op:
        return f"output {value.index} of {repr(node.name) if node.name else 'a new node'} ({node.op})"
    return f"the {'input' if node.is_variable else 'constant'} {node.name!r}"


def name_nodes(nodes: Sequence[Node]) -> None:
    """Give each node without a name, and its values, a name that no other node or value has. Linear."""
    unnamed = [node for node in nodes if not node.name]
    if not unnamed:
        return
    taken = {name for node in nodes for name in (node.name, *node.output_names)}
    counts: dict[str, int] = {}
    for node in unnamed:
        stem = (node.op or "input").lower()
        while True:
            name = f"{stem}_{counts.setdefault(stem, 0)}"
            counts[stem] += 1
            output_names = _names_made(node, name)
            if taken.isdisjoint((name, *output_names)):
                break
        name_node(node, name, output_names or node.output_names)
        taken.update((name, *output_names))


def _names_made(node: Node, name: str) -> tuple[str, ...]:
    """The names that the node's values get with it; none if they have names already, and those without one are absent."""
    count = len(node.output_names)
    if any(node.output_names):
        return ()
    return (name,) if count == 1 else tuple([f"{name}_{i}" for i in range(count)])
