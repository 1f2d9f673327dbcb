"""Dynamic programming over labels: assignments of the first nodes of an order, of which the dominated ones are dropped.

A label has a state (the devices on which the tensors are that later nodes read), what it has used of each resource, and a lower
bound of the cost of all assignments that it begins, by multipliers of the resources (a Lagrangian). Labels whose bound reaches
the best known cost are dropped. Equal devices are interchangeable, so that labels are kept up to their exchange. If too many are
left, either the worst are dropped (a restriction, which finds assignments) or near ones are merged (a relaxation, which
proves bounds)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from partita.accelerators.placement.assignment import AssignmentProblem
from partita.graph.types import Array

MOST_STATES = 1 << 18
"""Maximum number of pairs of a state and a device, of all steps together."""

MOST_LABELS = 600_000
"""Maximum number of labels of all steps together."""

MOST_BITS = 62
"""Maximum number of bits of the key of a label's state."""

ROUNDS = 20
"""Maximum number of changes of the multipliers."""

STEPS = tuple(2.0**i for i in range(-6, 3))
"""The changes of the multipliers that are tried at once, relative to the cost."""

SCALES = (0.0, 0.5, 0.8, 1.0, 1.25, 2.0)
"""The prices of bytes by which labels are bounded, relative to the best ones."""

UNITS = (1 << 16) - 1
"""Maximum number of parts of a limit by which sums of shares are told apart."""

MOST_SUMS = 1 << 24
"""Maximum number of sums of shares of a device, of all steps together."""

PER_NODE = 256
"""The same for one node."""

DISTANCES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
"""The ranks apart of labels of one state, in order of cost, that are compared."""

LEADERS = 8
"""Number of the best labels with which all others are compared, across states."""

FINEST = float(1 << 30)
"""The parts of a limit, or of the cost, up to which uses of a resource are told apart."""

MIXER = np.uint64(0x9E3779B97F4A7C15)
"""An odd number by which keys are mixed."""

KEPT = 64
"""Maximum number of assignments that a pass returns."""

CLOSE = 1e-9
"""Relative gap that counts as zero."""


@attrs.frozen(slots=True, eq=False)
class Resources:
    """The quantities that an assignment uses: one or several loads, the greatest of which is the cost, and bytes of devices."""

    factors: Array
    """By load, node and device, the part of the node's time and of the hand-overs to it that counts."""
    busy: Array
    """The loads of no node at all."""
    shares: Array
    """The bytes of each node."""
    limits: Array
    """The most bytes by device; infinite without a limit."""
    floors: Array
    """The bytes that each node needs beside the shares on its device."""


@attrs.frozen(slots=True, eq=False)
class _Step:
    """The assignment of one node in the problem that bounds labels."""

    node: int
    costs: Array
    """By state before and device, the time and hand-overs; infinite where the node does not run."""
    after: Array
    """By state before and device, the state after."""
    keys: Array
    """The sorted keys of the states after."""


@attrs.frozen(slots=True, eq=False)
class Labelled:
    """The result of one pass."""

    chosen: list[Array]
    """Assignments, the best first."""
    bound: float
    """A lower bound of the cost of any assignment within the limits, or the best known cost if that is less."""
    is_exact: bool
    """True if no label was dropped or merged for want of space."""


