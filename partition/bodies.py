"""From a group of ops to a body: a closed graph whose inputs are the values that enter and whose outputs are those that leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.types import Type
from partition.op_index import OpIndex


AFTER = "partita.after"
"""The metadata key that keeps, by name, the control dependencies of nodes about a border that one crosses."""

Exits = dict[tuple[int, int], None]
"""Values of a group that are used outside, each as (op, output), in order."""


@attrs.define(slots=True, eq=False)
class Draft:
    """A group's body before it is a graph, so that the property may change its inputs."""

    members: Sequence[int]
    """The group, ascending."""
    entries: list[NodeEntry]
    """The outer value of each input."""
    variables: list[Node]
    """The input that stands for it."""
    exits: list[tuple[int, int]]
    """The values that leave, as (op, output), ascending."""


def find_exits(index: OpIndex, groups: Sequence[Sequence[int]]) -> list[Exits]:
    """For each group the values used by nodes outside it or returned by the graph. Linear."""
    owner = [-1] * len(index)
    for k, group in enumerate(groups):
        for v in group:
            owner[v] = k
    exits: list[Exits] = [{} for _ in groups]
    number = index.number
    for v, node in enumerate(index.nodes):
        mine = owner[v]
        for u in index.preds[v]:
            if owner[u] >= 0 and owner[u] != mine:
                break
        else:
            continue
        for entry in node.reads:
            source = number.get(entry.node, -1)
            if source >= 0 and owner[source] >= 0 and owner[source] != mine:
                exits[owner[source]][source, entry.index] = None
    for entry in index.graph.outputs:
        source = number.get(entry.node, -1)
        if source >= 0 and owner[source] >= 0:
            exits[owner[source]][source, entry.index] = None
    return exits


TypeOf = Callable[[NodeEntry], Type | None]
"""What is known of a value's type."""


def draft_body(index: OpIndex, members: Sequence[int], exits: Exits, dedup: bool, type_of: TypeOf) -> Draft:
    """Find what enters: values in the order in which they are first read; constants come along instead of entering."""
    nodes, number = index.nodes, index.number
    inside = set(members)
    entries: list[NodeEntry] = []
    seen: set[tuple[int, int]] = set()
    for v in members:
        node = nodes[v]
        for entry in node.reads if node.captures else node.inputs:
            if entry is None:
                continue
            source = entry.node
            if source.value is not None or number.get(source, -1) in inside:
                continue
            key = (id(source), entry.index)
            if not dedup:
                entries.append(entry)
            elif key not in seen:
                seen.add(key)
                entries.append(entry)
    taken = {nodes[v].name for v in members}
    values = {name for v in members for name in nodes[v].output_names}
    variables = [_input_for(entry, taken, values, dedup, type_of) for entry in entries]
    return Draft(members, entries, variables, sorted(exits))


def _input_for(entry: NodeEntry, taken: set[str], values: set[str], share: bool, type_of: TypeOf) -> Node:
    """A body input named after the outer value, with its type and its maker's affinity.

    A graph input stands for itself: it is shared, not copied."""
    maker = entry.node
    affinity = None if maker.is_variable else maker.affinity
    if maker.is_variable and share and maker.affinity is None and maker.name not in taken and maker.output_names[0] not in values:
        taken.add(maker.name)
        values.add(maker.output_names[0])
        return maker
    value = unique(entry.name, values)
    return Node(unique(value, taken), None, output_names=(value,), output_types=(type_of(entry),), affinity=affinity)


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken; it is taken from then on."""
    made, count = name, 0
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    taken.add(made)
    return made


def build_body(index: OpIndex, draft: Draft, name: str, dedup: bool) -> Graph:
    """The closed graph: the group's own nodes where nothing changed, else copies that read the inputs."""
    graph, nodes = index.graph, index.nodes
    made: dict[Node, Node] = {}
    stands: dict[tuple[int, int], list[NodeEntry]] = {}
    for outer, variable in zip(draft.entries, draft.variables, strict=True):
        stands.setdefault((id(outer.node), outer.index), []).append(NodeEntry(variable, 0))
    if not dedup:
        for waiting in stands.values():
            waiting.reverse()

    def inner(entry: NodeEntry | None) -> NodeEntry | None:
        if entry is None:
            return None
        node = made.get(entry.node)
        if node is not None:
            return entry if node is entry.node else NodeEntry(node, entry.index)
        variables = stands.get((id(entry.node), entry.index))
        if variables is None:
            return entry  # a constant
        return variables[-1] if dedup else variables.pop()

    inside = {nodes[v] for v in draft.members}
    crossing = any(other not in inside for node in inside if node.after for other in node.after)
    for v in draft.members:
        node = nodes[v]
        moved = _moved(node, [inner(e) for e in node.inputs], node.captures and [inner(e) for e in node.captures], made)
        made[node] = moved.evolve(metadata=noted_after(node)) if crossing else moved
    outputs = [NodeEntry(made[nodes[v]], i) for v, i in draft.exits]
    return Graph(outputs, draft.variables, name, graph.opsets, nodes=made.values())


def _moved(
    node: Node, inputs: Sequence[NodeEntry | None], captures: Sequence[NodeEntry | None], made: Mapping[Node, Node]
) -> Node:
    """The node inside the body: reading these values, after those nodes alone that came along."""
    changes: dict[str, object] = {}
    if any(new is not old and (new is None or old is None or new.node is not old.node) for new, old in zip(inputs, node.inputs, strict=True)):
        changes["inputs"] = tuple(inputs)
    if any(new is not old for new, old in zip(captures, node.captures, strict=True)):
        changes["captures"] = tuple(captures)
    if node.after:
        changes["after"] = tuple(made[other] for other in node.after if other in made)
    return node.evolve(**changes) if changes else node


def noted_after(node: Node) -> Mapping[str, str]:
    """The node's metadata with its control dependencies by name."""
    return {**node.metadata, AFTER: json.dumps([other.name for other in node.after])}


def common_affinity(affinities: Iterable[str | None]) -> str | None:
    """The one affinity that all have; None if they differ."""
    found = set(affinities)
    return found.pop() if len(found) == 1 else None
