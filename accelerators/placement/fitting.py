"""The cheapest assignment within limits on bytes, by prices of bytes (a Lagrangian), repair and branching."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from partita.accelerators.placement.assignment import Assigner, AssignmentProblem
from partita.accelerators.placement.labelling import Labelling, Resources
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

EFFORT = 500_000
"""Maximum number of subproblems of the branching for one node; it falls with the number of nodes to the power of 1.5."""

RAISED = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The prices of what leaves a device at which a part's cheapest assignment is tried, relative to its best ones."""

MOST_EXCHANGED = 128
"""Maximum number of nodes of an assignment that is improved by exchanging the devices of two nodes."""

LABELS = (500, 2000)
"""Maximum numbers of labels of the passes of dynamic programming."""

MOST_MOVED = 2000
"""Maximum number of nodes of an assignment that is improved by moving single nodes."""

UNITS = 1 << 20
"""The parts of a limit by which sums of shares are told apart."""

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
    """By node, True if it has one device only."""
    bound: float
    """A lower bound of the cost of these assignments."""
    prices: Array
    """The prices of that bound."""
    chosen: Array
    """The cheapest assignment at these prices."""


class Fitting:
    """One search. `used` estimates the bytes of each device, and `exact` counts them; both are at least the sum of `shares` of a
    device's nodes and the greatest of their `floors`. `loads` are guesses of the bytes that leave a device with a node. `effort`
    is the part of the branching; below 1, there is no dynamic programming."""

    def __init__(
        self, problem: AssignmentProblem, shares: Array, limits: Array, used: Used, exact: Used | None = None,
        loads: Array | None = None, floors: Array | None = None, effort: float = 1.0,
    ) -> None:
        self.problem, self.shares, self.limits, self.used = problem, shares, limits, used
        self.exact = exact or used
        self._loads = shares if loads is None else loads
        self._floors = np.zeros(len(shares)) if floors is None else floors
        self._assigner = Assigner(problem)
        self._effort = effort
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
        self._tighten(times)
        fixed, nothing = np.zeros(len(times), bool), np.zeros(len(self.limits))
        root = _Subproblem(times, self._reachable(times), fixed, free.bound, nothing, free.chosen)
        parts = self._priced([root], ROUNDS) if self._propagated(root) else []
        if self._best is None:
            assert self._nearest is not None
            self._repair(self._nearest[1])
        if self._best is not None:
            self._improve()
        bound = max([part.bound for part in parts], default=np.inf)
        if parts and not self._is_close(bound) and len(times) <= MOST_MOVED and self._effort == 1:
            bound = max(bound, self._label(parts[0]))
        return self._result(bound if self._is_close(bound) else max(bound, self._branch(parts)))

    def _label(self, part: _Subproblem) -> float:
        """A bound by dynamic programming, which finds assignments too."""
        ones, none = np.ones((1, *part.times.shape)), np.zeros(1)
        resources = Resources(ones, none, self.shares, part.limits, self._floors)
        labelling = Labelling(attrs.evolve(self.problem, times=part.times), resources)
        if labelling.steps is None:
            return part.bound
        bound = max(part.bound, labelling.bound)
        for most, merge in itertools.product(LABELS, (False, True)):
            found = labelling.search(most, self._cost, merge)
            before = self._cost
            self._offer(np.array(found.chosen), np.array([self.problem.cost(one) for one in found.chosen]))
            if self._cost < before:
                self._improve()
            bound = max(bound, found.bound)
            if found.is_exact or self._is_close(bound):
                break
        return bound

    def _reachable(self, times: Array) -> Array:
        """The limits, lowered to the greatest sums of shares within them: eight equal layers fit where 8.3 would."""
        limits = self.limits.copy()
        for device in np.flatnonzero(self._limited & (limits > 0)).tolist() if len(times) <= MOST_MOVED else ():
            unit = float(limits[device]) / UNITS
            sizes = [int(share // unit) for share in self.shares[np.isfinite(times[:, device])].tolist() if share > 0]
            sums, within = 1, (2 << UNITS) - 1
            for size in sizes:
                sums |= sums << size & within if size <= UNITS else 0
            limits[device] = min(limits[device], (sums.bit_length() - 1 + len(sizes)) * unit)
        return limits

    def _is_close(self, bound: float) -> bool:
        """True if the best assignment costs no more than the bound."""
        return self._best is not None and self._cost - bound <= CLOSE * abs(self._cost)

    def _result(self, bound: float) -> Fitted:
        assert self._nearest is not None
        if self._best is None and self._over(self.exact(self._nearest[1])) <= 0:  # the estimate may be too high
            self._best, self._cost = self._nearest[1], self.problem.cost(self._nearest[1])
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
            if self._nearest is None or (cost < np.inf and over < self._nearest[0]):
                self._nearest = over, chosen.copy()
            self._tried[key] = over <= 0
        return self._tried[key]

    def _offer(self, candidates: Array, costs: Array) -> None:
        """Keeps the best of the candidates that fit. Those whose cost, or a lower bound of it, is above the best are skipped."""
        for chosen, cost in zip(candidates, costs.tolist()):
            if cost * (1 - CLOSE) < self._cost:
                self._fits(chosen)

    def _over(self, used: Array) -> float:
        return float(np.maximum(used[self._limited] - self.limits[self._limited], 0.0).sum())

    def _overflow(self, chosen: Array) -> float:
        """The bytes beyond the limits, of all devices together."""
        return self._over(self.used(chosen))

    def _relaxed(self, times: Array, limits: Array, prices: Array) -> tuple[Array, Array, Array]:
        """Bounds, assignments, and the excess of each limited device relative to its limit, for a batch of times, limits and
        prices. Each price is that of as many bytes as the limit."""
        rates = np.where(self._limited, prices / self._scale, 0.0)
        solved = self._assigner.solve(times + rates[:, np.newaxis] * self.shares[:, np.newaxis])
        most = np.where(self._limited, limits, 0.0)
        relaxed, chosen = np.array([one.bound for one in solved]), np.array([one.chosen for one in solved])
        excess = np.array([self._held(one) for one in chosen]) - most
        bounds = relaxed - (rates * most).sum(axis=1)
        self._offer(chosen, bounds - (rates * excess).sum(axis=1))
        return bounds, chosen, np.where(self._limited, excess / self._scale, 0.0)

    def _held(self, chosen: Array) -> Array:
        """The sum of shares of each device."""
        return np.bincount(chosen, self.shares, len(self.limits))

    def _priced(self, parts: Sequence[_Subproblem], rounds: int) -> list[_Subproblem]:
        """The parts with the greatest bounds that were found, by steps along the excess from their prices on."""
        if not parts:
            return []
        times, limits = np.array([part.times for part in parts]), np.array([part.limits for part in parts])
        prices = np.array([part.prices for part in parts])
        bounds, chosen, excess = self._relaxed(times, limits, prices)
        size = np.maximum(np.abs(bounds), 1e-9)
        for _ in range(rounds):
            length = np.abs(excess).max(axis=1)
            going = np.flatnonzero((length > 0) & np.isfinite(bounds) & (bounds < self._cost * (1 - CLOSE)))
            if not len(going):
                break
            steps = excess[going] * (size[going] / length[going])[:, np.newaxis]
            tries = np.maximum(prices[going, np.newaxis] + np.multiply.outer(steps, STEPS).swapaxes(1, 2), 0.0)
            count = len(STEPS)
            found, where, over = self._relaxed(
                times[going].repeat(count, axis=0), limits[going].repeat(count, axis=0), tries.reshape(-1, len(self.limits))
            )
            for row, i in enumerate(going.tolist()):
                best = row * count + int(found[row * count : (row + 1) * count].argmax())
                if found[best] > bounds[i]:
                    bounds[i], chosen[i], excess[i] = found[best], where[best], over[best]
                    prices[i] = tries[row, best - row * count]
                else:  # both sides of a kink: their mean points along it
                    excess[i] = (excess[i] + over[row * count + count // 2]) / 2
            size *= 0.7
        return [
            attrs.evolve(part, bound=max(part.bound, bound), prices=price, chosen=one)
            for part, bound, price, one in zip(parts, bounds.tolist(), prices, chosen)
        ]

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
        neighbours = self.problem.neighbours()
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
                        moves.append((self.problem.change(chosen, node, device, neighbours[node]).sum() / freed, node, device))
            if not moves:
                return
            _, node, device = min(moves)
            chosen[node] = device
            used = self.used(chosen)

    def _improve(self) -> None:
        """Moves and exchanges nodes as long as that is cheaper and fits."""
        assert self._best is not None
        if len(self._best) > MOST_MOVED:
            return
        neighbours = self.problem.neighbours()
        again = True
        while again:
            again = False
            for node in range(len(self._best)):
                chosen = self._best.copy()
                for device in np.flatnonzero(np.isfinite(self.problem.times[node])).tolist():
                    if device == self._best[node]:
                        continue
                    change = self.problem.change(self._best, node, device, neighbours[node]).sum()
                    if change < -CLOSE * self._cost:
                        chosen[node] = device
                        again |= self._fits(chosen)
            again |= len(self._best) <= MOST_EXCHANGED and self._exchanged(neighbours)

    def _exchanged(self, neighbours: Sequence[Sequence[int]]) -> bool:
        """True if exchanging the devices of two nodes is cheaper and fits."""
        assert self._best is not None
        before, able = self._cost, np.isfinite(self.problem.times).tolist()
        for first, second in itertools.combinations(range(len(self._best)), 2):
            here, there = int(self._best[first]), int(self._best[second])
            if here == there or not (able[first][there] and able[second][here]):
                continue
            chosen = self._best.copy()
            change = self.problem.change(chosen, first, there, neighbours[first]).sum()
            chosen[first] = there
            change += self.problem.change(chosen, second, here, neighbours[second]).sum()
            chosen[second] = here
            if change < -CLOSE * self._cost:
                self._fits(chosen)
        return self._cost < before

    def _branch(self, parts: Sequence[_Subproblem]) -> float:
        """The bound after branching on the parts with the least bounds, several at once."""
        count, cost = len(self.shares), self._cost
        budget = int(self._effort * EFFORT / count**1.5)
        together = max(1, self._assigner.batch // (len(STEPS) * len(self.limits)))
        numbers, queue = itertools.count(), list[tuple[float, int, _Subproblem]]()
        while True:
            for part in parts:
                if part.bound < self._cost:
                    heapq.heappush(queue, (part.bound, next(numbers), part))
            if not queue or budget <= 0 or self._is_close(queue[0][0]):
                return min([self._cost, *(bound for bound, _, _ in queue)])
            some = [heapq.heappop(queue)[-1] for _ in range(min(len(queue), together))]
            children = [child for part in some if not self._is_close(part.bound) for child in self._split(part)]
            budget -= len(children)
            parts = self._priced([child for child in children if self._propagated(child)], AGAIN)
            self._raise_prices([part for part in parts if part.prices.any() and np.isfinite(part.bound)])
            if self._cost < cost:
                self._improve()
                cost = self._cost

    def _raise_prices(self, parts: Sequence[_Subproblem]) -> None:
        """Tries the cheapest assignments of parts at higher prices, of what leaves a device with a node."""
        if parts:
            prices = np.array([np.outer(RAISED, part.prices) for part in parts]).reshape(-1, len(self.limits))
            rates = np.where(self._limited, prices / self._scale, 0.0)
            times = np.array([part.times for part in parts]).repeat(len(RAISED), axis=0)
            solved = self._assigner.solve(times + rates[:, np.newaxis] * self._loads[:, np.newaxis])
            self._offer(np.array([one.chosen for one in solved]), np.array([self.problem.cost(one.chosen) for one in solved]))

    def _split(self, part: _Subproblem) -> list[_Subproblem]:
        """The parts of a part; none if it is a single assignment, which was tried."""
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
                limits[device] = min(limits[device], limit - step)
                return [attrs.evolve(part, times=times), attrs.evolve(part, times=part.times.copy(), limits=limits)]
        over = np.where(self._limited, held - part.limits, -1.0)
        weight = np.where(part.fixed, -1.0, self.shares * (over[part.chosen] > 0) + 1e-6 * self._loads)
        node = int(weight.argmax())
        if weight[node] < 0:
            return []
        children = []
        for device in np.flatnonzero(np.isfinite(part.times[node])).tolist():
            times = part.times.copy()
            times[node] = np.inf
            times[node, device] = part.times[node, device]
            children.append(attrs.evolve(part, times=times))
        return children

    def _propagated(self, part: _Subproblem) -> bool:
        """False if no assignment of the part is within the limits. Else its times are made infinite where a node has no room
        beside those that have one device only."""
        slack = CLOSE * self._scale
        while True:
            able = np.isfinite(part.times)
            single = able.sum(axis=1)
            if not single.all():
                return False
            part.fixed[:] = single == 1
            devices = able[part.fixed].argmax(axis=1)
            held, tallest = np.bincount(devices, self.shares[part.fixed], len(self.limits)), np.zeros(len(self.limits))
            np.maximum.at(tallest, devices, self._floors[part.fixed])
            with_it = np.where(part.fixed, 0.0, self.shares)[:, np.newaxis] + held
            highest = np.maximum(self._floors[:, np.newaxis], tallest)
            full = able & self._limited & ((with_it > part.limits + slack) | (with_it + highest > self.limits + slack))
            if not full.any():
                room = np.minimum(part.limits, self.limits - tallest) - held
                return self._has_room(able[~part.fixed], self.shares[~part.fixed], room)
            part.times[full] = np.inf

    def _has_room(self, able: Array, shares: Array, room: Array) -> bool:
        """False if nodes that may be on some limited devices only need more than these have."""
        for devices in np.unique(able, axis=0):
            if self._limited[devices].all():
                needed = float(shares[~(able & ~devices).any(axis=1)].sum())
                if needed * (1 - CLOSE) > room[devices].sum():
                    return False
        return True