class Labelling:
    """One problem, as the steps of an order of its nodes; `steps` is None if the graph is too wide. A pass is linear in nodes."""

    def __init__(self, problem: AssignmentProblem, resources: Resources) -> None:
        self._problem, self._resources = problem, resources
        self._devices = problem.times.shape[1]
        self._limited = np.flatnonzero(np.isfinite(resources.limits))
        self._limits = resources.limits[self._limited]
        self._loads = len(resources.busy)
        self._owners = self._owning_devices()
        self._groups = self._equal_devices()
        self._nodes = self._order()
        position = {node: i for i, node in enumerate(self._nodes)}
        self._makes: list[list[int]] = [[] for _ in self._nodes]
        self._reads: list[list[int]] = [[] for _ in self._nodes]
        self._first, self._last = np.zeros(len(problem.readers), np.intp), np.zeros(len(problem.readers), np.intp)
        for tensor, (producer, readers) in enumerate(zip(problem.producers.tolist(), problem.readers)):
            places = sorted(position[reader] for reader in readers)
            for place in places:
                self._reads[place].append(tensor)
            if producer >= 0:
                self._makes[position[producer]].append(tensor)
            self._first[tensor], self._last[tensor] = position[producer] if producer >= 0 else places[0], places[-1]
        self._is_shared = np.array([len(readers) > 1 for readers in problem.readers], bool)
        self._laters: dict[int, Array] = {}
        self.steps = self._relaxed_steps()
        self.bound = -np.inf
        """A lower bound of the cost, by multipliers alone."""
        if self.steps is not None:
            self._sums = [self._suffix_sums(device) for device in self._limited.tolist()]
            self.bound, best = self._priced()
            self._multipliers = np.tile(best, (len(SCALES), 1))
            self._multipliers[:, self._loads :] *= np.array(SCALES)[:, np.newaxis]
            self._left = self._remaining(self._multipliers)

    # -- states ---------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """The nodes, each right behind its inputs."""
        problem = self._problem
        count = len(problem.times)
        inputs: list[list[int]] = [[] for _ in range(count)]
        is_read = np.zeros(count, bool)
        for producer, readers in zip(problem.producers.tolist(), problem.readers):
            for reader in readers if producer >= 0 else ():
                inputs[reader].append(producer)
                is_read[producer] = True
        order: list[int] = []
        done = [False] * count
        for root in [*np.flatnonzero(~is_read).tolist(), *range(count)]:
            stack = [(root, 0)]
            while stack:
                node, at = stack.pop()
                own = inputs[node]
                while at < len(own) and done[own[at]]:
                    at += 1
                if at < len(own):
                    stack += [(node, at + 1), (own[at], 0)]
                elif not done[node]:
                    done[node] = True
                    order.append(node)
        return order

    def _relaxed_steps(self) -> list[_Step] | None:
        """The steps of the problem, or of one that costs less and has fewer states: in which the hand-overs to each reader cost
        a part, or some cost nothing."""
        problem, devices = self._problem, self._devices
        most = problem.hand_overs.max(axis=(1, 2), initial=0.0)
        shared, kept = self._is_shared.copy(), np.ones(len(self._last), bool)
        bits, exact = np.zeros(len(self._nodes) + 1), np.zeros(len(self._nodes) + 1)
        sizes = np.where(shared, np.log2(devices) + devices - 1, np.log2(devices))
        for first, last, size, is_shared in zip(self._first, self._last, sizes, shared.tolist()):
            bits[first:last] += size
            exact[first:last] += self._width(is_shared)
        if exact.max() > MOST_BITS:
            return None
        while (2.0**bits).sum() * devices > MOST_STATES:
            peak = int(bits.argmax())
            there = np.flatnonzero(kept & (self._first <= peak) & (peak < self._last))
            some = there[shared[there]]
            tensor = int((some if len(some) else there)[most[some if len(some) else there].argmin()])
            less = devices - 1 if len(some) else np.log2(devices)
            (shared if len(some) else kept)[tensor] = False
            bits[self._first[tensor] : self._last[tensor]] -= less
        parts = np.array([1.0 if one else 1.0 / len(readers) for one, readers in zip(shared, problem.readers)])
        self._is_relaxed_shared, self._is_kept = shared, kept & (shared | (problem.producers >= 0))
        return self._steps(attrs.evolve(problem, hand_overs=problem.hand_overs * np.where(kept, parts, 0.0)[:, None, None]))

    def _width(self, is_shared: bool) -> int:
        """The bits of a tensor's code: its producer's device, and for several readers the devices reached."""
        return ((self._devices << self._devices if is_shared else self._devices) - 1).bit_length()

    def _read(
        self, problem: AssignmentProblem, i: int, device: int, before: dict[int, Array], count: int, shared: Array
    ) -> tuple[Array, dict[int, Array]]:
        """By state before a step, the cost of its node on a device, and the states after it: the code of each tensor that later
        nodes read."""
        devices, after = self._devices, dict(before)
        costs = np.full(count, problem.times[self._nodes[i], device])
        for tensor in self._reads[i]:
            codes = before.get(tensor)
            if codes is None:
                codes = np.zeros(count, np.int64)
            where, reached = codes % devices, codes // devices
            cost = problem.hand_overs[tensor, where, device]
            costs += np.where(reached >> device & 1, 0.0, cost)
            if self._last[tensor] <= i:
                after.pop(tensor, None)
            elif shared[tensor]:
                after[tensor] = where + devices * (reached | np.where(cost != 0, 1 << device, 0))
        for tensor in self._makes[i]:
            after[tensor] = np.full(count, device, np.int64)
        return costs, after

    def _packed(self, after: dict[int, Array], count: int, is_relaxed: bool) -> Array:
        """The keys of states; in the problem that bounds labels if `is_relaxed`."""
        keys, bits = np.zeros(count, np.int64), 0
        for tensor, codes in after.items():
            if not is_relaxed or self._is_kept[tensor]:
                is_shared = bool((self._is_relaxed_shared if is_relaxed else self._is_shared)[tensor])
                keys |= (codes if is_shared else codes % self._devices) << bits
                bits += self._width(is_shared)
        return keys

    def _steps(self, problem: AssignmentProblem) -> list[_Step]:
        steps, count, live = list[_Step](), 1, dict[int, Array]()
        for i, node in enumerate(self._nodes):
            able = np.isfinite(problem.times[node])
            costs, keys = np.full((count, self._devices), np.inf), np.zeros((count, self._devices), np.int64)
            parts = []
            for device in np.flatnonzero(able).tolist():
                costs[:, device], after = self._read(problem, i, device, live, count, self._is_relaxed_shared)
                parts.append({tensor: codes for tensor, codes in after.items() if self._is_kept[tensor]})
                keys[:, device] = self._packed(parts[-1], count, True)
            found, first = np.unique(keys[:, able].T, return_index=True)
            live = {tensor: np.concatenate([part[tensor] for part in parts])[first] for tensor in parts[0]}
            steps.append(_Step(node, costs, np.where(able, np.searchsorted(found, keys), 0), found))
            count = len(found)
        return steps

    # -- equal devices --------------------------------------------------------------------------------

    def _owning_devices(self) -> list[int]:
        """The device that each load is of; -1 if it is of several."""
        owners = []
        for factors in self._resources.factors:
            there = np.flatnonzero((factors != 0).any(axis=0))
            owners.append(int(there[0]) if len(there) == 1 else -1)
        return owners

    def _columns(self, permutation: Sequence[int]) -> list[int] | None:
        """By resource, the one whose place it takes if device `permutation[i]` takes the place of device i."""
        owners = self._owners
        columns = []
        for number, owner in enumerate(owners):
            own = [i for i, one in enumerate(owners) if one == owner]
            other = [i for i, one in enumerate(owners) if one == permutation[owner]] if owner >= 0 else own
            if len(own) != len(other):
                return None
            columns.append(other[own.index(number)] if owner >= 0 else number)
        numbers = {device: i for i, device in enumerate(self._limited.tolist())}
        for device in self._limited.tolist():
            if permutation[device] not in numbers:
                return None
            columns.append(self._loads + numbers[permutation[device]])
        return columns

    def _equal_devices(self) -> list[list[int]]:
        """The groups of devices that may be exchanged."""
        groups: list[list[int]] = []
        for device in range(self._devices):
            for group in groups:
                if self._is_equal(group[0], device):
                    group.append(device)
                    break
            else:
                groups.append([device])
        return [group for group in groups if len(group) > 1]

    def _is_equal(self, first: int, second: int) -> bool:
        """True if the exchange of two devices changes nothing."""
        problem, resources = self._problem, self._resources
        swap = list(range(self._devices))
        swap[first], swap[second] = second, first
        columns = self._columns(swap)
        if columns is None or resources.limits[first] != resources.limits[second]:
            return False
        loads = columns[: self._loads]
        tables = problem.hand_overs[:, swap][:, :, swap]
        return bool(
            np.array_equal(problem.times, problem.times[:, swap]) and np.array_equal(resources.busy, resources.busy[loads])
            and np.array_equal(resources.factors, resources.factors[loads][:, :, swap])
            and np.array_equal(problem.hand_overs, tables)
        )

    def _sorted(self, live: dict[int, Array], used: Array) -> Array:
        """Exchanges equal devices in labels, in place, so that those with the most bytes are first. The permutations."""
        devices = self._devices
        permutations = np.tile(np.arange(devices), (len(used), 1))
        numbers = {device: i for i, device in enumerate(self._limited.tolist())}
        owners = self._owners
        for group in self._groups:
            if group[0] in numbers:
                keys = used[:, [self._loads + numbers[device] for device in group]]
            elif self._loads > 1 and group[0] in owners:
                keys = used[:, [owners.index(device) for device in group]]
            else:
                continue
            permutations[:, group] = np.array(group)[np.argsort(-keys, axis=1, kind="stable")]
        changed = np.flatnonzero((permutations != np.arange(devices)).any(axis=1))
        if len(changed):
            inverse = np.argsort(permutations[changed], axis=1)
            for tensor, codes in live.items():
                where, reached = codes[changed] % devices, codes[changed] // devices
                moved = inverse[np.arange(len(changed)), where]
                if self._is_shared[tensor]:
                    for device in range(devices):
                        moved += devices * ((reached >> permutations[changed, device] & 1) << device)
                codes[changed] = moved
            code = permutations[changed] @ (devices ** np.arange(devices))
            for one in np.unique(code).tolist():
                rows = changed[code == one]
                columns = self._columns(permutations[rows[0]].tolist())
                assert columns is not None
                used[rows] = used[rows][:, columns]
        return permutations

    # -- multipliers ----------------------------------------------------------------------------------

    def _unary(self, step: _Step, multipliers: Array) -> tuple[Array, Array]:
        """By multipliers and device, the factor of a step's costs, and what is added for bytes."""
        weights = multipliers[:, : self._loads] @ self._resources.factors[:, step.node]
        added = np.zeros((len(multipliers), self._devices))
        added[:, self._limited] = multipliers[:, self._loads :] * self._resources.shares[step.node]
        return weights, added

    def _remaining(self, multipliers: Array) -> list[Array]:
        """By step, multipliers and state before it, the least priced cost of all that is left."""
        assert self.steps is not None
        left = [np.zeros((len(multipliers), 1))]
        for step in reversed(self.steps):
            weights, added = self._unary(step, multipliers)
            values = left[-1][:, step.after]
            able = np.isfinite(step.costs)
            values += np.where(able, step.costs, 0.0) * weights[:, np.newaxis] + added[:, np.newaxis]
            left.append(np.where(able, values, np.inf).min(axis=2))
        return left[::-1]

    def _used(self, multipliers: Array, left: Sequence[Array]) -> Array:
        """By multipliers, what the assignment of the least priced cost uses of each resource."""
        assert self.steps is not None
        resources, rows = self._resources, np.arange(len(multipliers))
        used = np.zeros((len(multipliers), self._loads + len(self._limited)))
        used[:, : self._loads] = resources.busy
        states = np.zeros(len(multipliers), np.intp)
        columns = np.full(self._devices, -1)
        columns[self._limited] = self._loads + np.arange(len(self._limited))
        for i, step in enumerate(self.steps):
            weights, added = self._unary(step, multipliers)
            costs = step.costs[states]
            able = np.isfinite(costs)
            values = np.where(able, np.where(able, costs, 0.0) * weights + added, np.inf)
            values += left[i + 1][rows[:, np.newaxis], step.after[states]]
            devices = values.argmin(axis=1)
            used[:, : self._loads] += costs[rows, devices][:, np.newaxis] * resources.factors[:, step.node, devices].T
            there = columns[devices]
            used[rows[there >= 0], there[there >= 0]] += resources.shares[step.node]
            states = step.after[states, devices]
        return used

    def _even(self, values: Array) -> Array:
        """The mean over equal devices, which may be exchanged in any assignment."""
        owners = self._owners
        for group in self._groups:
            for columns in (
                [i for i, owner in enumerate(owners) if owner in group],
                [self._loads + i for i, device in enumerate(self._limited.tolist()) if device in group],
            ):
                if columns:
                    values[..., columns] = values[..., columns].mean(axis=-1, keepdims=True)
        return values

    def _priced(self) -> tuple[float, Array]:
        """The greatest bound that was found, and its multipliers."""
        loads, limits = self._loads, self._limits
        best = np.concatenate([np.full(loads, 1 / loads), np.zeros(len(limits))])

        def bounds(multipliers: Array) -> tuple[Array, Array]:
            left = self._remaining(multipliers)
            used = self._used(multipliers, left)
            values = left[0][:, 0] + multipliers[:, :loads] @ self._resources.busy - multipliers[:, loads:] @ limits
            return values, self._even(used)

        (bound,), (used,) = bounds(best[np.newaxis])
        scale, size = np.where(limits > 0, limits, 1.0), 1.0
        for _ in range(ROUNDS):
            slope = used.copy()
            slope[loads:] = slope[loads:] / scale - limits / scale
            share = slope[:loads] / max(float(slope[:loads].max()), 1e-30) - 1.0
            length = max(float(np.abs(slope[loads:]).max(initial=0.0)), 1e-30)
            tries = np.tile(best, (len(STEPS), 1))
            for row, step in zip(tries, STEPS):
                row[:loads] *= np.exp(step * size * share)
                row[:loads] = np.maximum(row[:loads] / row[:loads].sum(), 1e-9)
                row[:loads] /= row[:loads].sum()
                prices = row[loads:] * scale + step * size * abs(bound) * slope[loads:] / length
                row[loads:] = np.maximum(prices, 0.0) / scale
            found, uses = bounds(tries)
            top = int(found.argmax())
            if found[top] > bound * (1 + CLOSE):
                bound, best, used = float(found[top]), tries[top], uses[top]
            else:
                used = (used + uses[len(STEPS) // 2]) / 2
                size *= 0.6
            if size < 1e-3:
                break
        return float(bound), best

    # -- labels ---------------------------------------------------------------------------------------

    def search(self, most: int, cost: float, merge: bool) -> Labelled:
        """One pass with at most so many labels at a time; `cost` is the best known one."""
        assert self.steps is not None
        loads, limits, multipliers, left = self._loads, self._limits, self._multipliers, self._left
        most = min(most, MOST_LABELS // len(self.steps))
        live: dict[int, Array] = {}
        used = np.concatenate([self._resources.busy, np.zeros(len(limits))])[np.newaxis]
        trace: list[tuple[Array, Array, Array]] = []
        dropped, is_exact = np.inf, True
        limit = cost * (1 - CLOSE)
        self._units, self._parts = np.where(limits > 0, limits, 1.0), FINEST
        self._units = np.concatenate([np.full(loads, cost if np.isfinite(cost) else 4 * max(self.bound, 1.0)), self._units])
        self._keyed = 1 if loads == 1 else 0
        for i, step in enumerate(self.steps):
            live, used, parents, devices = self._extended(i, live, used)
            states = np.searchsorted(step.keys, self._packed(live, len(used), True))
            priced = used[:, :loads] @ multipliers[:, :loads].T + left[i + 1][:, states].T
            priced -= self._reached(i, limits - used[:, loads:]) @ multipliers[:, loads:].T
            bounds = np.maximum(priced.max(axis=1), used[:, :loads].max(axis=1))
            rows = np.flatnonzero(bounds < limit)
            live = {tensor: codes[rows] for tensor, codes in live.items()}
            used, parents, devices, bounds = used[rows], parents[rows], devices[rows], bounds[rows]
            permutations = self._sorted(live, used).astype(np.int8)
            states = self._packed(live, len(used), False)
            rows = self._distinct(states, used)
            if len(rows) > LEADERS:
                rows = self._unled(live, used, bounds, rows)
            if len(rows) > most:
                is_exact = False
                rows = rows[np.argsort(bounds[rows], kind="stable")]
                kept, others = rows[: most // 2], rows[most // 2 :]
                merged, least = self._merged(states[others], used[others], most - len(kept))
                out = np.zeros(len(others), bool)
                if len(merged) > most - len(kept):  # that many states: the worst have no place
                    best = np.argsort(merged)[: most - len(kept)]
                    out[np.delete(merged, best)] = True
                    merged, least = merged[best], least[best]
                if not merge:
                    out[:], least = True, used[others[merged]]
                    out[merged] = False
                dropped = min(dropped, float(bounds[others[out]].min(initial=np.inf)))
                rows, used = np.concatenate([kept, others[merged]]), np.concatenate([used[kept], least])
            else:
                used = used[rows]
            live, bounds = {tensor: codes[rows] for tensor, codes in live.items()}, bounds[rows]
            trace.append((parents[rows].astype(np.int32), devices[rows], permutations[rows]))
            if not len(used):
                break
        costs = used[:, :loads].max(axis=1)
        ends = np.argsort(costs, kind="stable")[:KEPT].tolist()
        bound = min(cost, dropped, float(costs.min(initial=np.inf)))
        return Labelled([self._path(trace, end) for end in ends], bound, is_exact)

    def _extended(self, i: int, live: dict[int, Array], used: Array) -> tuple[dict[int, Array], Array, Array, Array]:
        """The labels with the node of a step on each device that has room: what they use, and the label and device of each."""
        node, resources, parts = self._nodes[i], self._resources, []
        columns = {device: self._loads + number for number, device in enumerate(self._limited.tolist())}
        for device in np.flatnonzero(np.isfinite(self._problem.times[node])).tolist():
            costs, after = self._read(self._problem, i, device, live, len(used), self._is_shared)
            more, rows = used.copy(), np.arange(len(used))
            more[:, : self._loads] += costs[:, np.newaxis] * resources.factors[:, node, device]
            if device in columns:
                more[:, columns[device]] += resources.shares[node]
                most = resources.limits[device] * (1 + CLOSE) - resources.floors[node]
                rows = np.flatnonzero(more[:, columns[device]] <= most)
            devices = np.full(len(rows), device, np.int8)
            parts.append(({tensor: codes[rows] for tensor, codes in after.items()}, more[rows], rows, devices))
        after = {tensor: np.concatenate([part[0][tensor] for part in parts]) for tensor in parts[0][0]}
        used, parents, devices = (np.concatenate(one) for one in list(zip(*parts))[1:])
        return after, used, parents, devices

    def _reached(self, i: int, room: Array) -> Array:
        """By label and limited device, the most bytes that nodes behind a step can take of the room that is left: eight equal
        layers fit where 8.3 would."""
        columns = []
        for (unit, tables), column in zip(self._sums, np.maximum(room, 0.0).T):
            table, extra = tables[i + 1]
            cells = np.minimum((column / unit * (1 + CLOSE)).astype(np.int64), len(table) - 1)
            columns.append(np.minimum(column, (table[cells].astype(float) + extra) * unit))
        return np.stack(columns, axis=1) if columns else room

    def _suffix_sums(self, device: int) -> tuple[float, list[tuple[Array, int]]]:
        """The bytes of a unit, and by step, the greatest sum of shares from there on that is within each number of units; with
        it, by how many units it may be too small."""
        assert self.steps is not None
        count = min(UNITS, PER_NODE * len(self.steps), MOST_SUMS // len(self.steps))
        unit = max(float(self._resources.limits[device]), 1.0) / count
        sums, extra = 1, 0
        tables: list[tuple[Array, int]] = []
        table = np.zeros(count + 1, np.uint16)
        tables.append((table, 0))
        for step in reversed(self.steps):
            share = float(self._resources.shares[step.node])
            if 0 < share <= unit * count * (1 + CLOSE) and np.isfinite(self._problem.times[step.node, device]):
                size = min(int(share / unit), count)
                sums |= sums << size & (2 << count) - 1
                extra += share - size * unit > unit * CLOSE
                bits = np.unpackbits(np.frombuffer(sums.to_bytes(count // 8 + 1, "little"), np.uint8), bitorder="little")
                table = np.maximum.accumulate(np.where(bits[: count + 1], np.arange(count + 1), 0)).astype(table.dtype)
            tables.append((table, extra))
        return unit, tables[::-1]

    def _mixed(self, states: Array, cells: Array) -> Array:
        """A number for each label, equal for equal states and cells."""
        mixed = states.astype(np.uint64)
        for column in cells.T:
            mixed = (mixed ^ (mixed >> np.uint64(29))) * MIXER + column.astype(np.uint64)
        return mixed

    def _distinct(self, states: Array, used: Array) -> Array:
        """The rows of labels of which no other has the same state, uses as much, and costs less."""
        cells = (used[:, self._keyed :] * (FINEST / self._units[self._keyed :])).astype(np.int64)
        mixed = self._mixed(states, cells)
        order = np.lexsort([used[:, 0], mixed])
        same = mixed[order[1:]] == mixed[order[:-1]]
        same &= states[order[1:]] == states[order[:-1]]
        same &= (cells[order[1:]] == cells[order[:-1]]).all(axis=1)
        rows = order[np.concatenate([np.ones(min(len(order), 1), bool), ~same])]
        return self._undominated(states, used, rows)

    def _unled(self, live: dict[int, Array], used: Array, bounds: Array, rows: Array) -> Array:
        """The rows of labels that are not dominated by one of the best, which has another state that may cost more later."""
        leaders = rows[np.argpartition(bounds[rows], LEADERS)[:LEADERS]]
        led = np.zeros(len(rows), bool)
        codes = [(self._later(tensor), own[rows], own[leaders]) for tensor, own in live.items()]
        for number, leader in enumerate(leaders.tolist()):
            least = used[leader] * np.ones((len(rows), 1))
            for table, own, lead in codes:
                least[:, : self._loads] += table[lead[number]].take(own, axis=0)
            led |= (used[rows] >= least).all(axis=1) & (least > used[leader]).any(axis=1)
        return rows[~led]

    def _later(self, tensor: int) -> Array:
        """By two codes of a tensor and load, how much more the first may cost than the second."""
        if tensor not in self._laters:
            devices = self._devices
            codes = np.arange(devices << devices if self._is_shared[tensor] else devices)
            costs = self._problem.hand_overs[tensor][codes % devices]
            costs = np.where((codes // devices)[:, np.newaxis] >> np.arange(devices) & 1, 0.0, costs)
            more = np.maximum(costs[:, np.newaxis] - costs, 0.0)
            more = more[..., np.newaxis, :] * self._resources.factors[:, self._problem.readers[tensor][0]]
            self._laters[tensor] = more.sum(axis=-1) if self._is_shared[tensor] else more.max(axis=-1)
        return self._laters[tensor]

    def _undominated(self, states: Array, used: Array, rows: Array) -> Array:
        """The rows of labels that use more of something than each compared one of the same state."""
        rows = rows[np.lexsort([used[rows, 0], states[rows]])]
        own, values = states[rows], np.ascontiguousarray(used[rows].T)
        beaten = np.zeros(len(rows), bool)
        for distance in DISTANCES:
            if distance >= len(rows):
                break
            worse = own[distance:] == own[:-distance]
            for column in values:
                worse &= column[distance:] >= column[:-distance]
            beaten[distance:] |= worse
        return rows[~beaten]

    def _merged(self, states: Array, used: Array, most: int) -> tuple[Array, Array]:
        """Rows of labels, and what these use if others with the same state that use about as much are merged into them, so that
        there are at most so many. The first of equal ones is kept."""
        places = used[:, self._keyed :] / self._units[self._keyed :]
        parts = min(4 * self._parts, FINEST)
        while True:
            cells = (places * parts).astype(np.int64)
            mixed = self._mixed(states, cells)
            order = np.argsort(mixed, kind="stable")
            starts = np.flatnonzero(np.concatenate([[True], mixed[order[1:]] != mixed[order[:-1]]]))
            if len(starts) <= most or parts < 1:
                break
            parts /= 2
        self._parts = parts
        return order[starts], np.minimum.reduceat(used[order], starts, axis=0)

    def _path(self, trace: Sequence[tuple[Array, Array, Array]], end: int) -> Array:
        """The assignment of a last label."""
        assert self.steps is not None
        path = []
        for parents, devices, permutations in reversed(trace):
            path.append((int(devices[end]), permutations[end]))
            end = int(parents[end])
        chosen, places = np.zeros(len(self.steps), np.intp), np.arange(self._devices)
        for step, (device, permutation) in zip(self.steps, reversed(path)):
            chosen[step.node] = places[device]
            places = places[permutation]
        return chosen
