"""Growth "seed": the algorithm of the HETERO design document, literally, then made acyclic as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from partita.partition.growth.fixed import by_size, contract_fixed
from partita.partition.growth.labels import Accept, Color, Edges, Preds, refusals
from partita.partition.growth.observer import SeedObserver

Groups = list[list[int]]


@attrs.frozen
class Repair:
    """A group that would have closed a cycle with groups chosen before it, and its replacement."""

    replaced: list[int]
    by: list[list[int]]


def seed(
    preds: Preds,
    color: Color,
    accept: Accept | None = None,
    fixed: Sequence[Sequence[int]] = (),
    observer: SeedObserver | None = None,
    control: Edges = frozenset(),
) -> tuple[Groups, list[Repair]]:
    """The literal groups, repaired; and the repairs.

    Device by device, in order of first appearance: grow a candidate from each node that is in no candidate yet;
    choose the largest one (the earliest root among equals); repeat with the rest.

    The document considers one subgraph at a time, so two of them can depend on each other. Then the later-chosen
    one is replaced by its parts: components of equal labels, where a label rises with each edge that leaves the
    group, computed with the groups chosen before contracted.

    No node is added over the edges in `control`; they count for cycles.
    Cubic and worse, on bit sets: for study, and for checking the other growths."""
    chosen = _literal(preds, color, accept, fixed, observer or SeedObserver(), control)
    done = [sorted(group) for group in fixed]
    groups: Groups = []
    repairs = []
    for group in chosen:
        parts = [group] if _fits(preds, done, group) else _split(preds, done, group, accept, control)
        if len(parts) > 1:
            repairs.append(Repair(group, parts))
        groups += parts
        done += parts
    return by_size(groups), repairs


def _literal(
    preds: Preds, color: Color, accept: Accept | None, fixed: Sequence[Sequence[int]], observer: SeedObserver, control: Edges,
) -> Groups:
    """The groups according to the document's text, in the order in which they are chosen."""
    grower = _Grower(preds, color, accept, fixed, observer, control)
    chosen = []
    for device in dict.fromkeys(c for c in color if c is not None):
        while True:
            covered: set[int] = set()
            candidates = []
            for root in range(len(preds)):
                if grower.device[root] == device and root not in covered:
                    candidate = grower.grow(root)
                    candidates.append(candidate)
                    covered.update(candidate)
            if not candidates:
                break
            best = max(candidates, key=len)
            for v in best:
                grower.device[v] = None
            chosen.append(sorted(best))
            observer.chosen(chosen[-1])
    return chosen


class _Grower:
    """Grows one candidate at a time. Sets of nodes are integers with bit v for node v."""

    def __init__(
        self,
        preds: Preds,
        color: Color,
        accept: Accept | None,
        fixed: Sequence[Sequence[int]],
        observer: SeedObserver,
        control: Edges,
    ) -> None:
        self._observer = observer
        graph = contract_fixed(preds, fixed)
        self._ins, self._outs = graph.preds, graph.succ
        self._ancestors = _closure(graph.preds, graph.order)
        self._descendants = _closure(graph.succ, graph.order[::-1])
        self._refused = refusals(preds, color, accept, control)
        self._control = control
        members = {v for group in fixed for v in group}
        self.device = [None if v in members else c for v, c in enumerate(color)]
        """The device of each node that is not taken yet."""

    def grow(self, root: int) -> list[int]:
        """Grows depth first from the root: a node's consumers before its producers, each in edge order.

        A neighbour that cannot be added (other device, taken, over a refused edge) is rejected when it is met. After
        each step: as long as a rejected node is on a path between members, the last one added is rejected too."""
        members: list[int] = []
        inside = rejected = 0
        reach = [(0, 0)]  # (all ancestors, all descendants) of the first 0, 1, 2 ... members

        def add(v: int) -> None:
            nonlocal inside
            members.append(v)
            inside |= 1 << v
            up, down = reach[-1]
            reach.append((up | self._ancestors[v], down | self._descendants[v]))

        observer = self._observer
        observer.rooted(root)
        add(root)
        trail = [(root, iter(self._outs[root] + self._ins[root]))]
        while trail:
            cur, neighbours = trail[-1]
            new = next(neighbours, None)
            if new is None or not inside >> cur & 1:  # done, or rolled back
                trail.pop()
                continue
            if (inside | rejected) >> new & 1:
                continue
            edge = (cur, new) if new in self._outs[cur] else (new, cur)
            if self.device[new] == self.device[root] and edge in self._control:
                continue  # the node may still join over another edge
            if self._may_join(edge, new, root):
                add(new)
                observer.merged(new)
            else:
                rejected |= 1 << new
                observer.rejected(new)
            while reach[-1][0] & reach[-1][1] & rejected:
                reach.pop()
                last = members.pop()
                inside ^= 1 << last
                rejected |= 1 << last
                observer.rolled_back(last)
            if inside >> new & 1:
                trail.append((new, iter(self._outs[new] + self._ins[new])))
        observer.grown(members)
        return members

    def _may_join(self, edge: tuple[int, int], new: int, root: int) -> bool:
        return self.device[new] == self.device[root] and edge not in self._refused


def _closure(neighbours: list[list[int]], order: Sequence[int]) -> list[int]:
    """All nodes reachable over `neighbours`, which precede the node itself in `order`."""
    reached = [0] * len(neighbours)
    for v in order:
        for u in neighbours[v]:
            reached[v] |= reached[u] | 1 << u
    return reached


def _fits(preds: Preds, done: Groups, group: list[int]) -> bool:
    """True if the partition remains acyclic with this group."""
    try:
        contract_fixed(preds, [*done, group])
    except ValueError:
        return False
    return True


def _split(preds: Preds, done: Groups, group: list[int], accept: Accept | None, control: Edges) -> Groups:
    """The parts of a group with equal labels that are connected by accepted edges along which values flow."""
    graph = contract_fixed(preds, done)
    members = set(group)
    refused = control | refusals(preds, [0 if v in members else None for v in range(len(preds))], accept, control)
    label = [0] * len(preds)
    for v in graph.order:
        for u in graph.preds[v]:
            leaves = u in members and (v not in members or (u, v) in refused)
            label[v] = max(label[v], label[u] + leaves)
    first = list(range(len(preds)))
    for v in group:
        for u in graph.preds[v]:
            if u in members and label[u] == label[v] and (u, v) not in control:
                join(first, u, v)
    for v in group:
        first[v] = first[first[v]]
    parts: dict[int, list[int]] = {}
    for v in group:
        parts.setdefault(first[v], []).append(v)
    return list(parts.values())


def join(first: list[int], a: int, b: int) -> None:
    """Union-find in which the smallest number represents the set."""
    while first[a] != a:
        first[a] = first[first[a]]
        a = first[a]
    while first[b] != b:
        first[b] = first[first[b]]
        b = first[b]
    if a < b:
        first[b] = a
    elif b < a:
        first[a] = b
