"""Makes bodies of groups of ops: closed graphs whose inputs are the values that enter and whose outputs are those that leave."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import attrs
import numpy as np

from partita.graph.control_dependencies import noted_after
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry, input_like
from partita.graph.order import topological
from partita.partition.op_index import OpIndex

PLACE = attrgetter("place")

Exits = set[tuple[int, int]]
"""Values of a group that are used outside, each as (op, output)."""


@attrs.define(slots=True, eq=False)
class BodyDraft:
    """A group's body before it becomes a graph, so that the property may change its inputs."""

    members: Sequence[int]
    """The group, ascending."""
    entries: list[NodeEntry]
    """The outer value of each input, in order of first use."""
    constants: tuple[Node, ...]
    """The constants, which are copied into the body."""
    exits: list[tuple[int, int]]
    """The values that leave, as (op, output), ascending."""
    dedup: bool
    """True if each outer value enters only once."""
    variables: list[Node] = attrs.field(factory=list)
    """The input for each outer value, once they are made."""
    foreign: bool = False
    """True if the property replaced the body's inputs."""


def find_exits(index: OpIndex, groups: Sequence[Sequence[int]]) -> list[Exits]:
    """Per group the values that nodes outside of it use or that the graph returns. Linear."""
    nodes, edges = index.nodes, index.value_edges()
    owner = [-1] * len(index)
    for k, group in enumerate(groups):
        for v in group:
            owner[v] = k
    exits: list[Exits] = [set() for _ in groups]
    home = np.array(owner, np.int64)
    origin = home[edges.producers]
    leaving = edges.where((origin >= 0) & (origin != home[edges.consumers]))
    several = np.zeros(len(nodes), bool)  # the ops of several outputs that others read
    for u in np.flatnonzero(np.bincount(leaving.producers)).tolist():
        if len(nodes[u].output_names) == 1:
            exits[owner[u]].add((u, 0))
        else:
            several[u] = True
    readers = [(owner[v], nodes[v].reads) for v in set(leaving.consumers[several[leaving.producers]].tolist())]
    for mine, entries in [*readers, (-1, index.graph.outputs)]:
        for entry in entries:
            u = index.number.get(entry.node, -1)
            if u >= 0 and owner[u] >= 0 and owner[u] != mine:
                exits[owner[u]].add((u, entry.index))
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
            if entry is None or (maker := entry.node) in inside:
                continue
            if maker.value is not None:
                constants[maker] = None
                continue
            if dedup:
                key = (maker, entry.index) if entry.index else maker
                if key in seen:
                    continue
                seen.add(key)
            entries.append(entry)
    return BodyDraft(members, entries, tuple(constants), sorted(exits) or _last_value(nodes, members), dedup)


def _last_value(nodes: Sequence[Node], members: Sequence[int]) -> list[tuple[int, int]]:
    """The last value of a group that is needed for a control dependency only: engines run no model without outputs."""
    values = [(v, i) for v in members for i, name in enumerate(nodes[v].output_names) if name]
    return values[-1:]


def add_inputs(index: OpIndex, draft: BodyDraft) -> None:
    """Makes the body's inputs."""
    named = [*(index.nodes[v] for v in draft.members), *draft.constants]
    taken = {node.name for node in named}
    values = {name for node in named for name in node.output_names}
    draft.variables = [_input_for(index, entry, taken, values, draft.dedup) for entry in draft.entries]


def _input_for(index: OpIndex, entry: NodeEntry, taken: set[str], values: set[str], share: bool) -> Node:
    """A body input with the outer value's name and type and its producer's affinity.

    A graph input is shared instead of copied."""
    maker = entry.node
    name = maker.output_names[entry.index]
    if share and maker in index.plain_inputs and maker.name not in taken and name not in values:
        taken.add(maker.name)
        values.add(name)
        return maker
    value = unique(name, values)
    affinity = None if maker.op is None else index.affinity[index.number[maker]]
    return input_like(entry, unique(value, taken), value, affinity)


def deferred_body(index: OpIndex, draft: BodyDraft, name: str) -> Graph:
    """The body, which is built when it is read, from the affinities that the index has."""

    def build() -> Graph:
        own = attrs.evolve(draft)  # another thread may build at the same time
        with collector_paused():
            return build_body(index, own, name)

    return Graph.deferred(build, name, index.graph.opsets)


def build_body(index: OpIndex, draft: BodyDraft, name: str) -> Graph:
    """The closed graph: the group's own nodes if nothing changed, else copies that read the inputs, which are made if they are
    not there yet."""
    if not draft.variables:
        add_inputs(index, draft)
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
    for v, node in zip(draft.members, members, strict=True):
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
        if copy.affinity != index.affinity[v]:
            copy.affinity = index.affinity[v]
        copies[node] = copy
        inner[node] = {0: NodeEntry(copy, 0)} if len(copy.output_names) == 1 else dict(enumerate(copy.outputs))
        kept.append(copy)
    outputs = [NodeEntry(copies.get(nodes[v], nodes[v]), i) for v, i in draft.exits]
    if draft.foreign:
        return Graph(outputs, draft.variables, name, index.graph.opsets, nodes=[*draft.constants, *kept])
    sources = [*draft.variables, *draft.constants]
    ordered = tuple(sorted([*sources, *kept], key=PLACE)) if index.is_placed else topological([*sources, *kept])
    return Graph.assembled(ordered, draft.variables, outputs, name, index.graph.opsets)
