"""Grouping by shared constants: an op that reads only constants joins a group on its device that reads one of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import attrs

from partita.partition import growth
from partita.partition.op_index import OpIndex

NEAREST = 8
"""Maximum number of groups on either side, in the order of their first readers, that a group is joined with for one
constant.
"""

Groups = list[list[int]]
Label = Hashable | None


@attrs.define(slots=True)
class Reader:
    """A group that reads a constant."""

    name: int
    """Its first op."""
    size: int
    """Number of its ops."""
    alone: bool = False
    """True if one of its ops reads the constant, and nothing but constants."""


def join_at_constants(index: OpIndex, groups: Groups, labels: Sequence[Label], fixed: Groups) -> Groups:
    """Merges groups of one label that share a constant, if an op of one of them reads it and nothing but
    constants, and if that closes no cycle.

    Near-linear.
    """
    bonds = _bonds(index, groups, labels)
    if not bonds:
        return groups
    number: dict[Label, int] = {None: -1}
    color = [number.setdefault(label, len(number)) for label in labels]
    return growth.join_bonded(index.preds, [None if c < 0 else c for c in color], groups, bonds, fixed)


def _bonds(index: OpIndex, groups: Groups, labels: Sequence[Label]) -> list[tuple[int, int]]:
    """Pairs of groups to be joined, each named by its first op."""
    constants = index.read_alone()
    if not constants:
        return []
    home = {v: group for group in groups for v in group}
    bonds = []
    for constant in constants:
        by_label: dict[Label, dict[int, Reader]] = {}
        for v in constant.readers:
            if v in home:
                known = by_label.setdefault(labels[v], {}).setdefault(home[v][0], Reader(home[v][0], len(home[v])))
                known.alone |= v in constant.alone
        for of_label in by_label.values():
            bonds += _nearest_pairs(list(of_label.values()))
    return bonds


def _nearest_pairs(readers: Sequence[Reader]) -> list[tuple[int, int]]:
    """Pairs of each group with such an op and those near it: larger ones first, then earlier ones."""
    pairs = []
    for i, reader in enumerate(readers):
        if reader.alone:
            near = [*readers[max(0, i - NEAREST) : i], *readers[i + 1 : i + 1 + NEAREST]]
            pairs += [(reader.name, other.name) for other in sorted(near, key=lambda other: -other.size)]
    return pairs
