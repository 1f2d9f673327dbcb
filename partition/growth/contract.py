"""One run of `largest`: contracts the open edges of the base, in some order, as long as possible.

`join_bonded` contracts bonds in the same way: pairs of nodes without an edge between them that should share a group unless that
closes a cycle."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import numpy as np

from partita.graph.order import EdgeArrays, Numbers, followed
from partita.partition.growth.fixed import Groups, by_size, contract_fixed
from partita.partition.growth.label_contraction import UNGROUPED, Base, components
from partita.partition.growth.labels import Color, Preds
from partita.partition.growth.quotient import Quotient


class Start(enum.IntEnum):
    """The groups from which a run starts, and the edges that it may contract."""

    EQUAL_EARLIEST = 0
    """Groups of equal earliest labels, which are acyclic; edges by consumer."""
    EQUAL_LATEST = 1
    """Groups of equal latest labels; edges by consumer."""
    LATEST_PRODUCER = 2
    """The base itself; edges with the latest producers first."""
    LONGEST_EDGE = 3
    """The base itself; the longest edges first."""


def contract(base: Base, start: Start, edges: EdgeArrays) -> Numbers:
    """-> the group of each of the first base groups, between which the `edges` are.

    Acyclic and maximal: no remaining edge can be contracted. Near-linear if edges are local, because
    each test costs the cheaper end of a search inside the window of ranks."""
    if start in (Start.EQUAL_EARLIEST, Start.EQUAL_LATEST):
        label, order = base.earliest if start is Start.EQUAL_EARLIEST else base.latest, edges.consumers
        owner = components(edges, label)
        quotient = _quotient(base, owner.tolist(), _topological(base, start, owner))
    else:
        order = -edges.producers if start is Start.LATEST_PRODUCER else edges.producers - edges.consumers
        owner = np.arange(edges.count)
        quotient = Quotient(base.consumers(edges.count), base.producers(edges.count))
    first = np.argsort(order, kind="stable")
    pairs = EdgeArrays(edges.count, owner[edges.producers[first]], owner[edges.consumers[first]]).pairs()
    contract_all(quotient, base.device.tolist(), pairs)
    return followed(np.array(quotient.rep, np.int64))[owner]


def _topological(base: Base, start: Start, owner: Numbers) -> list[int]:
    """The groups of equal labels in a topological order. Nodes without a device come first among equals of the earliest label,
    last among equals of the latest, because their edges raise neither."""
    names = np.flatnonzero(owner == np.arange(len(owner)))
    has_device = base.device[names] != UNGROUPED
    if start is Start.EQUAL_EARLIEST:
        return names[np.lexsort((has_device, base.earliest[names]))].tolist()
    return names[np.lexsort((~has_device, -base.latest[names]))].tolist()


def _quotient(base: Base, owner: list[int], names: list[int]) -> Quotient:
    """The base contracted to the groups in `owner`, whose `names` are in a topological order, without what follows them."""
    succ = base.consumers(len(owner))
    if len(names) < len(owner):
        for x, name in enumerate(owner):
            if name != x:
                succ[name] += succ[x]
                succ[x] = []
        for x in names:
            succ[x] = [y for y in dict.fromkeys([owner[y] for y in succ[x]]) if y != x]
    pred: list[list[int]] = [[] for _ in owner]
    for x in names:
        for y in succ[x]:
            pred[y].append(x)
    return Quotient(succ, pred, names, owner)


def contract_all(quotient: Quotient, color: Sequence[int | None], edges: Iterable[tuple[int, int]]) -> None:
    """Tries edges until none can be contracted.

    A path through another device blocks an edge for good: contraction only makes more paths. An edge that a
    path through its own device blocks is tried again only once the first group of that path was merged with
    one of the two ends."""
    rep, find, merge = quotient.rep, quotient.find, quotient.merge
    blocked: set[tuple[int, int]] = set()
    todo = list(dict.fromkeys((a, b, -1) for a, b in edges if a != b))
    progress = True
    while todo and progress:
        progress = False
        again = []
        for a, b, between in todo:
            if rep[a] != a:
                a = find(a)
            if rep[b] != b:
                b = find(b)
            if a == b or (a, b) in blocked:
                continue
            if between >= 0:
                between = find(between)
                if between != a and between != b:
                    again.append((a, b, between))
                    continue
            path = merge((a, b))
            if path is None:
                progress = True
            elif any(color[x] != color[a] for x in path):
                blocked.add((a, b))
            else:
                again.append((a, b, path[0]))
        todo = list(dict.fromkeys(again))


def join_bonded(
    preds: Preds, color: Color, groups: Groups, bonds: Iterable[tuple[int, int]], fixed: Sequence[Sequence[int]]
) -> Groups:
    """Merges groups that a bond joins. The bonds are tried in order, until all remaining ones would close a cycle.

    The result stays acyclic with all other groups and the fixed ones. After `largest` no edge
    becomes contractible either: each remaining one has a path around it through another device, which no bond removes.
    O((nodes + edges) log nodes), and for each bond the cheaper end of a search inside the window of ranks."""
    contracted = contract_fixed(preds, [*fixed, *groups])
    owner = contracted.owner
    quotient = Quotient(contracted.succ, contracted.preds, contracted.order, owner)
    members = {v for group in fixed for v in group}
    devices = [None if v in members else c for v, c in enumerate(color)]
    contract_all(quotient, devices, [(owner[a], owner[b]) for a, b in bonds])
    merged: dict[int, list[int]] = {}
    for group in groups:
        merged.setdefault(quotient.find(owner[group[0]]), []).extend(group)
    return by_size(map(sorted, merged.values()))
