"""The assignment of nodes to devices with the least sum of times and hand-overs, and a proven lower bound of that sum."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from partita.accelerators.placement.elimination import Elimination, elimination, summed
from partita.accelerators.placement.minimum_cut import INFINITE, FlowNetwork
from partita.graph.types import Array

TOGETHER = 1 << 22
"""Number of elements of all tables of a batch that is solved at once, for speed."""

SWEEPS = 20
"""Maximum number of rounds of expansion moves."""


@attrs.frozen(slots=True)
class Charge:
    """A cost by the producer's value, charged once if any reader has a certain value."""

    producer: int
    """The node that the cost depends on; -1 for a constant cost."""
    costs: tuple[float, ...]
    """The cost by the producer's value; a single one if there is no producer."""
    readers: tuple[int, ...]
    """The nodes of which any has to have the value."""
    value: int
    """That value."""


@attrs.frozen(slots=True, eq=False)
class AssignmentProblem:
    """Nodes with their times, and the tensors that pass between them."""

    times: Array
    """The time of each node on each device; infinite where it does not run."""
    producers: Array
    """The node that makes each tensor; -1 if it comes from the host."""
    readers: Sequence[tuple[int, ...]]
    """The distinct nodes that read each tensor."""
    hand_overs: Array
    """By tensor, the cost to hand it over once, by the producer's device and the reader's; zero on the diagonal unless it comes
    from the host, where all rows are equal."""

    def cost(self, chosen: Array) -> float:
        """The sum of times and hand-overs of an assignment. Linear."""
        return float(self.times[np.arange(len(chosen)), chosen].sum() + self.crossings(chosen).sum())

    def crossings(self, chosen: Array) -> Array:
        """The cost of handing over each tensor in an assignment."""
        crossings: Array = self._handed_over(chosen).sum(axis=1)
        return crossings

    def loads(self, chosen: Array) -> Array:
        """The part of the cost that each device has: the times of its nodes, and the hand-overs to it. Linear."""
        own = np.bincount(chosen, self.times[np.arange(len(chosen)), chosen], self.times.shape[1])
        loads: Array = own + self._handed_over(chosen).sum(axis=0)
        return loads

    def weighted(self, weights: Array) -> AssignmentProblem:
        """The problem whose cost is the weighted sum of the devices' loads. Weights are above zero."""
        return attrs.evolve(self, times=self.times * weights, hand_overs=self.hand_overs * weights)

    def neighbours(self) -> list[list[int]]:
        """The tensors that each node makes or reads."""
        tensors: list[list[int]] = [[] for _ in range(len(self.times))]
        for i, (producer, readers) in enumerate(zip(self.producers.tolist(), self.readers)):
            for node in {producer, *readers} - {-1}:
                tensors[node].append(i)
        return tensors

    def change(self, chosen: Array, node: int, device: int, tensors: Sequence[int]) -> Array:
        """The change of each device's load if the node, which makes or reads these tensors, moves to the device."""
        before = int(chosen[node])
        change = np.zeros(self.times.shape[1])
        change[device] += self.times[node, device]
        change[before] -= self.times[node, before]
        for tensor in tensors:
            producer, readers = int(self.producers[tensor]), self.readers[tensor]
            source = 0 if producer < 0 else int(chosen[producer])
            others = {int(chosen[reader]) for reader in readers if reader != node}
            table = self.hand_overs[tensor]
            moved = device if producer == node else source
            reads = node in readers
            for one in others | {device} if reads else others:
                change[one] += table[moved, one]
            for one in others | {before} if reads else others:
                change[one] -= table[source, one]
        return change

    def _handed_over(self, chosen: Array) -> Array:
        """The cost of handing over each tensor to each device."""
        tensors = np.repeat(np.arange(len(self.readers)), [len(nodes) for nodes in self.readers])
        nodes = np.fromiter((node for nodes in self.readers for node in nodes), np.intp, len(tensors))
        reached = np.zeros(self.hand_overs.shape[:2], bool)
        reached[tensors, chosen[nodes]] = True
        rows = self.hand_overs[np.arange(len(self.readers)), np.append(chosen, 0)[self.producers]]
        return np.where(reached, rows, 0.0)

    def charges(self) -> list[Charge]:
        """The hand-overs as charges, for each tensor one per device that it may reach at a cost."""
        able, charges = np.isfinite(self.times).tolist(), []
        for producer, readers, table in zip(self.producers.tolist(), self.readers, self.hand_overs.tolist()):
            for device, costs in enumerate(zip(*(table if producer >= 0 else table[:1]))):
                there = tuple(node for node in readers if able[node][device]) if any(costs) else ()
                if there:
                    charges.append(Charge(producer, costs, there, device))
        return charges


