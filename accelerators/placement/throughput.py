"""Assignments for devices that work at the same time, on one request behind the other or on several models: the busiest
resource decides how many are done in a second.

The sum of the resources' loads with any weights that add up to 1 is a lower bound of the greatest load, and a minimum of that
sum is an assignment problem; so the best weights are searched for, and the assignments found on the way are improved."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.interface.device_list import Device
from partita.accelerators.placement.assignment import AssignmentProblem
from partita.accelerators.placement.fitting import CLOSE, LABELS, MOST_MOVED, Fitted
from partita.accelerators.placement.labelling import Labelling, Resources
from partita.accelerators.process.cores import usable_cores
from partita.graph.types import Array

ROUNDS = 40
"""Maximum number of weights that are tried."""

AGAIN = 6
"""The same for a part of the branching, whose weights start from those of the part that it is of."""

MOST_PARTS = 400
"""Maximum number of parts of the branching."""

EFFORT = 4000
"""Maximum number of nodes of all parts of the branching."""

OFFERED = 4
"""Number of assignments of a pass of dynamic programming that are improved."""

STEP = 2.0
"""The greatest change of a weight's logarithm."""

LEAST = 1e-9
"""The least weight."""

CORES = "cores"
"""The resource of devices that work on the host's cores."""

THREADS = "NUM_THREADS"
"""The key of a device's number of threads."""


@attrs.frozen(slots=True)
class Lane:
    """The resource that a device keeps busy."""

    resource: str
    """Its name. Devices of one resource compete, so that one request keeps one of them busy at a time."""
    share: float = 1.0
    """The share of the resource that a run of the device takes: with half the cores, two models run at the same time."""


def lane_of(device: Device, config: Mapping[str, Any]) -> Lane:
    """The resource of a device with this configuration."""
    resource = device.accelerator.resource(device.device_id)
    if resource is not None:
        return Lane(resource)
    cores, threads = usable_cores(), config.get(THREADS)
    if not isinstance(threads, int) or threads < 1:  # as -1, or "all"
        return Lane(CORES)
    return Lane(CORES, min(threads, cores) / cores)


def loads_of(lanes: Sequence[Lane], models: int) -> tuple[list[str | None], Array]:
    """The loads that limit throughput: that of each resource by all models, under its name, and by each model alone, whose
    requests follow one another there. With them, by load, model and device, the factor of the device's time."""
    names: list[str | None] = []
    rows = []
    for resource in dict.fromkeys(lane.resource for lane in lanes):
        shares = np.array([lane.share if lane.resource == resource else 0.0 for lane in lanes])
        names.append(resource)
        rows.append(np.tile(shares, (models, 1)))
        for model in range(models) if shares[shares > 0].min() < 1 else ():
            names.append(None)
            rows.append(np.zeros((models, len(lanes))))
            rows[-1][model] = shares > 0
    return names, np.array(rows)


Solve = Callable[[AssignmentProblem, Sequence[Array]], Fitted]
"""The cheapest assignment of one model for these costs, beside assignments of earlier models."""


@attrs.frozen(slots=True, eq=False)
class Balanced:
    """The best assignments that were found, one for each model."""

    chosen: list[Array]
    """The device of each node."""
    cost: float
    """The greatest load."""
    bound: float
    """A proven lower bound of it."""


@attrs.frozen(slots=True, eq=False)
class _Part:
    """Some of the assignments, by branching."""

    times: list[Array]
    """The times of each model's nodes; infinite where a node may not be."""
    bound: float
    """A lower bound of the greatest load of these assignments, or the greatest load of the best ones known."""
    weights: Array
    """The weights of the bound."""
    chosen: list[Array]
    """The assignments of the least weighted sum."""


