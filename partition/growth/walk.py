"""Growth "walk": asks the selector edge by edge, in an order that is part of the contract."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol

from partita.partition.growth.fixed import contract_fixed
from partita.partition.growth.forest import earliest_consumers, latest_producers
from partita.partition.growth.labels import Edges, Preds
from partita.partition.growth.observer import WalkObserver
from partita.partition.growth.quotient import Quotient
from partita.partition.growth.reachability import Beyond


class Selector(Protocol):
    """The methods that the walk calls; nodes are numbers."""

    def select(self, node: int) -> bool: ...
    def select_input(self, cur: int, new: int) -> bool: ...
    def select_output(self, cur: int, new: int) -> bool: ...
    def filter(self, candidates: list[int]) -> list[int]: ...
    def reset(self) -> None: ...


class FilterError(ValueError):
    """`filter` returned anything but a subset of the candidates."""

    def __init__(self, seed: int, invented: list[int], duplicates: list[int]) -> None:
        self.seed, self.invented, self.duplicates = seed, invented, duplicates
        wrong = []
        if invented:
            wrong.append(f"nodes that are not candidates: {invented}")
        if duplicates:
            wrong.append(f"nodes more than once: {duplicates}")
        super().__init__(f"filter, in the growth from node {seed}, returned {' and '.join(wrong)}")


def walk(
    preds: Preds,
    usable: Sequence[bool],
    make_selector: Callable[[], Selector],
    fixed: Sequence[Sequence[int]] = (),
    patience: float = 8,
    observer: WalkObserver | None = None,
    control: Edges = frozenset(),
) -> list[list[int]]:
    """Groups in the order in which they were made; never a cycle, whatever the selectors answer.

    Seeds in topological order, a new selector for each. Breadth first: of each member the producers in input
    order (`select_input`), then the consumers in topological order (`select_output`). A node that would certainly close a
    cycle is not offered. If the grown set closes one nevertheless, it loses the nodes by which a path from it
    returns, and growth runs again without them. Then `filter` decides, and the nodes that it keeps are
    split into connected parts that close no cycle.

    `usable[v]` is true if v may be offered at all. Nothing is offered over the edges in `control`; they count for cycles.
    Once there were more than `patience` calls per edge, later growths
    take the topologically first waiting node next, and do not expand those that a refused consumer reaches.
    Near-linear if edges are local. A callback's exception passes through; a bad `filter` raises FilterError."""
    walker = _WalkRun(preds, usable, fixed, patience, observer, control)
    for seed in range(len(preds)):
        if walker.may_start(seed):
            selector = make_selector()
            if selector.select(seed):
                walker.run(seed, selector)
            elif observer is not None:
                observer.unselected(seed)
    return walker.groups


