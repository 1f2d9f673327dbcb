"""The ops of a graph as integers, on which growing, matching, checking and splicing work."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import attrs
import numpy as np

from partita.graph.build import is_made_call
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.order import EdgeArrays, sources
from partita.partition import growth
from partita.partition.growth.labels import Edges

Preds = list[list[int]]


@attrs.frozen(slots=True, eq=False)
class ReadAlone:
    """A constant that is read by an op which reads nothing but constants."""

    constant: Node
    """The constant."""
    alone: set[int] = attrs.field(factory=set)
    """The ops that read the constant and nothing but constants."""
    readers: list[int] = attrs.field(factory=list)
    """All ops that read it, ascending."""


@attrs.frozen(slots=True, eq=False)
class OpIndex:
    """The ops only, numbered in topological order: variables and constants can neither be grouped nor be on a path."""

    graph: Graph
    """The graph."""
    nodes: list[Node]
    """Its ops; number v is at v."""
    number: dict[Node, int]
    """The number of each op."""
    preds: Preds
    """Per op the ops that it depends on (inputs in order, captures, control), once per edge."""
    edges: EdgeArrays
    """The same edges."""
    control: Edges
    """The edges that are control dependencies only: they count for cycles, and callbacks are not called for them."""
    live: bytearray
    """True for ops that an output of the graph depends on."""
    offered: list[bool]
    """True for ops that may be in a subgraph: live, and not a call that an earlier partition made."""
    affinity: list[str | None]
    """The affinities, read once."""
    has_affinities: bool
    """True if an op has one."""
    plain_inputs: frozenset[Node]
    """The graph inputs without an affinity, which bodies share."""
    is_placed: bool
    """True if the graph's nodes, of which each follows all that it depends on, are in the order of their places."""

    def __len__(self) -> int:
        return len(self.nodes)

    def consumers(self) -> list[list[int]]:
        """Per op the ops that depend on it, ascending and distinct."""
        return consumers(self.preds)

    def common_affinity(self, members: Iterable[int]) -> str | None:
        """The common affinity of these ops, or None."""
        if not self.has_affinities:
            return None
        distinct = set(map(self.affinity.__getitem__, members))
        return distinct.pop() if len(distinct) == 1 else None

    def of(self, graph: Graph) -> OpIndex:
        """The index of a graph that differs only in the types of values."""
        nodes = [graph.nodes[self.graph.index.number[node]] for node in self.nodes]
        number = {node: v for v, node in enumerate(nodes)}
        return attrs.evolve(self, graph=graph, nodes=nodes, number=number, plain_inputs=plain_inputs(graph))

    def value_preds(self) -> Preds:
        """Per op the ops whose values it reads."""
        control = self.control
        if not control:
            return self.preds
        return [[u for u in sources if (u, v) not in control] for v, sources in enumerate(self.preds)]

    def value_edges(self) -> EdgeArrays:
        """The edges of `value_preds`."""
        return EdgeArrays.of(self.value_preds()) if self.control else self.edges

    def read_alone(self) -> list[ReadAlone]:
        """The constants that are read by ops which read nothing but constants. Linear."""
        constants: dict[Node, ReadAlone] = {}
        for v, node in enumerate(self.nodes):
            if not self.preds[v] or node.after:
                reads = node.reads
                if reads and all(entry.node.value is not None for entry in reads):
                    for entry in reads:
                        constants.setdefault(entry.node, ReadAlone(entry.node)).alone.add(v)
        whole = self.graph.index
        reading = {i for constant in constants for i in whole.consumers[whole.number[constant]]}
        for i in sorted(reading):
            node = whole.nodes[i]
            for source in dict.fromkeys(entry.node for entry in node.reads):
                if source in constants:
                    constants[source].readers.append(self.number[node])
        return list(constants.values())


