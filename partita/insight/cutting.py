"""Some ops of a graph as a graph of their own, which can be compiled and run alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.partition.bodies import build_body, draft_body, find_exits
from partita.partition.op_index import build_op_index


@attrs.frozen(slots=True, eq=False)
class Cut:
    """A convex group of ops, cut out of a graph."""

    members: tuple[int, ...]
    """Indices of its ops in the graph, ascending."""
    graph: Graph
    """The ops as a closed graph."""
    reads: tuple[NodeEntry, ...]
    """Value of the whole graph for each input of `graph`."""
    makes: tuple[NodeEntry, ...]
    """Value of the whole graph for each output of `graph`."""

    @property
    def ops(self) -> tuple[Node, ...]:
        """Op nodes of the cut, in order."""
        return tuple(node for node in self.graph.nodes if node.is_op)


class Cutter:
    """Cuts groups of ops out of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._index = build_op_index(graph)
        self.ops: tuple[Node, ...] = tuple(self._index.nodes)
        """The ops in topological order; members of cuts are indices into it."""
        self.producers: tuple[tuple[int, ...], ...] = tuple(tuple(dict.fromkeys(sources)) for sources in self._index.preds)
        """The ops that each op depends on, each once."""
        self.consumers = self._index.consumers()
        """The ops that depend on each op."""

    def cut(self, members: Iterable[int]) -> Cut:
        """These ops as a graph. Linear in the whole graph."""
        chosen = tuple(sorted(members))
        (exits,) = find_exits(self._index, [chosen])
        draft = draft_body(self._index, chosen, exits, dedup=True)
        body = build_body(self._index, draft, self.graph.name)
        makes = tuple(self.ops[v][output] for v, output in draft.exits)
        return Cut(chosen, body, tuple(draft.entries), makes)

    def siblings(self, member: int) -> list[int]:
        """Earlier ops that share a value (not a constant) with this one and do not lead to it; the nearest first."""
        read = {entry for entry in self.ops[member].reads if entry.node.value is None}
        above = self.before(member)
        return [i for i in range(member - 1, -1, -1) if i not in above and not read.isdisjoint(self.ops[i].reads)]

    def closed(self, members: Iterable[int]) -> set[int]:
        """The members and every op on a path between two of them: the smallest convex group that contains them. Linear."""
        chosen = set(members)
        return self._reached(chosen, self.consumers) & self._reached(chosen, self.producers)

    def before(self, member: int) -> set[int]:
        """The op and all that it depends on. Linear."""
        return self._reached({member}, self.producers)

    @staticmethod
    def _reached(start: set[int], edges: Sequence[Sequence[int]]) -> set[int]:
        reached, waiting = set(start), list(start)
        while waiting:
            for other in edges[waiting.pop()]:
                if other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return reached
