"""Chooses the best device for each op, from op times per device and the cost of passing values between devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partita.accelerators.placement.costs import BYTES_PER_US, CROSSING_US
from partita.accelerators.precision.lowered_ops import KEPT
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.types import TensorType

SWEEPS = 8
"""Maximum number of passes over all ops, repeated since other ops have moved."""


class DeviceChoice:
    """The devices that each op may run on, and its time there."""

    def __init__(
        self, graph: Graph, allowed: Mapping[str, Sequence[str]], times: Mapping[tuple[str | None, str], Mapping[str, float]]
    ) -> None:
        self.allowed = allowed
        """The devices that run each op, the preferred one first."""
        self.times = times
        """The microseconds of ops by device and precision, and by op."""
        self.neighbours: dict[str, list[tuple[str, float]]] = {name: [] for name in allowed}
        """The producers and consumers of each op, with the cost if they are on another device."""
        for name in allowed:
            for entry in graph[name].reads:
                if entry.node.name in allowed:
                    cost = CROSSING_US + bytes_of(entry) / BYTES_PER_US
                    self.neighbours[name].append((entry.node.name, cost))
                    self.neighbours[entry.node.name].append((name, cost))

    def took(self, name: str, label: str, precision: str) -> float:
        """The microseconds of an op on a device in a precision; infinite if it did not run so.

        An op with a single device and no time of its own in float32 counts as zero, since there is no choice."""
        forced = precision == KEPT and len(self.allowed[name]) == 1
        return self.times.get((label, precision), {}).get(name, 0.0 if forced else float("inf"))

    def least(self, name: str, precision: str) -> float:
        """The microseconds of an op in a precision on its fastest device."""
        return min(self.took(name, label, precision) for label in self.allowed[name])

    def candidates(self, precisions: Mapping[str, str]) -> list[dict[str, str]]:
        """Placements worth measuring, by increasing estimate: starting with all ops on one device, and with each op on its
        fastest device, ops move one by one as long as that reduces the estimate. Linear."""
        labels = list(dict.fromkeys(label for labels in self.allowed.values() for label in labels))
        starts = [{name: label if label in able else able[0] for name, able in self.allowed.items()} for label in labels]
        fastest = {
            name: min(able, key=lambda label: self.took(name, label, precisions.get(name, KEPT)))
            for name, able in self.allowed.items()
        }
        distinct: list[dict[str, str]] = []
        for start in [*(self._moved(start, precisions) for start in (*starts, fastest)), *starts]:
            if start not in distinct:
                distinct.append(start)
        possible = [placement for placement in distinct if self.estimate(placement, precisions) < float("inf")]
        return sorted(possible or distinct, key=lambda placement: self.estimate(placement, precisions))

    def estimate(self, placement: Mapping[str, str], precisions: Mapping[str, str]) -> float:
        """The estimated microseconds of the whole model."""
        own = sum(self.took(name, label, precisions.get(name, KEPT)) for name, label in placement.items())
        crossing = sum(
            cost for name, label in placement.items() for other, cost in self.neighbours[name] if placement[other] != label
        )
        return own + crossing / 2

    def _moved(self, start: Mapping[str, str], precisions: Mapping[str, str]) -> dict[str, str]:
        placement = dict(start)
        for _ in range(SWEEPS):
            before = dict(placement)
            for name, able in self.allowed.items():
                precision, around = precisions.get(name, KEPT), self.neighbours[name]
                costs = {
                    label: self.took(name, label, precision) + sum(cost for other, cost in around if placement[other] != label)
                    for label in able
                }
                placement[name] = min(able, key=lambda label: (costs[label], label != placement[name]))
            if placement == before:
                break
        return placement


def bytes_of(entry: NodeEntry) -> float:
    """The bytes of a value in float32; dynamic sizes count as 1."""
    known = entry.type
    sizes = known.shape if isinstance(known, TensorType) and known.shape is not None else ()
    total = 4.0
    for size in sizes:
        total *= size if isinstance(size, int) else 1
    return total
