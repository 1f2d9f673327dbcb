"""The cheapest assignment within limits on bytes, by prices of bytes (a Lagrangian), repair and branching."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from partita.accelerators.placement.assignment import Assigned, Assigner, AssignmentProblem
from partita.graph.types import Array

ROUNDS = 12
"""Number of price updates, each of which tries several steps."""

STEPS = tuple(4.0**i for i in range(-4, 4))
"""The steps tried at once, relative to the cost of the cheapest assignment."""

PRESSURES = 4
"""Number of directions of prices that are tried until an assignment fits."""

GRID = 8
"""Number of prices along a direction that are tried at once."""

REFINEMENTS = 3
"""Number of grids between a price that does not suffice and one that does."""

FACTORS = (0.0, 0.5, 1.0, 2.0)
"""The prices of a subproblem, relative to the best ones of the whole."""

EFFORT = 60_000
"""Maximum number of nodes of all subproblems of the branching."""

MOST_BRANCHES = 400
"""Maximum number of subproblems of the branching."""

CLOSE = 1e-9
"""Relative gap that counts as zero."""

Used = Callable[[Array], Array]
"""The bytes of each device in an assignment."""


@attrs.frozen(slots=True, eq=False)
class Fitted:
    """The best assignment that was found."""

    chosen: Array | None
    """The device of each node; None if no assignment that fits was found."""
    cost: float
    """Its cost; infinite if there is none."""
    bound: float
    """A proven lower bound of the cost of any assignment within the limits."""
    nearest: Array
    """The assignment that exceeds the limits the least; `chosen` if that fits."""


class Fitting:
    """One search. `used` estimates the bytes of each device, and `exact` counts them; `shares` are bytes of nodes whose sum on a
    device is at most either; `loads` are guesses of the bytes that leave a device with a node."""

    def __init__(
        self, problem: AssignmentProblem, shares: Array, limits: Array, used: Used, exact: Used | None = None,
        loads: Array | None = None,
    ) -> None:
        self.problem, self.shares, self.limits, self.used = problem, shares, limits, used
        self.exact = exact or used
        self._loads = shares if loads is None else loads
        self._assigner = Assigner(problem)
        self._limited = np.isfinite(limits)
        self._scale = np.where(self._limited, np.maximum(limits, 1.0), 1.0)
        self._best: Array | None = None
        self._cost = float("inf")
        self._nearest: tuple[float, Array] | None = None
        self._tried: dict[bytes, bool] = {}

    def search(self) -> Fitted:
        """The best assignment found, and the bound."""
        times = self.problem.times
        (free,) = self._assigner.solve(times[np.newaxis])
        if not np.isfinite(free.bound) or self._fits(free.chosen):
            return self._result(free.bound)
        bound, prices = self._priced(times, free)
        if self._best is None:
            self._tighten()
        if self._best is None:
            assert self._nearest is not None
            self._repair(self._nearest[1])
        if self._best is not None:
            self._improve()
        if self._best is None or self._cost - bound > CLOSE * abs(self._cost):
            bound = self._branch(times, prices, bound)
        return self._result(bound)

    def _result(self, bound: float) -> Fitted:
        assert self._nearest is not None
        return Fitted(self._best, self._cost, min(bound, self._cost), self._nearest[1])

    def _fits(self, chosen: Array) -> bool:
        """True if the assignment is within the limits; the best one is kept. Only what would be the best is counted exactly."""
        key = chosen.tobytes()
        if key not in self._tried:
            over, cost = self._overflow(chosen), self.problem.cost(chosen)
            if over <= 0 and cost < self._cost:
                over = self._over(self.exact(chosen))
                if over <= 0:
                    self._best, self._cost = chosen.copy(), cost
            if self._nearest is None or over < self._nearest[0]:
                self._nearest = over, chosen.copy()
            self._tried[key] = over <= 0
        return self._tried[key]

    def _over(self, used: Array) -> float:
        return float(np.maximum(used[self._limited] - self.limits[self._limited], 0.0).sum())

    def _overflow(self, chosen: Array) -> float:
        """The bytes beyond the limits, of all devices together."""
        return self._over(self.used(chosen))

    def _relaxed(self, times: Array, prices: Array) -> tuple[Array, list[Assigned], Array]:
        """Bounds, assignments, and the excess of each limited device relative to its limit, for a batch of prices. Each price is
        that of as many bytes as the limit."""
        rates = np.where(self._limited, prices / self._scale, 0.0)
        solved = self._assigner.solve(times + rates[:, np.newaxis] * self.shares[:, np.newaxis])
        limits = np.where(self._limited, self.limits, 0.0)
        bounds = np.array([one.bound for one in solved]) - (rates * limits).sum(axis=1)
        excess = np.zeros_like(prices)
        for i, one in enumerate(solved):
            excess[i] = np.bincount(one.chosen, self.shares, len(self.limits)) - limits
        return bounds, solved, np.where(self._limited, excess / self._scale, 0.0)

    def _priced(self, times: Array, free: Assigned) -> tuple[float, Array]:
        """The greatest bound that was found, and its prices, by steps along the excess."""
        prices, bound = np.zeros(len(self.limits)), free.bound
        excess = np.bincount(free.chosen, self.shares, len(self.limits)) - np.where(self._limited, self.limits, 0.0)
        excess = np.where(self._limited, excess / self._scale, 0.0)
        size = max(abs(free.bound), 1e-9)
        for _ in range(ROUNDS):
            length = np.abs(excess).max()
            if not length:
                break
            tries = np.maximum(prices + np.outer(STEPS, excess * (size / length)), 0.0)
            bounds, solved, excesses = self._relaxed(times, tries)
            for one in solved:
                self._fits(one.chosen)
            best = int(bounds.argmax())
            if bounds[best] > bound:
                bound, prices, excess = float(bounds[best]), tries[best], excesses[best]
            else:
                best = len(STEPS) // 2
                excess = (excess + excesses[best]) / 2  # both sides of a kink: their mean points along it
            size *= 0.7
        return bound, prices

    def _tighten(self) -> None:
        """Raises the prices of what leaves a device with a node until the assignment fits, then lowers them as far as it still
        does: shares count less than bytes, and assignments change by whole parts."""
        assert self._nearest is not None
        size = max(abs(self.problem.cost(self._nearest[1])), 1e-9)
        pressure = np.zeros(len(self.limits))
        for _ in range(PRESSURES):
            over = np.where(self._limited, np.maximum(self.used(self._nearest[1]) - self.limits, 0.0) / self._scale, 0.0)
            pressure += over / max(over.max(), 1e-12)
            factors = size * np.geomspace(1e-4, 1e2, GRID)
            for _ in range(REFINEMENTS):
                fits = self._priced_to_fit(np.outer(factors, pressure / pressure.max()))
                first = fits.index(True) if True in fits else len(fits)
                if first in (0, len(fits)):
                    break
                factors = np.linspace(factors[first - 1], factors[first], GRID + 2)[1:-1]
            if self._best is not None:
                return

    def _priced_to_fit(self, prices: Array) -> list[bool]:
        """For a batch of prices, whether the cheapest assignment fits."""
        rates = np.where(self._limited, prices / self._scale, 0.0)
        solved = self._assigner.solve(self.problem.times + rates[:, np.newaxis] * self._loads[:, np.newaxis])
        return [self._fits(one.chosen) for one in solved]

    def _repair(self, start: Array) -> None:
        """Moves nodes off full devices one by one, those first that cost the least for the bytes that they free."""
        chosen = start.copy()
        neighbours = self._neighbours()
        used = self.used(chosen)
        for _ in range(2 * len(chosen)):
            over = np.where(self._limited, used - self.limits, 0.0)
            full = int(over.argmax())
            if over[full] <= 0:
                self._fits(chosen)
                return
            moves = []
            for node in np.flatnonzero(chosen == full).tolist():
                for device in np.flatnonzero(np.isfinite(self.problem.times[node])).tolist():
                    room = self.limits[device] - used[device]
                    if device != full and self._loads[node] > 0 and room >= self.shares[node]:
                        freed = min(float(self._loads[node]), float(over[full]))
                        moves.append((self._change(chosen, node, device, neighbours) / freed, node, device))
            if not moves:
                return
            _, node, device = min(moves)
            chosen[node] = device
            used = self.used(chosen)

    def _improve(self) -> None:
        """Moves single nodes as long as that is cheaper and fits."""
        assert self._best is not None
        if len(self._best) > EFFORT // 30:
            return
        neighbours = self._neighbours()
        again = True
        while again:
            again = False
            for node in range(len(self._best)):
                chosen = self._best.copy()
                for device in np.flatnonzero(np.isfinite(self.problem.times[node])).tolist():
                    if device != self._best[node] and self._change(self._best, node, device, neighbours) < -CLOSE * self._cost:
                        chosen[node] = device
                        again |= self._fits(chosen)

    def _neighbours(self) -> list[list[int]]:
        """The tensors that each node makes or reads."""
        tensors: list[list[int]] = [[] for _ in range(len(self.shares))]
        for i, (producer, readers) in enumerate(zip(self.problem.producers.tolist(), self.problem.readers)):
            for node in {producer, *readers} - {-1}:
                tensors[node].append(i)
        return tensors

    def _change(self, chosen: Array, node: int, device: int, neighbours: Sequence[Sequence[int]]) -> float:
        """The change of the cost if the node moves to the device."""
        problem, before = self.problem, int(chosen[node])
        change = float(problem.times[node, device] - problem.times[node, before])
        for tensor in neighbours[node]:
            producer, readers = int(problem.producers[tensor]), problem.readers[tensor]
            source = 0 if producer < 0 else int(chosen[producer])
            others = {int(chosen[reader]) for reader in readers if reader != node}
            table = problem.hand_overs[tensor]
            moved = device if producer == node else source
            reads = node in readers
            change += sum(table[moved, one] for one in (others | {device} if reads else others))
            change -= sum(table[source, one] for one in (others | {before} if reads else others))
        return change

    def _branch(self, times: Array, prices: Array, bound: float) -> float:
        """The bound after branching, best first: each subproblem fixes the device of one more node that weighs much."""
        budget = min(MOST_BRANCHES, EFFORT // len(times))
        counter, fixed = 0, np.zeros(len(times), bool)
        (root,) = self._relaxed(times, prices[np.newaxis])[1]
        queue = [(bound, counter, times, root.chosen, fixed)]
        while queue and budget > 0:
            least, _, times, chosen, fixed = heapq.heappop(queue)
            if self._best is not None and self._cost - least <= CLOSE * abs(self._cost):
                return least
            over = self._relaxed_excess(chosen)
            weight = np.where(fixed, -1.0, self.shares * (over[chosen] > 0) + 1e-6 * self.shares)
            node = int(weight.argmax())
            if weight[node] < 0:  # one assignment is left, which was tried
                continue
            children = []
            for device in np.flatnonzero(np.isfinite(times[node])).tolist():
                child = times.copy()
                child[node] = np.inf
                child[node, device] = times[node, device]
                children.append(child)
            held = fixed.copy()
            held[node] = True
            budget -= len(children)
            for child in children:
                if self._is_full(child, held):
                    continue
                bounds, solved, _ = self._relaxed(child, np.outer(FACTORS, prices))
                for one in solved:
                    self._fits(one.chosen)
                counter += 1
                best = int(bounds.argmax())
                below = max(float(bounds[best]), least)
                if below < self._cost:
                    heapq.heappush(queue, (below, counter, child, solved[best].chosen, held))
        return min([self._cost, *(one[0] for one in queue)])

    def _relaxed_excess(self, chosen: Array) -> Array:
        excess = np.bincount(chosen, self.shares, len(self.limits)) - self.limits
        return np.where(self._limited, excess, -1.0)

    def _is_full(self, times: Array, fixed: Array) -> bool:
        """True if the fixed nodes alone exceed a limit."""
        devices = times[fixed].argmin(axis=1)
        held = np.bincount(devices, self.shares[fixed], len(self.limits))
        return bool((held > self.limits)[self._limited].any())
