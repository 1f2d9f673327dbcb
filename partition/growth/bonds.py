"""Bonds: pairs of nodes that no edge joins, and that are to share a group all the same where that closes no cycle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partita.partition.growth.contract import contract_all
from partita.partition.growth.fixed import Groups, by_size, contract_fixed
from partita.partition.growth.labels import Color, Preds
from partita.partition.growth.quotient import Quotient


def join_bonded(
    preds: Preds, color: Color, groups: Groups, bonds: Iterable[tuple[int, int]], fixed: Sequence[Sequence[int]] = ()
) -> Groups:
    """Merge groups that a bond joins. The bonds are tried in order, until each that is left would close a cycle.

    What is merged stays acyclic with all other groups and with the fixed ones. Where the groups came from `largest`, no edge
    can be contracted afterwards either: each that is left goes around another device, and no bond takes that away.
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