class _WalkRun:
    """The state shared by the growths of one walk."""

    __slots__ = (
        "_control_ins", "_control_outs",
        "_down", "_inside", "_ins", "_limit", "_lost", "_mark", "_observer", "_outs", "_questions", "_quotient",
        "_taken", "_unexpanded", "_up", "_usable", "_value_ins", "_value_outs", "groups",
    )

    def __init__(
        self,
        preds: Preds,
        usable: Sequence[bool],
        fixed: Sequence[Sequence[int]],
        patience: float,
        observer: WalkObserver | None,
        control: Edges,
    ) -> None:
        count = len(preds)
        self.groups: list[list[int]] = []
        self._ins = [list(dict.fromkeys(p)) for p in preds]
        self._outs = _consumers(self._ins)
        self._value_ins, self._value_outs = self._ins, self._outs  # the edges over which nodes are offered
        self._control_ins: dict[int, list[int]] = {}
        self._control_outs: dict[int, list[int]] = {}
        if control:
            self._value_ins = [[u for u in sources if (u, v) not in control] for v, sources in enumerate(self._ins)]
            self._value_outs = _consumers(self._value_ins)
            for u, v in sorted(control):
                self._control_ins.setdefault(v, []).append(u)
                self._control_outs.setdefault(u, []).append(v)
        self._usable = usable
        self._taken = bytearray(count)
        if fixed:
            merged = contract_fixed(preds, fixed)
            self._quotient = Quotient(merged.succ, merged.preds, merged.order, merged.owner)
            for group in fixed:
                for v in group:
                    self._taken[v] = 1
        else:
            self._quotient = Quotient([s[:] for s in self._outs], [p[:] for p in self._ins])
        self._down = Beyond(self._quotient, 1, latest_producers(self._ins))  # beyond closed consumers
        self._up = Beyond(self._quotient, -1, earliest_consumers(self._outs))  # beyond closed inputs
        self._limit = patience * sum(map(len, self._ins))
        self._questions = 0
        self._inside = [0] * count  # == _mark: in the current set
        self._mark = 0
        self._lost = [-1] * count  # the seed in whose growth a node was dropped last
        self._unexpanded: set[int] = set()
        self._observer = observer

    def may_start(self, node: int) -> bool:
        return self._usable[node] and not self._taken[node]

    def run(self, seed: int, selector: Selector) -> None:
        """Grows until the set closes no cycle, applies `filter`, and settles the rest."""
        observer = self._observer
        if observer is not None:
            observer.started(seed)
        while True:
            members = self._grow(seed, selector)
            if len(members) == 1 or not (self._unexpanded or self._quotient.closes_cycle(members)):
                break
            dropped = self._reentered(members, seed)
            for v in dropped:
                self._lost[v] = seed
            if observer is not None:
                observer.dropped(seed, sorted(dropped))
            selector.reset()
        members.sort()
        self._unexpanded.clear()
        kept = _checked(seed, members, selector.filter(list(members)))
        if observer is not None and len(kept) < len(members):
            chosen = set(kept)
            observer.filtered(seed, [v for v in members if v not in chosen])
        before = len(self.groups)
        for part in self._parts(kept):
            self._settle(part)
        if observer is not None:
            observer.finished(seed, self.groups[before:])

    # -- growing ------------------------------------------------------------------------------------------

    def _grow(self, seed: int, selector: Selector) -> list[int]:
        """Runs one growth. -> the members in the order of joining."""
        down, up = self._down, self._up
        down.clear()
        up.clear()
        self._unexpanded.clear()
        self._mark += 1
        self._inside[seed] = self._mark
        members = [seed]
        ins, outs = self._value_ins, self._value_outs
        ask_input, ask_output = selector.select_input, selector.select_output
        late = False
        for cur in members if self._questions <= self._limit else self._earliest_first(members):
            if self._control_ins:
                self._close_over_control(cur, seed)
            late |= self._offer(cur, ins[cur], ask_input, up, down, "input", members)
            late |= self._offer(cur, outs[cur], ask_output, down, up, "output", members)
        if late:  # then being reached by a closed consumer no longer implies a cycle: check again in full
            self._unexpanded.clear()
        return members

    def _close_over_control(self, cur: int, seed: int) -> None:
        """Closes nodes at the other ends of control dependencies, which are not followed, if they cannot join in any way."""
        for neighbours, closed in ((self._control_ins, self._up), (self._control_outs, self._down)):
            for new in neighbours.get(cur, ()):
                if not self._usable[new] or self._taken[new] or self._lost[new] == seed:
                    closed.add(self._quotient.find(new), new)

    def _offer(
        self, cur: int, neighbours: list[int], ask: Callable[[int, int], bool], same: Beyond, other: Beyond, direction: str,
        members: list[int],
    ) -> bool:
        """Offers the neighbours of `cur` on one side. `same` holds the closed nodes on that side.

        -> True if a node joined that had been closed as a consumer before."""
        inside, mark, usable, taken, lost = self._inside, self._mark, self._usable, self._taken, self._lost
        seed, observer = members[0], self._observer
        late = False
        for new in neighbours:
            if inside[new] == mark:
                continue
            if not usable[new] or taken[new] or lost[new] == seed:
                same.add(self._quotient.find(new), new)
            elif same.has(new, new) or other.has(new, new):
                if observer is not None:
                    by = same if same.has(new, new) else other
                    observer.passed_over(cur, new, direction, by.closed_by)
                same.add(new, new)
            else:
                self._questions += 1
                if ask(cur, new):
                    inside[new] = mark
                    members.append(new)
                    late |= self._down.is_source(new)
                    if observer is not None:
                        observer.joined(cur, new, direction)
                else:
                    same.add(new, new)
                    if observer is not None:
                        observer.refused(cur, new, direction)
        return late

    def _earliest_first(self, members: list[int]) -> Iterator[int]:
        """The members, which grow during iteration, by number, without those that a closed consumer reaches."""
        waiting: list[int] = []
        taken = 0
        while True:
            for v in members[taken:]:
                heapq.heappush(waiting, v)
            taken = len(members)
            if not waiting:
                return
            v = heapq.heappop(waiting)
            if self._down.has(v, v):
                self._unexpanded.add(v)
                if self._observer is not None:
                    self._observer.left_unexpanded(v, self._down.closed_by)
            else:
                yield v

    # -- making it acyclic --------------------------------------------------------------------------------

    def _reentered(self, members: list[int], seed: int) -> set[int]:
        """The members that a set which closes a cycle has to lose: those that a path from it through the outside
        re-enters; if that is only the seed, those where such paths start."""
        lost = self._crossed(members, self._outs, self._ins, self._down) - {seed}
        return lost or self._crossed(members, self._ins, self._outs, self._up) - {seed}

    def _crossed(
        self, members: list[int], along: list[list[int]], against: list[list[int]], beyond: Beyond
    ) -> set[int]:
        """The members beyond the outside neighbours of the members, in one direction."""
        find, rank = self._quotient.find, self._quotient.order.rank
        down = beyond is self._down
        unexpanded = self._unexpanded if down else ()  # nodes reached by those are reached by a closed consumer too
        inside, mark = self._inside, self._enclose(members)
        beyond.clear()
        for v in members:
            if v not in unexpanded:
                for w in along[v]:
                    if inside[w] != mark:
                        beyond.add(find(w), w)
        crossed = set(unexpanded)
        for v in sorted(members, key=rank.__getitem__, reverse=not down):
            if v in crossed:
                continue
            for w in against[v]:
                if inside[w] == mark:
                    if w not in crossed:
                        continue
                elif not (beyond.is_source(x := find(w)) or beyond.has(x, w)):
                    continue
                crossed.add(v)
                break
        return crossed

    def _settle(self, part: list[int]) -> None:
        """Contracts a part of the nodes that `filter` kept; if it closes a cycle, cuts it by the rule of growth, with its
        first node as the seed."""
        quotient = self._quotient
        waiting = [part]
        while waiting:
            part = waiting.pop()
            if len(part) == 1 or quotient.merge(part) is None:
                for v in part:
                    self._taken[v] = 1
                self.groups.append(part)
                continue
            lost = self._reentered(part, part[0])
            if self._observer is not None:
                self._observer.cut(part[0], sorted(lost))
            waiting += reversed(self._parts([v for v in part if v not in lost]))

    def _parts(self, nodes: list[int]) -> list[list[int]]:
        """The components of these nodes that are connected by values, each sorted, by first node."""
        inside, mark = self._inside, self._enclose(nodes)
        parts = []
        for root in nodes:
            if inside[root] != mark:
                continue
            inside[root] = 0
            part = [root]
            for v in part:
                for w in (*self._value_ins[v], *self._value_outs[v]):
                    if inside[w] == mark:
                        inside[w] = 0
                        part.append(w)
            part.sort()
            parts.append(part)
        return parts

    def _enclose(self, nodes: list[int]) -> int:
        """Marks these nodes as the current set. -> the mark."""
        self._mark += 1
        for v in nodes:
            self._inside[v] = self._mark
        return self._mark


def _consumers(preds: list[list[int]]) -> list[list[int]]:
    """The consumers of each node, in topological order."""
    succ: list[list[int]] = [[] for _ in preds]
    for v, producers in enumerate(preds):
        for u in producers:
            succ[u].append(v)
    return succ


def _checked(seed: int, members: list[int], kept: Sequence[int]) -> list[int]:
    """The result of `filter`, sorted, checked to be a subset without duplicates."""
    kept = sorted(kept)
    known = set(members)
    invented = [v for v in kept if v not in known]
    duplicates = sorted({a for a, b in pairwise(kept) if a == b})
    if invented or duplicates:
        raise FilterError(seed, invented, duplicates)
    return kept
