"""Growth "largest": groups as large as possible, for all devices at once, acyclic by construction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np

from partita.graph.order import EdgeArrays, Numbers
from partita.partition.growth.contract import Start, contract
from partita.partition.growth.fixed import by_size, renumbered
from partita.partition.growth.label_contraction import UNGROUPED, Base, build, components, drop_blocked
from partita.partition.growth.labels import Accept, Color, Preds, earliest_labels, latest_labels, refusals

SMALL = 3_000
"""Maximum number of nodes (or base groups and open edges) for which every start is tried."""

FULL = 30_000
"""Number of base groups and open edges from which on a sample selects the one start for the whole."""

SAMPLE = 4_000
"""Base groups in that sample: the first ones, which are closed under producers and so form a graph."""

Score = tuple[int, list[int]]
"""(number of groups, negated sizes in order): fewer groups win, then larger ones."""


def largest(
    preds: Preds, color: Color, accept: Accept | None = None, fixed: Sequence[Sequence[int]] = ()
) -> list[list[int]]:
    """Groups connected by accepted edges, of which no two could be joined by another one.

    1. Labels: the earliest split (from the inputs down) and the latest one (from the outputs up).
    2. The base: nodes connected at equal labels, both of them. Labels never fall along an edge: no cycle.
    3. Runs: starting from the base or from the groups of equal labels, contract accepted edges one by one
       unless there is a path around them. Each run ends acyclic and maximal.
    4. The run with the fewest groups wins; then larger groups; then the earlier run.

    Every node with a color is in exactly one group. Near-linear if edges are local, as in neural networks;
    superlinear with uniformly random skips over the whole graph, because maximality needs reachability."""
    if fixed:
        return renumbered(largest, preds, color, accept, fixed)
    refused = refusals(preds, color, accept)
    earliest = np.array(earliest_labels(preds, color, refused), np.int64)
    latest = np.array(latest_labels(preds, color, refused), np.int64)
    number: dict[int | None, int] = {None: UNGROUPED}
    device = np.array([number.setdefault(c, len(number)) for c in color], np.int64)
    edges = EdgeArrays.of(preds)
    accepted = edges.where((device[edges.producers] == device[edges.consumers]) & (device[edges.consumers] != UNGROUPED))
    if refused:
        accepted = accepted.where(np.array([edge not in refused for edge in accepted.pairs()], bool))

    def base_of(first: Numbers) -> Base:
        base = build(edges, device, accepted, earliest, latest, first)
        drop_blocked(base)
        return base

    base = base_of(components(accepted, earliest, latest))
    score, owner = _best(base, _starts(base))
    if len(preds) <= SMALL and score[0] > 1:
        # The base may join nodes that a better result separates: also run from single nodes.
        singles = base_of(np.arange(len(preds)))
        other = _best(singles, (Start.LATEST_PRODUCER, Start.LONGEST_EDGE))
        if other[0] < score:
            owner = other[1]
    return in_order(owner, device)


def _starts(base: Base) -> tuple[Start, ...]:
    if not len(base.open):
        return (Start.EQUAL_LATEST,)
    if len(base) + len(base.open) <= SMALL:
        return (Start.EQUAL_LATEST, Start.EQUAL_EARLIEST, Start.LATEST_PRODUCER, Start.LONGEST_EDGE)
    return (Start.EQUAL_LATEST, Start.EQUAL_EARLIEST, Start.LATEST_PRODUCER)


def _best(base: Base, starts: Sequence[Start]) -> tuple[Score, Numbers]:
    """-> the best run's (score, the group of each node)."""
    count = len(base)
    if len(starts) > 1 and count + len(base.open) > FULL:
        part = attrs.evolve(base.open.where(base.open.consumers < SAMPLE), count=min(count, SAMPLE))
        starts = [min(starts, key=lambda s: _score(base, contract(base, s, part)))]
    runs = [contract(base, s, base.open) for s in starts]
    scores = [_score(base, owner) for owner in runs]
    best = min(range(len(runs)), key=scores.__getitem__)
    return scores[best], runs[best][base.of]


def _score(base: Base, owner: Numbers) -> Score:
    grouped = np.flatnonzero(base.device[: len(owner)] != UNGROUPED)
    total = np.bincount(owner[grouped], weights=base.size[grouped]).astype(np.int64)
    return int(np.count_nonzero(total)), np.sort(-total[total > 0]).tolist()


def in_order(owner: Numbers, device: Numbers) -> list[list[int]]:
    """The groups of nodes with a device and the same owner, by descending size, then by first node."""
    grouped = np.flatnonzero(device != UNGROUPED)
    by_owner = grouped[np.argsort(owner[grouped], kind="stable")]
    stops = np.flatnonzero(np.diff(owner[by_owner])) + 1
    flat = by_owner.tolist()
    return by_size(flat[start:stop] for start, stop in pairwise([0, *stops.tolist(), len(flat)]) if start < stop)
