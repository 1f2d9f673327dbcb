"""Independent check of a partition: it shares no code with the growths that make the groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import chain, pairwise

import numpy as np

from partita.graph.shortest_path import arrows, cycle_in
from partita.partition.errors import PartitionError

Preds = Sequence[Sequence[int]]
Groups = Sequence[Sequence[int]]
Names = Callable[[int], str]


def check_partition(preds: Preds, groups: Groups, offered: Sequence[bool], name: Names) -> list[int]:
    """Checks that groups are disjoint, contain only offered nodes, and contracted all at once close no cycle.

    -> a topological order of the contracted graph: v for node v outside, ~k for group k. Linear."""
    owner = _owners(len(preds), groups, offered, name)
    return _order(preds, groups, owner, name)


def check_connected(
    preds: Preds,
    groups: Groups,
    refused: Container[tuple[int, int]],
    name: Names,
    shared: Iterable[tuple[Collection[int], Sequence[int]]] = (),
) -> None:
    """Checks that each group is connected by edges u→v that were not refused, or by `shared` constants: by those of a constant's
    readers that read nothing but constants, and all of its readers; the former join the latter. Linear."""
    leader = list(range(len(preds)))
    owner = [-1] * len(preds)
    pieces = [len(group) for group in groups]
    for k, group in enumerate(groups):
        for v in group:
            owner[v] = k

    def joined(u: int, v: int) -> None:
        while leader[u] != u:
            leader[u] = u = leader[leader[u]]
        while leader[v] != v:
            leader[v] = v = leader[leader[v]]
        if u != v:
            leader[v] = u
            pieces[owner[v]] -= 1

    for alone, readers in shared:
        bridges = {owner[v]: v for v in alone if owner[v] >= 0}
        for v in readers:
            if owner[v] in bridges:
                joined(bridges[owner[v]], v)
    for k, group in enumerate(groups):
        for v in group:
            for u in preds[v]:
                root = leader[u]
                if owner[u] != k or root == leader[v] or (u, v) in refused:
                    continue
                if leader[v] == v and leader[root] == root:
                    leader[v] = root
                    pieces[k] -= 1
                else:
                    joined(u, v)
        if pieces[k] > 1:
            raise PartitionError(
                f"the subgraph that starts at {name(group[0])!r} does not hang together by edges that were approved",
                where="the check of the plan",
                remedy="Please report this with the graph",
            )


def _owners(count: int, groups: Groups, offered: Sequence[bool], name: Names) -> list[int]:
    owner = [-1] * count
    for k, group in enumerate(groups):
        if not group:
            raise PartitionError("a subgraph has no nodes", where="the check of the plan")
        for v in group:
            if owner[v] != -1:
                raise PartitionError(f"node {name(v)!r} is in two subgraphs", where="the check of the plan")
            if not offered[v]:
                raise PartitionError(f"node {name(v)!r} may not be in a subgraph", where="the check of the plan")
            owner[v] = k
    return owner


def _order(preds: Preds, groups: Groups, owner: list[int], name: Names) -> list[int]:
    """Kahn's algorithm on the contracted graph; parallel edges are counted separately. Node v is unit v, group k unit n + k."""
    count = len(preds)
    home = np.array(owner, np.int64)
    unit = np.where(home < 0, np.arange(count), count + home)
    consumers = np.repeat(np.arange(count), np.fromiter(map(len, preds), np.int64, count))
    producers = np.fromiter(chain.from_iterable(preds), np.int64, len(consumers))
    between = unit[producers] != unit[consumers]
    producers, consumers = producers[between], consumers[between]
    by_unit = np.argsort(unit[producers] * count + producers, kind="stable")
    readers = unit[consumers[by_unit]].tolist()
    stops = np.cumsum(np.bincount(unit[producers], minlength=count + len(groups))).tolist()
    missing = np.bincount(unit[consumers], minlength=count + len(groups)).tolist()  # edges from units that are not done
    units = [*(v for v, k in enumerate(owner) if k < 0), *range(count, count + len(groups))]
    ready = [x for x in units if not missing[x]]
    for x in ready:  # grows during iteration
        for reader in readers[stops[x - 1] if x else 0 : stops[x]]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    order = [x if x < count else ~(x - count) for x in ready]
    if len(order) < len(units):
        stuck = [k for k in range(len(groups)) if missing[count + k]]
        first = [name(groups[k][0]) for k in stuck[:5]]
        raise PartitionError(
            f"the subgraphs close a cycle; those that start at {', '.join(map(repr, first))} are in it or behind it: "
            f"{_shown_cycle(preds, groups, owner, set(order), name)}",
            where="the check of the plan",
            remedy="Change the nodes given: no path may leave a subgraph (or several, one after another) and come back",
        )
    return order


def _shown_cycle(preds: Preds, groups: Groups, owner: Sequence[int], done: Container[int], name: Names) -> str:
    """One cycle among the remaining units; a subgraph is shown by its ops where the cycle enters and leaves it."""
    unit = [v if k < 0 else ~k for v, k in enumerate(owner)]
    between: dict[tuple[int, int], tuple[int, int]] = {}
    for v, producers in enumerate(preds):
        for u in producers:
            if unit[u] != unit[v] and unit[u] not in done and unit[v] not in done:
                between.setdefault((unit[u], unit[v]), (u, v))
    cycle = cycle_in(between)
    edges = [between[a, b] for a, b in pairwise(cycle)]
    names = []
    for (_, entered), (left, _) in pairwise([edges[-1], *edges]):
        names.append(name(entered) if entered == left else f"{{{name(entered)} ... {name(left)}}}")
    return arrows([*names, names[0]])
