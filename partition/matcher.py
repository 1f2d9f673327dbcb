"""Search for matches of a pattern, from the earliest anchor on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import traits
from partita.partition.growth.fixed import contract_fixed
from partita.partition.growth.quotient import Quotient
from partita.partition.op_index import OpIndex, build_op_index, consumers
from partita.partition.pattern import ANY, CONST, Operand, Part, Pattern

Members = tuple[int, ...]
"""The nodes of a match, or of a part of one."""

Ask = Callable[[Callable[[Node], bool], Node], bool]
"""Calls a part's predicate on a node, and raises if it misbehaves."""


@attrs.frozen(slots=True)
class Missed:
    """The reason why the longest match from a node was not taken."""

    cycle: bool
    """True if it would have closed a cycle; otherwise an inner value is used outside."""
    nodes: Members
    """The match."""
    through: int
    """A node through which the cycle would go, or that uses the inner value; -1 if that is a graph output."""


def find_matches(graph: Graph, pattern: Pattern) -> list[tuple[Node, ...]]:
    """The nodes of each match of a pattern in topological order. Near-linear."""
    index = build_op_index(graph)
    matches = Matcher(index, pattern, index.offered, (), lambda predicate, node: predicate(node)).run()
    return [tuple([index.nodes[v] for v in match]) for match in matches]


class Matcher:
    """One run of one pattern over a graph.

    If inner values must stay inside, a value with more readers than a match has nodes ends the match, so each anchor has
    constant cost: near-linear. Without operands each (part, node) is visited once per anchor, by its longest path.
    No match is lost: if inner values stay inside on one path to a node, every other path to it only has nodes of that
    path."""

    def __init__(self, index: OpIndex, pattern: Pattern, free: Sequence[bool], fixed: Sequence[Sequence[int]], ask: Ask) -> None:
        self.index = index
        self.pattern = pattern
        self.missed: dict[int, Missed] = {}
        """The matches that were not taken, by anchor."""
        self._free = list(free)
        self._ask = ask
        self._answers: dict[tuple[int, int], bool] = {}
        self._sources = index.value_preds()
        self._readers = consumers(self._sources)
        self._kept = {index.number[e.node] for e in index.graph.outputs if e.node in index.number}
        if fixed:
            merged = contract_fixed(index.preds, fixed)
            self._quotient = Quotient(merged.succ, merged.preds, merged.order, merged.owner)
        else:
            self._quotient = Quotient(index.consumers(), [list(dict.fromkeys(p)) for p in index.preds])
        self._walked: dict[tuple[int, int], int] = {}  # (part, node) -> the length of the longest path there
        self._once = not any(part.operands for part in pattern.parts)

    def run(self) -> list[list[int]]:
        """The matches, by anchor."""
        taken = []
        for anchor, free in enumerate(self._free):
            match = self._match_at(anchor) if free and self._free[anchor] else None
            if match is not None:
                for v in match:
                    self._free[v] = False
                taken.append(sorted(match))
        return taken

    def _match_at(self, anchor: int) -> Members | None:
        matches: dict[frozenset[int], Members] = {}  # the same nodes may match more than once
        self._walked.clear()
        for k, part in enumerate(self.pattern.parts):
            for members in self._at(part, anchor, None, ()):
                for match in self._onward(k, anchor, members):
                    matches.setdefault(frozenset(match), match)
            if not part.optional:
                break
        for match in sorted(matches.values(), key=len, reverse=True):
            if self._accept(anchor, match):
                return match
        return None

    def _accept(self, anchor: int, match: Members) -> bool:
        """True if inner values (all but the last node's) are only used by the match, and it closes no cycle."""
        inside = set(match)
        if not self.pattern.shared:
            for v in match[:-1]:
                outside = -1 if v in self._kept else next((r for r in self._readers[v] if r not in inside), None)
                if outside is not None:
                    self.missed.setdefault(anchor, Missed(False, match, outside))
                    return False
        path = self._quotient.merge(match) if len(match) > 1 else None
        if path:
            self.missed.setdefault(anchor, Missed(True, match, path[0]))
        return not path

    def _onward(self, k: int, v: int, members: Members) -> Iterator[Members]:
        """The matches that continue after part k, matched at v. The last of their nodes is the sequence's last."""
        parts = self.pattern.parts
        if self._once:
            if self._walked.get((k, v), 0) >= len(members):
                return
            self._walked[k, v] = len(members)
        if all(part.optional for part in parts[k + 1 :]):
            yield (*(m for m in members if m != v), v)
        if not self.pattern.shared and (v in self._kept or len(self._readers[v]) > self.pattern.most_nodes):
            return
        for j in range(k + 1, len(parts)):
            for reader in self._readers[v]:
                if self._free[reader] and reader not in members:
                    for more in self._at(parts[j], reader, v, members):
                        yield from self._onward(j, reader, more)
            if not parts[j].optional:
                return

    def _at(self, part: Part, v: int, via: int | None, members: Members) -> Iterator[Members]:
        """Matches the part at node v, which reads the sequence's value from `via`. -> the members with it and its operands."""
        if not self._fits(part, v):
            return
        inputs = list(self.index.nodes[v].inputs)
        if via is not None:
            source = self.index.nodes[via]
            slot = next((i for i, e in enumerate(inputs) if e is not None and e.node is source), None)
            if slot is None:
                return  # the value is only captured
            del inputs[slot]
        node = self.index.nodes[v]
        listed = part.operands
        orders = permutations(listed) if "commutative" in traits(str(node.op), node.domain) else iter([listed])
        tried: set[tuple[int, ...]] = set()
        for order in orders:
            key = tuple(map(id, order))
            if key not in tried:
                tried.add(key)
                yield from self._operands(order, inputs, (*members, v))

    def _operands(
        self, listed: Sequence[Operand | tuple[Part, ...]], inputs: Sequence[NodeEntry | None], members: Members
    ) -> Iterator[Members]:
        """All matches of the listed operands with the inputs in this order."""
        if not listed:
            yield members
            return
        first, rest = listed[0], listed[1:]
        entry = inputs[0] if inputs else None
        if first is ANY:
            yield from self._operands(rest, inputs[1:], members)
        elif entry is None:
            return
        elif first is CONST:
            if entry.node.is_constant:
                yield from self._operands(rest, inputs[1:], members)
        elif isinstance(first, tuple):
            v = self.index.number.get(entry.node)
            if v is not None and self._free[v] and v not in members:
                for more in self._ending_at(first, len(first) - 1, v, members):
                    yield from self._operands(rest, inputs[1:], more)

    def _ending_at(self, parts: Sequence[Part], k: int, v: int, members: Members) -> Iterator[Members]:
        """All matches of the sequence up to part k that end at node v, longest first if parts are optional."""
        if not self._fits(parts[k], v):
            return
        for i in range(k - 1, -1, -1):
            for u in dict.fromkeys(self._sources[v]):
                if self._free[u] and u not in members:
                    for before in self._ending_at(parts, i, u, members):
                        yield from self._at(parts[k], v, u, before)
            if not parts[i].optional:
                return
        yield from self._at(parts[k], v, None, members)

    def _fits(self, part: Part, v: int) -> bool:
        node = self.index.nodes[v]
        if part.ops is not None and (node.domain, node.op) not in part.ops:
            return False
        if part.predicate is None:
            return True
        key = (id(part), v)
        if key not in self._answers:
            self._answers[key] = self._ask(part.predicate, node)
        return self._answers[key]
