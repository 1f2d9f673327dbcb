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

EFFORT = 12_000
"""Maximum number of nodes of all subproblems of the branching."""

MOST_PARTS = 1000
"""Maximum number of subproblems of the branching."""

RAISED = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The prices of what leaves a device at which a part's cheapest assignment is tried, relative to its best ones."""

MOST_MOVED = 2000
"""Maximum number of nodes of an assignment that is improved by moving single nodes."""

AGAIN = 1
"""Number of price updates of a subproblem, whose prices start from those of the problem that it is a part of."""

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


@attrs.frozen(slots=True, eq=False)
class _Subproblem:
    """A part of the assignments, by branching, and what the best prices say about it."""

    times: Array
    """The times, infinite where a node may not be."""
    limits: Array
    """The limits of the sums of shares."""
    fixed: Array
    """By node, True if its device was fixed."""
    bound: float
    """A lower bound of the cost of these assignments."""
    prices: Array
    """The prices of that bound."""
    chosen: Array
    """The cheapest assignment at these prices."""


class Fitting:
    """One search. `used` estimates the bytes of each device, and `exact` counts them; both are at least the sum of `shares` of a
    device's nodes and the greatest of their `floors`. `loads` are guesses of the bytes that leave a device with a node."""

    def __init__(
        self, problem: AssignmentProblem, shares: Array, limits: Array, used: Used, exact: Used | None = None,
        loads: Array | None = None, floors: Array | None = None,
    ) -> None:
        self.problem, self.shares, self.limits, self.used = problem, shares, limits, used
        self.exact = exact or used
        self._loads = shares if loads is None else loads
        self._floors = np.zeros(len(shares)) if floors is None else floors
        self._assigner = Assigner(problem)
        self._limited = np.isfinite(limits)
        self._scale = np.where(self._limited, np.maximum(limits, 1.0), 1.0)
        self._best: Array | None = None
        self._cost = float("inf")
        self._nearest: tuple[float, Array] | None = None
        self._tried: dict[bytes, bool] = {}

    def search(self) -> Fitted:
        """The best assignment found, and the bound."""
        (free,) = self._assigner.solve(self.problem.times[np.newaxis])
        if not np.isfinite(free.bound) or self._fits(free.chosen):
            return self._result(free.bound)
        too_large = self._limited & (self._floors[:, np.newaxis] + self.shares[:, np.newaxis] > self.limits)
        times = np.where(too_large, np.inf, self.problem.times)
        nobody, nothing = np.zeros(len(times), bool), np.zeros(len(self.limits))
        self._tighten(times)
        root = self._priced(times, self.limits, nothing, nobody, ROUNDS)
        if self._best is None:
            assert self._nearest is not None
            self._repair(self._nearest[1])
        if self._best is not None:
            self._improve()
        bound = root.bound
        if not self._is_close(bound):
            bound = self._branch(root)
        return self._result(bound)

    def _is_close(self, bound: float) -> bool:
        """True if the best assignment costs no more than the bound."""
        return self._best is not None and self._cost - bound <= CLOSE * abs(self._cost)

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

    def _relaxed(self, times: Array, limits: Array, prices: Array) -> tuple[Array, list[Assigned], Array]:
        """Bounds, assignments, and the excess of each limited device relative to its limit, for a batch of prices. Each price is
        that of as many bytes as the limit."""
        rates = np.where(self._limited, prices / self._scale, 0.0)
        solved = self._assigner.solve(times + rates[:, np.newaxis] * self.shares[:, np.newaxis])
        most = np.where(self._limited, limits, 0.0)
        bounds = np.array([one.bound for one in solved]) - (rates * most).sum(axis=1)
        excess = np.array([self._held(one.chosen) - most for one in solved])
        return bounds, solved, np.where(self._limited, excess / self._scale, 0.0)

    def _held(self, chosen: Array) -> Array:
        """The sum of shares of each device."""
        return np.bincount(chosen, self.shares, len(self.limits))

    def _priced(self, times: Array, limits: Array, prices: Array, fixed: Array, rounds: int) -> _Subproblem:
        """A part with the greatest bound that was found, by steps along the excess from these prices on."""
        bounds, solved, excesses = self._relaxed(times, limits, prices[np.newaxis])
        bound, excess, chosen = float(bounds[0]), excesses[0], solved[0].chosen
        if np.isfinite(bound):
            self._fits(chosen)
        size = max(abs(bound), 1e-9)
        for _ in range(rounds if np.isfinite(bound) else 0):
            length = np.abs(excess).max()
            if not length or self._is_close(bound):
                break
            tries = np.maximum(prices + np.outer(STEPS, excess * (size / length)), 0.0)
            bounds, solved, excesses = self._relaxed(times, limits, tries)
            for one in solved:
                self._fits(one.chosen)
            best = int(bounds.argmax())
            if bounds[best] > bound:
                bound, prices, excess, chosen = float(bounds[best]), tries[best], excesses[best], solved[best].chosen
            else:
                best = len(STEPS) // 2
                excess = (excess + excesses[best]) / 2  # both sides of a kink: their mean points along it
            size *= 0.7
        return _Subproblem(times, limits, fixed, bound, prices, chosen)

    def _tighten(self, times: Array) -> None:
        """Raises the prices of what leaves a device with a node until the assignment fits, then lowers them as far as it still
        does: shares count less than bytes, and assignments change by whole parts."""
        assert self._nearest is not None
        size = max(abs(self.problem.cost(self._nearest[1])), 1e-9)
        pressure = np.zeros(len(self.limits))
        for _ in range(PRESSURES):
            over = np.where(self._limited, np.maximum(self.used(self._nearest[1]) - self.limits, 0.0) / self._scale, 0.0)
            pressure += over / over.max() if over.any() else self._limited
            factors = size * np.geomspace(1e-4, 1e2, GRID)
            for _ in range(REFINEMENTS):
                fits = self._priced_to_fit(times, np.outer(factors, pressure / pressure.max()))
                first = fits.index(True) if True in fits else len(fits)
                if first in (0, len(fits)):
                    break
                factors = np.linspace(factors[first - 1], factors[first], GRID + 2)[1:-1]
            if self._best is not None:
                return

    def _priced_to_fit(self, times: Array, prices: Array) -> list[bool]:
        """For a batch of prices, whether the cheapest assignment fits."""
        rates = np.where(self._limited, prices / self._scale, 0.0)
        solved = self._assigner.solve(times + rates[:, np.newaxis] * self._loads[:, np.newaxis])
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
        if len(self._best) > MOST_MOVED:
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

    def _branch(self, root: _Subproblem) -> float:
        """The bound after branching, best first."""
        budget = min(MOST_PARTS, EFFORT // len(root.times))
        counter, queue = 0, [(root.bound, 0, root)]
        while queue and budget > 0:
            least, _, part = heapq.heappop(queue)
            if self._is_close(least):
                return least
            for times, limits, fixed in self._split(part):
                budget -= 1
                if self._is_full(times, fixed) or not np.isfinite(times).any(axis=1).all():
                    continue
                child = self._priced(times, limits, part.prices, fixed, AGAIN)
                if child.prices.any():
                    self._priced_to_fit(times, np.outer(RAISED, child.prices))
                below = max(child.bound, least)
                if below < self._cost:
                    counter += 1
                    heapq.heappush(queue, (below, counter, child))
        return min([self._cost, *(bound for bound, _, _ in queue)])

    def _split(self, part: _Subproblem) -> list[tuple[Array, Array, Array]]:
        """Times, limits and fixed nodes of the parts of a part; none if it is a single assignment, which was tried."""
        held = self._held(part.chosen)
        tallest = np.zeros(len(held))
        np.maximum.at(tallest, part.chosen, self._floors)
        for device in np.flatnonzero(self._limited & (held + tallest > self.limits)).tolist():
            # Either no node on it needs so much, or some node does: then the shares have only the rest.
            limit, above = self.limits[device], self.limits[device] - min(held[device], part.limits[device])
            steps = np.unique(self._floors[(self._floors > above) & (self._floors <= tallest[device])])
            if len(steps):
                step = steps[len(steps) // 2]
                times, limits = part.times.copy(), part.limits.copy()
                times[self._floors >= step, device] = np.inf
                limits[device] = limit - step
                return [(times, part.limits, part.fixed), (part.times, limits, part.fixed)]
        over = np.where(self._limited, held - part.limits, -1.0)
        weight = np.where(part.fixed, -1.0, self.shares * (over[part.chosen] > 0) + 1e-6 * self._loads)
        node = int(weight.argmax())
        if weight[node] < 0:
            return []
        fixed = part.fixed.copy()
        fixed[node] = True
        children = []
        for device in np.flatnonzero(np.isfinite(part.times[node])).tolist():
            times = part.times.copy()
            times[node] = np.inf
            times[node, device] = part.times[node, device]
            children.append((times, part.limits, fixed))
        return children

    def _is_full(self, times: Array, fixed: Array) -> bool:
        """True if the fixed nodes alone exceed a limit."""
        devices = times[fixed].argmin(axis=1)
        held, tallest = np.bincount(devices, self.shares[fixed], len(self.limits)), np.zeros(len(self.limits))
        np.maximum.at(tallest, devices, self._floors[fixed])
        return bool((held + tallest > self.limits)[self._limited].any())
