"""One run of `largest`: contracts the open edges of the base, in some order, as long as possible.

`join_bonded` contracts bonds in the same way: pairs of nodes without an edge between them that should share a group unless that
closes a cycle."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from partita.partition.growth.fixed import Groups, by_size, contract_fixed
from partita.partition.growth.label_contraction import Base, join
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


def contract(base: Base, start: Start, edges: Sequence[tuple[int, int]], count: int) -> list[int]:
    """-> the group of each of the first `count` base groups (`edges` are among them).

    Acyclic and maximal: no remaining edge can be contracted. Near-linear if edges are local, because
    each test costs the cheaper end of a search inside the window of ranks."""
    owner, order = _beginning(base, start, edges, count)
    if start in (Start.EQUAL_EARLIEST, Start.EQUAL_LATEST):
        quotient = _quotient(base, owner, _topological(base, start, owner))
        order = [(owner[a], owner[b]) for a, b in order]
    else:
        quotient = Quotient(base.consumers(count), base.producers(count))
    contract_all(quotient, base.color, order)
    return [quotient.find(x) for x in owner]


def _beginning(
    base: Base, start: Start, edges: Sequence[tuple[int, int]], count: int
) -> tuple[list[int], list[tuple[int, int]]]:
    """-> (the first group of each base group, the edges in the order to try them in)."""
    owner = list(range(count))
    if start is Start.LATEST_PRODUCER:
        return owner, sorted(edges, key=lambda e: -e[0])
    if start is Start.LONGEST_EDGE:
        return owner, sorted(edges, key=lambda e: e[0] - e[1])
    label = base.earliest if start is Start.EQUAL_EARLIEST else base.latest
    for a, b in edges:
        if label[a] == label[b]:
            join(owner, a, b)
    for x, name in enumerate(owner):
        owner[x] = owner[name]
    return owner, sorted(edges, key=lambda e: e[1])


def _topological(base: Base, start: Start, owner: list[int]) -> list[int]:
    """The groups of equal labels in a topological order. Nodes without a device come first among equals of the earliest label,
    last among equals of the latest, because their edges raise neither."""
    names = [x for x, name in enumerate(owner) if x == name]
    color = base.color
    if start is Start.EQUAL_EARLIEST:
        names.sort(key=lambda x: (base.earliest[x], color[x] is not None))
    else:
        names.sort(key=lambda x: (-base.latest[x], color[x] is None))
    return names


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


def contract_all(quotient: Quotient, color: list[int | None], edges: list[tuple[int, int]]) -> None:
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
