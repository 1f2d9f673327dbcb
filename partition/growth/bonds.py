"""Bonds: pairs of nodes without an edge between them that should share a group unless that closes a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partita.partition.growth.contract import contract_all
from partita.partition.growth.fixed import Groups, by_size, contract_fixed
from partita.partition.growth.labels import Color, Preds
from partita.partition.growth.quotient import Quotient


def join_bonded(
    preds: Preds, color: Color, groups: Groups, bonds: Iterable[tuple[int, int]], fixed: Sequence[Sequence[int]] = ()
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
