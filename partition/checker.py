"""Independent check of a partition: it shares no code with the growths that make the groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from itertools import pairwise

import numpy as np

from partita.graph.order import EdgeArrays
from partita.graph.shortest_path import arrows, cycle_in
from partita.partition.errors import PartitionError

Groups = Sequence[Sequence[int]]
Names = Callable[[int], str]


def check_partition(edges: EdgeArrays, groups: Groups, offered: Sequence[bool], name: Names) -> list[int]:
    """Checks that groups are disjoint, contain only offered nodes, and contracted all at once close no cycle.

    -> a topological order of the contracted graph: v for node v outside, ~k for group k. Linear."""
    owner = _owners(edges.count, groups, offered, name)
    return _order(edges, groups, owner, name)


def check_connected(
    edges: EdgeArrays,
    groups: Groups,
    refused: Collection[tuple[int, int]],
    name: Names,
    shared: Iterable[tuple[Collection[int], Sequence[int]]] = (),
) -> None:
    """Checks that each group is connected by edges u→v that were not refused, or by `shared` constants: by those of a constant's
    readers that read nothing but constants, and all of its readers; the former join the latter. Linear."""
    owner = [-1] * edges.count
    for k, group in enumerate(groups):
        for v in group:
            owner[v] = k
    bonds = []
    for alone, readers in shared:
        bridges = {owner[v]: v for v in alone if owner[v] >= 0}
        bonds += [(bridges[owner[v]], v) for v in readers if owner[v] in bridges]
    home = np.array(owner, np.int64)
    inner = edges.where((home[edges.producers] == home[edges.consumers]) & (home[edges.consumers] >= 0))
    if refused:
        inner = inner.where(np.array([edge not in refused for edge in inner.pairs()], bool))
    roots = inner.roots()
    pieces = np.bincount(home[(roots == np.arange(edges.count)) & (home >= 0)], minlength=len(groups)).tolist()
    between = inner.where(roots[inner.producers] != roots[inner.consumers])
    leader = roots.tolist()
    for u, v in [*bonds, *between.pairs()]:
        while leader[u] != u:
            leader[u] = u = leader[leader[u]]
        while leader[v] != v:
            leader[v] = v = leader[leader[v]]
        if u != v:
            leader[v] = u
            pieces[owner[v]] -= 1
    for k, group in enumerate(groups):
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


def _order(edges: EdgeArrays, groups: Groups, owner: list[int], name: Names) -> list[int]:
    """Kahn's algorithm on the contracted graph; parallel edges are counted separately. Node v is unit v, group k unit n + k."""
    count = edges.count
    home = np.array(owner, np.int64)
    unit = np.where(home < 0, np.arange(count), count + home)
    between = edges.where(unit[edges.producers] != unit[edges.consumers])
    origin, target = unit[between.producers], unit[between.consumers]
    readers = target[np.argsort(origin * count + between.producers, kind="stable")].tolist()
    stops = [0, *np.cumsum(np.bincount(origin, minlength=count + len(groups))).tolist()]
    missing = np.bincount(target, minlength=count + len(groups)).tolist()  # edges from units that are not done
    units = [*(v for v, k in enumerate(owner) if k < 0), *range(count, count + len(groups))]
    ready = [x for x in units if not missing[x]]
    for x in ready:  # grows during iteration
        for reader in readers[stops[x] : stops[x + 1]]:
            missing[reader] = left = missing[reader] - 1
            if not left:
                ready.append(reader)
    order = [x if x < count else ~(x - count) for x in ready]
    if len(order) < len(units):
        stuck = [k for k in range(len(groups)) if missing[count + k]]
        first = [name(groups[k][0]) for k in stuck[:5]]
        raise PartitionError(
            f"the subgraphs close a cycle; those that start at {', '.join(map(repr, first))} are in it or behind it: "
            f"{_shown_cycle(edges, groups, owner, set(order), name)}",
            where="the check of the plan",
            remedy="Change the nodes given: no path may leave a subgraph (or several, one after another) and come back",
        )
    return order


def _shown_cycle(edges: EdgeArrays, groups: Groups, owner: Sequence[int], done: Container[int], name: Names) -> str:
    """One cycle among the remaining units; a subgraph is shown by its ops where the cycle enters and leaves it."""
    unit = [v if k < 0 else ~k for v, k in enumerate(owner)]
    between: dict[tuple[int, int], tuple[int, int]] = {}
    for u, v in edges.pairs():
        if unit[u] != unit[v] and unit[u] not in done and unit[v] not in done:
            between.setdefault((unit[u], unit[v]), (u, v))
    cycle = cycle_in(between)
    steps = [between[a, b] for a, b in pairwise(cycle)]
    names = []
    for (_, entered), (left, _) in pairwise([steps[-1], *steps]):
        names.append(name(entered) if entered == left else f"{{{name(entered)} ... {name(left)}}}")
    return arrows([*names, names[0]])