@attrs.frozen(slots=True, eq=False)
class Assigned:
    """A solution."""

    chosen: Array
    """The device of each node."""
    bound: float
    """A proven lower bound of the cost of any assignment."""


class Assigner:
    """Solves one problem for any times: exactly for two devices, and for more if the graph is narrow, else by expansion moves."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem = problem
        self._count, self._devices = problem.times.shape
        self._charges = problem.charges()
        self._sums = ChargedSums([self._devices] * self._count, self._charges)

    @property
    def batch(self) -> int:
        """The number of times that are worth solving together."""
        return max(1, TOGETHER // self._sums.elements) if self._sums.is_narrow else 1

    def solve(self, times: Array) -> list[Assigned]:
        """A solution for each of a batch of times, of the shape (batch, nodes, devices)."""
        if self._sums.is_narrow:
            bounds, chosen = self._sums.solve(times)
            return [Assigned(row, float(bound)) for row, bound in zip(chosen, bounds)]
        if self._devices == 2:
            return [cut(one, self._charges) for one in times]
        return [self._expanded(one) for one in times]

    def _expanded(self, times: Array) -> Assigned:
        """A local optimum under expansion moves, each of which changes any nodes to one device."""
        problem = attrs.evolve(self.problem, times=times)
        chosen = times.argmin(axis=1)
        least = problem.cost(chosen)
        for _ in range(SWEEPS):
            before = least
            for device in range(self._devices):
                moved = self._moved(times, chosen, device)
                cost = problem.cost(moved)
                if cost < least:
                    chosen, least = moved, cost
            if least == before:
                break
        return Assigned(chosen, min(least, self._bound(times)))

    def _moved(self, times: Array, chosen: Array, device: int) -> Array:
        """The best assignment in which each node keeps its device or changes to this one."""
        rows = np.arange(self._count)
        kept = np.stack([times[rows, chosen], times[:, device]], axis=1)
        charges = []
        for charge in self._charges:
            current = () if charge.producer < 0 else (charge.costs[int(chosen[charge.producer])], charge.costs[device])
            costs = current or charge.costs
            if charge.value == device:
                if any(chosen[node] == device for node in charge.readers):
                    if current:
                        kept[charge.producer] += costs
                elif any(costs):
                    charges.append(Charge(charge.producer, costs, charge.readers, 1))
            else:
                there = tuple(node for node in charge.readers if chosen[node] == charge.value)
                if there and any(costs):
                    charges.append(Charge(charge.producer, costs, there, 0))
        sums = ChargedSums([2] * self._count, charges)
        moves = sums.solve(kept[np.newaxis])[1][0] if sums.is_narrow else cut(kept, charges).chosen
        return np.where(moves == 1, device, chosen)

    def _bound(self, times: Array) -> float:
        """The greatest cost of a minimum cut between one device and all others together, which hand over for nothing among
        themselves and are as fast as the fastest of them."""
        bounds = []
        for device in range(self._devices):
            others = [other for other in range(self._devices) if other != device]
            pair = np.stack([times[:, device], times[:, others].min(axis=1)], axis=1)
            table = self.problem.hand_overs
            merged = np.zeros((len(table), 2, 2))
            merged[:, 0, 1] = table[:, device][:, others].min(axis=1)
            merged[:, 1, 0] = table[:, others, device].min(axis=1)
            host = self.problem.producers < 0
            merged[host, :, 0] = table[host, 0, device][:, np.newaxis]
            merged[host, :, 1] = table[host, 0][:, others].min(axis=1)[:, np.newaxis]
            two = AssignmentProblem(pair, self.problem.producers, self.problem.readers, merged)
            bounds.append(cut(pair, two.charges()).bound)
        return max(bounds)


class ChargedSums:
    """The sum of costs of single nodes and of charges, minimised by elimination."""

    def __init__(self, sizes: Sequence[int], charges: Sequence[Charge]) -> None:
        self._count = len(sizes)
        self._fixed: list[Array] = []
        """The costs of the added variables, each of which is 1 if a charge is due."""
        alone: dict[int, Array] = {}
        pairs: dict[tuple[int, int], Array] = {}
        forbidden: dict[tuple[int, int], Array] = {}
        for charge in charges:
            costs, value = charge.costs, charge.value
            others = [node for node in charge.readers if node != charge.producer]
            if len(charge.readers) == 1:
                (reader,) = charge.readers
                table = np.zeros((len(costs), sizes[reader]))
                table[:, value] = costs
                if charge.producer >= 0:
                    summed(pairs, charge.producer, reader, table)
                else:
                    alone[reader] = alone.get(reader, 0.0) + table[0]
                continue
            due = self._count + len(self._fixed)
            self._fixed.append(np.array([[0.0, 0.0 if charge.producer >= 0 else costs[0]]]))
            if charge.producer >= 0:
                summed(pairs, due, charge.producer, np.array([[0.0] * len(costs), costs]))
            for reader in others:
                key = sizes[reader], value
                if key not in forbidden:
                    forbidden[key] = np.zeros((2, sizes[reader]))
                    forbidden[key][0, value] = INFINITE
                summed(pairs, due, reader, forbidden[key])
        self._alone = alone
        self._elimination: Elimination | None = elimination([*sizes, *(2 for _ in self._fixed)], pairs)

    @property
    def is_narrow(self) -> bool:
        """True if elimination can minimise it."""
        return self._elimination is not None

    @property
    def elements(self) -> int:
        """The number of elements of the elimination's tables, for one row of a batch."""
        assert self._elimination is not None
        return self._elimination.elements

    def solve(self, unary: Array) -> tuple[Array, Array]:
        """The least sums, and the best values, for a batch of costs of the shape (batch, nodes, values)."""
        assert self._elimination is not None
        single = [unary[:, node] for node in range(self._count)]
        for node, costs in self._alone.items():
            single[node] = single[node] + costs
        fixed = [np.broadcast_to(costs, (len(unary), 2)) for costs in self._fixed]
        sums, values = self._elimination.solve([*single, *fixed])
        return sums, values[:, : self._count]