def build_op_index(graph: Graph) -> OpIndex:
    """The index of the graph's ops. Linear."""
    nodes: list[Node] = []
    number: dict[Node, int] = {}
    preds: Preds = []
    calls, followers = [], []
    number_of = number.get
    for node in graph.nodes:
        if node.op is None or node.value is not None:
            continue
        producers = []
        for entry in node.inputs:
            u = None if entry is None else number_of(entry.node)
            if u is not None:
                producers.append(u)
        if node.captures or node.after:
            producers = [number[source] for source in sources(node) if source in number]
        if node.after:
            followers.append(node)
        if node.subgraph is not None and is_made_call(node):
            calls.append(len(nodes))
        number[node] = len(nodes)
        nodes.append(node)
        preds.append(producers)
    edges = EdgeArrays.of(preds)
    live = _live(graph, number, edges, preds)
    offered = list(map(bool, live))
    for v in calls:
        offered[v] = False
    affinity = [node.affinity for node in nodes]
    places = [node.place for node in graph.nodes]
    is_placed = places == sorted(places)
    control = _control_alone(followers, number)
    has_affinities = affinity.count(None) < len(affinity)
    return OpIndex(
        graph, nodes, number, preds, edges, control, live, offered, affinity, has_affinities, plain_inputs(graph), is_placed
    )


def plain_inputs(graph: Graph) -> frozenset[Node]:
    """The graph's inputs without an affinity."""
    return frozenset([node for node in graph.inputs if node.affinity is None])


def consumers(preds: Sequence[Sequence[int]]) -> list[list[int]]:
    """The reversed edges, without duplicates."""
    readers: list[list[int]] = [[] for _ in preds]
    for v, producers in enumerate(preds):
        for u in producers:
            known = readers[u]
            if not known or known[-1] != v:
                known.append(v)
    return readers


def _control_alone(followers: Iterable[Node], number: dict[Node, int]) -> Edges:
    """The edges of control dependencies of these ops on others of which they read no value."""
    edges: set[tuple[int, int]] = set()
    for node in followers:
        read = {entry.node for entry in node.reads}
        edges.update((number[other], number[node]) for other in node.after if other not in read and other in number)
    return frozenset(edges)


def _live(graph: Graph, number: dict[Node, int], edges: EdgeArrays, preds: Preds) -> bytearray:
    live = bytearray(len(preds))
    for entry in graph.outputs:
        v = number.get(entry.node)
        if v is not None:
            live[v] = 1
    unread = np.ones(len(preds), bool)
    unread[edges.producers] = False
    if np.frombuffer(live, bool)[unread].all():  # every op leads to one that is not read
        return bytearray(b"\1" * len(preds))
    for is_live, producers in zip(reversed(live), reversed(preds), strict=True):  # marks nodes that come later in this iteration
        if is_live:
            for u in producers:
                live[u] = 1
    return live


NEAREST = 8
"""Maximum number of groups on either side, in the order of their first readers, that a group is joined with for one
constant."""

Groups = list[list[int]]
Label = Hashable | None


@attrs.define(slots=True)
class ReadingGroup:
    """A group that reads a constant."""

    name: int
    """Its first op."""
    size: int
    """Number of its ops."""
    alone: bool = False
    """True if one of its ops reads the constant, and nothing but constants."""


def join_at_constants(index: OpIndex, groups: Groups, labels: Sequence[Label], fixed: Groups) -> Groups:
    """Merges groups of one label that share a constant, if an op of one of them reads it and nothing but
    constants, and if that closes no cycle.

    Near-linear."""
    bonds = _bonds(index, groups, labels)
    if not bonds:
        return groups
    number: dict[Label, int] = {None: -1}
    color = [number.setdefault(label, len(number)) for label in labels]
    return growth.join_bonded(index.preds, [None if c < 0 else c for c in color], groups, bonds, fixed)


def _bonds(index: OpIndex, groups: Groups, labels: Sequence[Label]) -> list[tuple[int, int]]:
    """Pairs of groups to be joined, each named by its first op."""
    constants = index.read_alone()
    if not constants:
        return []
    home = {v: group for group in groups for v in group}
    bonds = []
    for constant in constants:
        by_label: dict[Label, dict[int, ReadingGroup]] = {}
        for v in constant.readers:
            if v in home:
                known = by_label.setdefault(labels[v], {}).setdefault(home[v][0], ReadingGroup(home[v][0], len(home[v])))
                known.alone |= v in constant.alone
        for of_label in by_label.values():
            bonds += _nearest_pairs(list(of_label.values()))
    return bonds


def _nearest_pairs(readers: Sequence[ReadingGroup]) -> list[tuple[int, int]]:
    """Pairs of each group with such an op and those near it: larger ones first, then earlier ones."""
    pairs = []
    for i, reader in enumerate(readers):
        if reader.alone:
            near = [*readers[max(0, i - NEAREST) : i], *readers[i + 1 : i + 1 + NEAREST]]
            pairs += [(reader.name, other.name) for other in sorted(near, key=lambda other: -other.size)]
    return pairs
