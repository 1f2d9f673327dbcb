"""Makes bodies of groups of ops: closed graphs whose inputs are the values that enter and whose outputs are those that leave."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import attrs

from partita.graph.control_dependencies import noted_after
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry, input_like
from partita.graph.order import topological
from partita.partition.op_index import OpIndex

PLACE = attrgetter("place")

Exits = dict[tuple[int, int], None]
"""Values of a group that are used outside, each as (op, output), in order."""


@attrs.define(slots=True, eq=False)
class BodyDraft:
    """A group's body before it becomes a graph, so that the property may change its inputs."""

    members: Sequence[int]
    """The group, ascending."""
    entries: list[NodeEntry]
    """The outer value of each input."""
    variables: list[Node]
    """The input for it."""
    constants: list[Node]
    """The constants, which are copied into the body."""
    exits: list[tuple[int, int]]
    """The values that leave, as (op, output), ascending."""
    foreign: bool = False
    """True if the property replaced the body's inputs."""


def find_exits(index: OpIndex, groups: Sequence[Sequence[int]]) -> list[Exits]:
    """Per group the values that nodes outside of it use or that the graph returns. Linear."""
    owner = [-1] * len(index)
    for k, group in enumerate(groups):
        for v in group:
            owner[v] = k
    exits: list[Exits] = [{} for _ in groups]
    number = index.number
    for v, node in enumerate(index.nodes):
        mine = owner[v]
        for u in index.preds[v]:
            if owner[u] != mine and owner[u] >= 0:
                break
        else:
            continue
        for entry in node.reads if node.captures else node.inputs:
            if entry is None:
                continue
            source = number.get(entry.node, -1)
            if source >= 0 and owner[source] >= 0 and owner[source] != mine:
                exits[owner[source]][source, entry.index] = None
    for entry in index.graph.outputs:
        source = number.get(entry.node, -1)
        if source >= 0 and owner[source] >= 0:
            exits[owner[source]][source, entry.index] = None
    return exits


def draft_body(index: OpIndex, members: Sequence[int], exits: Exits, dedup: bool) -> BodyDraft:
    """Collects the values that enter, in order of first use; constants are put into the body instead."""
    nodes = index.nodes
    group = [nodes[v] for v in members]
    inside = set(group)
    entries: list[NodeEntry] = []
    constants: dict[Node, None] = {}
    seen: set[Node | tuple[Node, int]] = set()  # values; a node stands for its output 0
    for node in group:
        for entry in node.reads if node.captures else node.inputs:
            if entry is None or entry.node in inside:
                continue
            if entry.node.value is not None:
                constants[entry.node] = None
                continue
            if dedup:
                key = (entry.node, entry.index) if entry.index else entry.node
                if key in seen:
                    continue
                seen.add(key)
            entries.append(entry)
    taken = {node.name for node in group}
    values = {name for node in group for name in node.output_names}
    for constant in constants:
        taken.add(constant.name)
        values.update(constant.output_names)
    variables = [_input_for(entry, taken, values, dedup) for entry in entries]
    leaving = sorted(exits) or _last_value(nodes, members)
    return BodyDraft(members, entries, variables, list(constants), leaving)


def _last_value(nodes: Sequence[Node], members: Sequence[int]) -> list[tuple[int, int]]:
    """The last value of a group that is needed for a control dependency only: engines run no model without outputs."""
    values = [(v, i) for v in members for i, name in enumerate(nodes[v].output_names) if name]
    return values[-1:]


def _input_for(entry: NodeEntry, taken: set[str], values: set[str], share: bool) -> Node:
    """A body input with the outer value's name and type and its producer's affinity.

    A graph input is shared instead of copied."""
    maker = entry.node
    name = maker.output_names[entry.index]
    if maker.op is None and share and maker.affinity is None and maker.name not in taken and name not in values:
        taken.add(maker.name)
        values.add(name)
        return maker
    value = unique(name, values)
    return input_like(entry, unique(value, taken), value, None if maker.op is None else maker.affinity)


def build_body(index: OpIndex, draft: BodyDraft, name: str) -> Graph:
    """The closed graph: the group's own nodes if nothing changed, else copies that read the inputs."""
    nodes = index.nodes
    inner: dict[Node, dict[int, NodeEntry]] = {}  # the inner values for those of inputs and copied nodes, by output
    further: dict[tuple[Node, int], list[NodeEntry]] = {}  # the further inputs for a value, the next one last
    for outer, variable in zip(reversed(draft.entries), reversed(draft.variables), strict=True):
        if variable is not outer.node:
            first = inner.setdefault(outer.node, {})
            if outer.index in first:
                further.setdefault((outer.node, outer.index), []).append(first[outer.index])
            first[outer.index] = NodeEntry(variable, 0)

    members = [nodes[v] for v in draft.members]
    followers = [node for node in members if node.after]
    inside = set(members) if followers else set()
    crossing = any(other not in inside for node in followers for other in node.after)
    copies: dict[Node, Node] = {}
    kept = []
    values_of = inner.get
    for node in members:
        reads: list[Any] = []
        is_copy = False
        for entry in (*node.inputs, *node.captures) if node.captures else node.inputs:
            values = None if entry is None else values_of(entry.node)
            if values is None or entry is None:
                reads.append(entry)
                continue
            is_copy = True
            reads.append(values[entry.index])
            if further and further.get((entry.node, entry.index)):
                values[entry.index] = further[entry.node, entry.index].pop()
        if node.captures or node.after or crossing:
            count = len(node.inputs)
            after = tuple([copies.get(o, o) for o in node.after if o in inside])
            metadata = noted_after(node) if crossing else node.metadata
            inputs, captures = tuple(reads[:count]), tuple(reads[count:])
            copy = node.evolve(inputs=inputs, captures=captures, after=after, metadata=metadata)
        elif is_copy:
            copy = node.reading(tuple(reads))
        else:
            kept.append(node)
            continue
        copies[node] = copy
        inner[node] = {0: NodeEntry(copy, 0)} if len(copy.output_names) == 1 else dict(enumerate(copy.outputs))
        kept.append(copy)
    outputs = [NodeEntry(copies.get(nodes[v], nodes[v]), i) for v, i in draft.exits]
    if draft.foreign:
        return Graph(outputs, draft.variables, name, index.graph.opsets, nodes=[*draft.constants, *kept])
    sources = [*draft.variables, *draft.constants]
    ordered = tuple(sorted([*sources, *kept], key=PLACE)) if index.is_placed else topological([*sources, *kept])
    return Graph.assembled(ordered, draft.variables, outputs, name, index.graph.opsets)