def cut(unary: Array, charges: Sequence[Charge]) -> Assigned:
    """The minimum cut for nodes with two values each.

    It is exact, unless a charge on a value costs something for a producer of the same value: that is charged for any value."""
    network = FlowNetwork()
    nodes = [network.node() for _ in range(len(unary))]
    for node, (first, second) in zip(nodes, unary.tolist()):
        network.arc(node, 1, first)
        network.arc(0, node, second)
    for charge in charges:
        due = network.node()
        same = charge.costs[charge.value] if charge.producer >= 0 else charge.costs[0]
        other = charge.costs[1 - charge.value] - same if charge.producer >= 0 else 0.0
        both = same if other >= 0 else max(charge.costs)
        # A charge on the first value: `due` is on the source's side once any reader is; on the second: on the sink's.
        start, end = (due, 1) if charge.value == 0 else (0, due)
        network.arc(start, end, both)
        if charge.producer >= 0 and other > 0:
            producer = nodes[charge.producer]
            network.arc(*((due, producer) if charge.value == 0 else (producer, due)), other)
        for reader in charge.readers:
            network.arc(*((nodes[reader], due) if charge.value == 0 else (due, nodes[reader])), INFINITE)
    cost, sides = network.minimum_cut()
    return Assigned(np.array([0 if sides[node] else 1 for node in nodes], np.intp), cost)