class Balancing:
    """One search. `solvers` find the cheapest assignment of each model within limits, `fit` tells if assignments of all do
    together. `factors` has the part of each device's time in each load, by load, model and device, and `busy` is what the loads
    are anyhow. All models together take at least the sum of `shares` of their nodes of the `limits`."""

    def __init__(
        self, problems: Sequence[AssignmentProblem], solvers: Sequence[Solve], fit: Callable[[Sequence[Array]], bool],
        busy: Array, factors: Array, shares: Sequence[Array] | None = None, limits: Array | None = None,
    ) -> None:
        self._problems, self._solvers, self._fit, self._busy, self._factors = problems, solvers, fit, busy, factors
        self._shares = [np.zeros(len(problem.times)) for problem in problems] if shares is None else shares
        self._limits = np.full(factors.shape[2], np.inf) if limits is None else limits
        self._neighbours = [problem.neighbours() for problem in problems]
        self._nodes = sum(len(problem.times) for problem in problems)
        self._best: list[Array] | None = None
        self._cost = float("inf")

    def search(self) -> Balanced | None:
        """The best assignments, and the bound; None if nothing is found that fits."""
        count = len(self._busy)
        bound = self._labelled() if 0 < self._nodes <= MOST_MOVED else 0.0
        root = _Part([problem.times for problem in self._problems], bound, np.full(count, 1 / count), [])
        if not self._is_close(bound):
            root = self._bounded(root, ROUNDS)
        if self._best is None:
            return None
        budget, numbers, queue = min(MOST_PARTS, EFFORT // self._nodes), itertools.count(1), [(root.bound, 0, root)]
        while queue and budget > 0 and not self._is_close(queue[0][0]):
            for part in self._split(heapq.heappop(queue)[-1]):
                budget -= 1
                child = self._bounded(part, AGAIN)
                if child.bound < self._cost:
                    heapq.heappush(queue, (child.bound, next(numbers), child))
        return Balanced(self._best, self._cost, min([self._cost, *(bound for bound, *_ in queue)]))

    def _labelled(self) -> float:
        """A bound by dynamic programming over the nodes of all models, which finds assignments too."""
        sizes = [len(problem.times) for problem in self._problems]
        offsets = np.cumsum([0, *sizes])
        producers = [np.where(one.producers < 0, -1, one.producers + at) for one, at in zip(self._problems, offsets.tolist())]
        readers = [
            tuple(node + at for node in nodes)
            for one, at in zip(self._problems, offsets.tolist()) for nodes in one.readers
        ]
        joint = AssignmentProblem(
            np.concatenate([one.times for one in self._problems]), np.concatenate(producers), readers,
            np.concatenate([one.hand_overs for one in self._problems]),
        )
        shares = np.concatenate(list(self._shares))
        resources = Resources(self._factors.repeat(sizes, axis=1), self._busy, shares, self._limits, np.zeros(len(shares)))
        labelling = Labelling(joint, resources)
        if labelling.steps is None:
            return 0.0
        bound = labelling.bound
        for most, merge in itertools.product(LABELS, (False, True)):
            found = labelling.search(most, self._cost, merge)
            for chosen in found.chosen[:OFFERED]:
                self._offer(np.split(chosen, offsets[1:-1]))
            bound = max(bound, found.bound)
            if found.is_exact or self._is_close(bound):
                break
        return bound

    def _is_close(self, bound: float) -> bool:
        """True if the best assignments cost no more than the bound."""
        return self._best is not None and self._cost - bound <= CLOSE * self._cost

    def _bounded(self, part: _Part, rounds: int) -> _Part:
        """The part with the greatest bound that was found, by weights that rise where loads are great."""
        weights, bound, step = part.weights, part.bound, STEP
        best, slope, latest = weights, np.zeros(len(weights)), part.chosen
        for _ in range(rounds):
            found: list[Fitted] = []
            for i, (problem, times, solve) in enumerate(zip(self._problems, part.times, self._solvers)):
                # What takes as long as the best load on its own is in no better assignment.
                able = np.where(times * self._factors[:, i].max(axis=0) < self._cost * (1 - CLOSE), times, np.inf)
                if not np.isfinite(able).any(axis=1).all():
                    return attrs.evolve(part, bound=np.inf)
                here = attrs.evolve(problem, times=able).weighted(weights @ self._factors[:, i])
                found.append(solve(here, [one.chosen for one in found if one.chosen is not None]))
                if found[-1].chosen is None:
                    return attrs.evolve(part, bound=max(bound, np.inf if found[-1].bound == np.inf else bound))
            chosen = [one.chosen for one in found if one.chosen is not None]
            loads, total = self._loads(chosen), sum(one.bound for one in found) + float(weights @ self._busy)
            self._offer(chosen)
            if total > bound or not latest:
                bound, best, slope, latest = max(bound, total), weights, loads, chosen
            else:
                slope, step = (slope + loads) / 2, 0.6 * step
            if self._is_close(bound):
                break
            weights = np.maximum(best * np.exp(step * (slope / slope.max() - 1)), LEAST)
            weights /= weights.sum()
        return _Part(part.times, bound, best, latest)

    def _split(self, part: _Part) -> list[_Part]:
        """The parts of a part, by the devices of the node that adds most to the greatest load and could be elsewhere."""
        busiest = int(self._loads(part.chosen).argmax()) if part.chosen else 0
        most, where = -1.0, None
        for i, (times, chosen) in enumerate(zip(part.times, part.chosen)):
            able = np.isfinite(times) & (times < self._cost)
            longest = np.where(able, times, 0.0).max(axis=1) * np.maximum(self._factors[busiest, i, chosen], 1e-6)
            weight = np.where(able.sum(axis=1) > 1, longest, -1.0)
            if len(weight) and weight.max() > most:
                most, where = float(weight.max()), (i, int(weight.argmax()))
        if where is None:
            return []
        i, node = where
        parts = []
        for device in np.flatnonzero(np.isfinite(part.times[i][node])).tolist():
            times = part.times[i].copy()
            times[node] = np.inf
            times[node, device] = part.times[i][node, device]
            parts.append(attrs.evolve(part, times=[*part.times[:i], times, *part.times[i + 1 :]]))
        return parts

    def _loads(self, chosen: Sequence[Array]) -> Array:
        """All loads."""
        own = [self._factors[:, i] @ problem.loads(one) for i, (problem, one) in enumerate(zip(self._problems, chosen))]
        loads: Array = sum(own, self._busy)
        return loads

    def _offer(self, chosen: Sequence[Array]) -> None:
        """Improves assignments by moving and exchanging nodes of the busiest resource, and keeps them if they are the best."""
        if not self._fit(chosen):
            return
        chosen, loads = [one.copy() for one in chosen], self._loads(chosen)
        if self._nodes <= MOST_MOVED:
            while self._moved(chosen, loads):
                loads = self._loads(chosen)
        if loads.max() < self._cost:
            self._best, self._cost = list(chosen), float(loads.max())

    def _moved(self, chosen: list[Array], loads: Array) -> bool:
        """Makes the change of one node, or of two, by which the greatest load falls most; False if there is none."""
        busiest = int(loads.argmax())
        changes: list[tuple[int, int, int, Array]] = []
        for i, (problem, one) in enumerate(zip(self._problems, chosen)):
            for node in range(len(one)):
                for device in np.flatnonzero(np.isfinite(problem.times[node])).tolist():
                    if device != one[node] and self._factors[busiest, i, [device, one[node]]].any():
                        change = problem.change(one, node, device, self._neighbours[i][node])
                        changes.append((i, node, device, self._factors[:, i] @ change))
        if not changes:
            return False
        after = np.array([loads + change for *_, change in changes])
        single = after.max(axis=1)
        pairs = [
            (float((after[first] + changes[second][3]).max()), (first, second))
            for first in np.flatnonzero(after[:, busiest] < loads[busiest]).tolist()
            for second in np.argsort((after[first] + after - loads).max(axis=1))[:2].tolist()
            if changes[first][:2] != changes[second][:2]
        ]
        tries = sorted([*((float(most), (number,)) for number, most in enumerate(single.tolist())), *pairs])
        for most, numbers in tries[:8]:
            if most >= loads.max() * (1 - CLOSE):
                return False
            before = [one.copy() for one in chosen]
            for number in numbers:
                i, node, device, _ = changes[number]
                chosen[i][node] = device
            if self._loads(chosen).max() < loads.max() * (1 - CLOSE) and self._fit(chosen):
                return True
            chosen[:] = before
        return False
