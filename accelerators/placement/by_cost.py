"""The cheapest placement within limits on memory, with a certificate of how far from the best it may be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.interface.device_list import find_device
from partita.accelerators.placement.assignment import AssignmentProblem
from partita.accelerators.placement.costs import HOST, TIME, Costs, as_number, finite, tensor_bytes
from partita.accelerators.placement.device_bytes import (
    DeviceBytes,
    Limits,
    ReadWeights,
    ValueSpans,
    cuts_to_fit,
    limits_of,
    projected,
)
from partita.accelerators.placement.fitting import CLOSE, Fitted, Fitting
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.throughput import Balancing, Lane, Solve, loads_of
from partita.graph.formatting import counted, listed
from partita.graph.node import NodeEntry
from partita.graph.summary import size_text
from partita.graph.types import Array

if TYPE_CHECKING:
    from rich.table import Table

LATENCY, THROUGHPUT = "latency", "throughput"
"""The objectives."""

SHOWN = 8
"""The number of tensors and of wishes that a text lists."""

PART = 0.1
"""The effort for one of many problems that bound a load."""

HALVINGS = 8
"""Number of steps of the search for the least bytes per device that suffice."""


@attrs.frozen(slots=True)
class CutTensor:
    """A tensor that is handed over from one device to another."""

    name: str
    """The value's name."""
    source: str
    """The device that makes it, or "host"."""
    destination: str
    """A device that reads it, or "host"."""
    bytes: int | None
    """Its bytes; None if they are not known. Dynamic sizes count as 1."""
    us: float
    """The predicted microseconds."""


@attrs.frozen(slots=True)
class Certificate:
    """The predicted cost of a placement, and a proof of how much less any other one could cost."""

    predicted_us: float
    """The sum of times and hand-overs; for throughput that of the busiest resource: a device, or the host's cores."""
    bound_us: float
    """A proven lower bound of it for every placement that the rules and limits permit."""
    priority_us: float
    """The same for the placement by priority; infinite if it lacks a cost."""
    cut: tuple[CutTensor, ...]
    """The tensors that are handed over, the most expensive ones first."""
    source: str
    """The origin of the costs."""
    objective: str = LATENCY
    """"latency", or "throughput": then the costs are those of the busiest resource."""
    unit: str = TIME
    """The unit of the costs: with energy, all that is called microseconds is microjoules."""

    @property
    def gap(self) -> float:
        """The share of the predicted cost that the best placement could save at most."""
        return (self.predicted_us - self.bound_us) / self.predicted_us if self.predicted_us > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; `priority_us` is None if it is infinite."""
        priority = self.priority_us if math.isfinite(self.priority_us) else None
        return {**attrs.asdict(self), "priority_us": priority, "gap": self.gap}

    def __str__(self) -> str:
        best = "proven to be optimal" if self.gap <= 1e-6 else f"at most {self.gap:.2%} above the optimum"
        priority = f"; by priority {self.priority_us:,.1f} {self.unit}" if math.isfinite(self.priority_us) else ""
        busiest = " on the busiest resource" if self.objective == THROUGHPUT else ""
        lines = [f"predicted {self.predicted_us:,.1f} {self.unit}{busiest}, {best}{priority}; costs {self.source}"]
        for one in self.cut[:SHOWN]:
            size = "" if one.bytes is None else f", {size_text(one.bytes)}"
            lines.append(f"  {one.name!r} from {one.source} to {one.destination}: {one.us:,.1f} {self.unit}{size}")
        if len(self.cut) > SHOWN:
            lines.append(f"  and {counted(len(self.cut) - SHOWN, 'tensor')} more")
        return "\n".join(lines)


@attrs.frozen(slots=True)
class Wish:
    """The gain of the placement if a device ran one more kind of op."""

    op: str
    """The op."""
    device: str
    """The device that does not run some of these ops."""
    nodes: int
    """The number of such ops that it would run then."""
    predicted_us: float
    """The predicted cost of the new placement."""
    gain_us: float
    """The predicted microseconds less than now."""

    def __str__(self) -> str:
        return f"{self.op} on {self.device} ({counted(self.nodes, 'op')}): {self.gain_us:,.1f} µs less"


@attrs.frozen(slots=False, eq=False)
class Setting:
    """Everything that a placement by cost depends on."""

    base: Placement
    """The placement by priority."""
    costs: Costs
    """The costs."""
    able: Mapping[str, tuple[str, ...]]
    """The devices that may run each op, the preferred one first."""
    limits: Mapping[str, float]
    """The most bytes by device."""
    even: bool = False
    """True to spread the bytes evenly."""
    max_nodes: int | None = None
    """Maximum number of ops of a compiled subgraph."""
    caches: Mapping[str, int] = attrs.field(factory=dict)
    """The bytes of a decoder's caches, by the name of the input that takes each."""
    workspaces: Mapping[str, int] = attrs.field(factory=dict)
    """The bytes that a device takes beside weights, values and caches, by its name."""
    objective: str = LATENCY
    """The quantity to be minimised: the time of a request, or that from one result to the next."""
    lanes: Mapping[str, Lane] = attrs.field(factory=dict)
    """The resource that each device keeps busy; one of its own if it is not named."""
    busy: Mapping[str, float] = attrs.field(factory=dict)
    """The microseconds that other models load each resource with meanwhile."""
    least: float = 0.0
    """The greatest load that other models have anyhow."""
    beside: Mapping[str, int] = attrs.field(factory=dict)
    """The bytes that other models take on each device."""

    def placed(self) -> CostedPlacement:
        """The cheapest placement; an error if none that fits is found."""
        if self.objective == THROUGHPUT:
            return placed_together([self])[0]
        search = _Search(self)
        found = search.even() if self.even else search.fitted(search.limits)
        if found.chosen is None:
            raise self._does_not_fit(search, found)
        where = search.where(found.chosen)
        priority = search.problem.cost(search.by_priority)
        certificate = search.certificate(found.chosen, found.cost, found.bound, priority)
        cuts = search.cuts(found.chosen)
        return CostedPlacement(self, where, certificate, self.bytes_of(where, cuts), cuts)

    def bytes_of(self, where: Mapping[str, str], cuts: Sequence[str] = ()) -> dict[str, DeviceBytes]:
        """The projected bytes of each device."""
        base = self.base
        return projected(base.graph, where, base.devices, base.computed, self.max_nodes, self.caches, self.workspaces, cuts)

    def predicted_us(self, where: Mapping[str, str]) -> float:
        """The sum of times and hand-overs of any placement; infinite if it lacks a time."""
        search, labels = _Search(self), list(self.base.devices)
        return search.problem.cost(np.array([labels.index(where[name]) for name in search.names], np.intp))

    def _does_not_fit(self, search: _Search, found: Fitted) -> AcceleratorError:
        nearest = self.bytes_of(search.where(found.nearest), search.cuts(found.nearest))
        needed = {label: held.total + self.beside.get(label, 0) for label, held in nearest.items()}
        over = {label: nearest[label] for label, total in needed.items() if total > self.limits[label]}
        lacks = {label: size_text(math.ceil(needed[label] - self.limits[label])) for label in over}
        missing = [f"{label} lacks {lacks[label]} of {held}" for label, held in over.items()]
        missing = [f"{one}, beside {size_text(self.beside[label])} of other models" if self.beside.get(label) else one
                   for label, one in zip(over, missing)]
        fits = ", ".join(f"{label!r}: {needed[label]}" for label in over)
        return AcceleratorError(
            f"no placement within the limits is found; in the nearest one, {'; '.join(missing)}",
            where=f"graph {self.base.graph.name!r}, option limit",
            remedy=f"It would fit with limit={{{fits}}}; or add a device without a limit",
        )


class _Search:
    """The placement as a problem of numbers."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.graph, self.costs = setting.base.graph, setting.costs
        self.labels = setting.base.devices
        self.names = list(setting.able)
        self.numbers = {name: i for i, name in enumerate(self.names)}
        self.entries: list[NodeEntry] = []
        """The handed-over tensors, in the order of the problem."""
        self.problem = self._problem()
        self.weights = ReadWeights(self.graph, self.names, setting.base.computed, setting.caches)
        self.shares = np.zeros(len(self.names))
        for nbytes, readers in zip(self.weights.sizes, self.weights.readers):
            self.shares[list(readers)] += nbytes / len(readers)
        self.spans = ValueSpans(self.graph, self.numbers, setting.caches)
        limits = np.array([setting.limits[label] for label in self.labels])
        self.beside = np.array([float(setting.beside.get(label, 0)) for label in self.labels])
        self.reserved = np.minimum([setting.workspaces.get(label, 0) for label in self.labels] + self.beside, limits)
        """The bytes of each limit that its workspace and other models take."""
        self.limits = limits - self.reserved
        self._projected: dict[bytes, tuple[Array, tuple[str, ...]]] = {}

    def where(self, chosen: Array) -> dict[str, str]:
        """The device of each op by name, those included that are computed while compiling."""
        mine = {name: self.labels[device] for name, device in zip(self.names, chosen.tolist())}
        return {name: mine.get(name, label) for name, label in self.setting.base.items()}

    def fitted(self, limits: Array, problem: AssignmentProblem | None = None) -> Fitted:
        """The cheapest assignment whose projected bytes fit, values included; for these costs if any are given."""
        loads, costs = self.shares + self.spans.made, problem or self.problem
        effort = 1.0 if problem is None else PART
        return Fitting(costs, self.shares, limits, self._used, self.projected, loads, self.spans.floors, effort).search()

    def projected(self, chosen: Array) -> Array:
        """The bytes on each device beside what is reserved, as partitioned and cut."""
        return self._partitioned(chosen)[0]

    def cuts(self, chosen: Array) -> tuple[str, ...]:
        """The ops before which subgraphs are cut so that the assignment keeps within the limits, as few as are found."""
        used, cuts = self._partitioned(chosen)
        for cut in cuts if (used <= self.limits).all() else ():
            fewer = tuple(one for one in cuts if one != cut)
            cuts = fewer if (self.bytes_with(chosen, fewer)[0] <= self.limits).all() else cuts
        return cuts

    def _partitioned(self, chosen: Array) -> tuple[Array, tuple[str, ...]]:
        """The bytes on each device, and the cuts if it needs some to keep within the limits."""
        key = chosen.tobytes()
        if key not in self._projected:
            used, values = self.bytes_with(chosen, ())
            cuts: tuple[str, ...] = ()
            if (used > self.limits).any():
                room = dict(zip(self.labels, (self.limits - used + values).tolist()))
                setting = self.setting
                cuts = cuts_to_fit(setting.base.graph, self.where(chosen), setting.max_nodes, setting.caches, room)
                used = self.bytes_with(chosen, cuts)[0] if cuts else used
            self._projected[key] = used, cuts
        return self._projected[key]

    def bytes_with(self, chosen: Array, cuts: Sequence[str]) -> tuple[Array, Array]:
        """The bytes on each device beside what is reserved, and those of its values."""
        taken = self.setting.bytes_of(self.where(chosen), cuts)
        used, values = np.array([(float(taken[label].total), float(taken[label].values)) for label in self.labels]).T
        return used + self.beside - self.reserved, values

    @property
    def by_priority(self) -> Array:
        """The assignment by priority."""
        numbers = {label: i for i, label in enumerate(self.labels)}
        return np.array([numbers[self.setting.base[name]] for name in self.names], np.intp)

    def even(self) -> Fitted:
        """The cheapest assignment with nearly the least bytes on the fullest device."""
        total = float(sum(self.weights.sizes))
        low, high = total / len(self.labels), float(self._used(self.problem.times.argmin(axis=1)).max())
        best: Fitted | None = None
        for _ in range(HALVINGS):
            if high - low <= high / 100:
                break
            middle = (low + high) / 2
            found = self.fitted(np.minimum(self.limits, middle))
            if found.chosen is None:
                low = middle
            else:
                best, high = found, middle
        return best or self.fitted(self.limits)

    def _used(self, chosen: Array) -> Array:
        """The estimated bytes on each device: weights, and values if ops run in the graph's order."""
        return self._weights_of(chosen) + self.spans.peaks(chosen, len(self.labels))

    def _weights_of(self, chosen: Array) -> Array:
        """The bytes of weights on each device."""
        held = np.zeros(len(self.labels))
        for nbytes, readers in zip(self.weights.sizes, self.weights.readers):
            held[list({int(chosen[reader]) for reader in readers})] += nbytes
        return held

    def certificate(self, chosen: Array, cost: float, bound: float, priority: float) -> Certificate:
        """The certificate of an assignment."""
        cut = [one for i in np.flatnonzero(self.problem.crossings(chosen)).tolist() for one in self._cut(i, chosen)]
        cut += self._outputs(chosen)
        cut.sort(key=lambda one: -one.us)
        bound = cost if cost - bound <= CLOSE * abs(cost) else bound
        return Certificate(cost, bound, priority, tuple(cut), self.costs.source, self.setting.objective, self.costs.unit)

    def _cut(self, tensor: int, chosen: Array) -> list[CutTensor]:
        entry, producer = self.entries[tensor], int(self.problem.producers[tensor])
        source = -1 if producer < 0 else int(chosen[producer])
        table = self.problem.hand_overs[tensor][max(source, 0)]
        reached = sorted({int(chosen[reader]) for reader in self.problem.readers[tensor]} - {source})
        title = HOST if producer < 0 else self.labels[source]
        size = tensor_bytes(entry.type)
        return [CutTensor(entry.name, title, self.labels[one], size, float(table[one])) for one in reached if table[one]]

    def _outputs(self, chosen: Array) -> list[CutTensor]:
        """The outputs that are handed over to the host at a cost."""
        cut = []
        for entry in dict.fromkeys(self.graph.outputs):
            number = self.numbers.get(entry.node.name)
            over = None if number is None else self.costs.hand_over(self.labels[int(chosen[number])], HOST)
            if over is not None and number is not None:
                size = tensor_bytes(entry.type)
                cut.append(CutTensor(entry.name, self.labels[int(chosen[number])], HOST, size, over.us(size or 0)))
        return cut

    def _problem(self) -> AssignmentProblem:
        times = np.full((len(self.names), len(self.labels)), math.inf)
        columns = {label: i for i, label in enumerate(self.labels)}
        for row, (name, able) in enumerate(self.setting.able.items()):
            for label in able:
                times[row, columns[label]] = self._time(name, label, able)
            if not np.isfinite(times[row]).any():
                raise AcceleratorError(
                    f"the costs have no time of {name!r} ({self.graph[name].op}) on {listed(able, SHOWN)}",
                    where="place, option costs", remedy="Give its microseconds there",
                )
        reading: dict[NodeEntry, list[int]] = {}
        for row, name in enumerate(self.names):
            for entry in dict.fromkeys(self.graph[name].reads):
                if entry.node.name in self.numbers or entry.node in self.graph.inputs:
                    reading.setdefault(entry, []).append(row)
        producers, readers, tables = [], [], []
        for entry, rows in reading.items():
            table = self._table(entry)
            if table.any():
                self.entries.append(entry)
                producers.append(self.numbers.get(entry.node.name, -1))
                readers.append(tuple(rows))
                tables.append(table)
        for entry in dict.fromkeys(self.graph.outputs):
            row_or_none = self.numbers.get(entry.node.name)
            if row_or_none is not None:
                for column, label in enumerate(self.labels):
                    over = self.costs.hand_over(label, HOST)
                    times[row_or_none, column] += 0.0 if over is None else over.us(tensor_bytes(entry.type) or 0)
        count = len(self.labels)
        return AssignmentProblem(times, np.array(producers, np.intp), readers, np.array(tables).reshape(-1, count, count))

    def _time(self, name: str, label: str, able: Sequence[str]) -> float:
        """The time of an op; zero if it has a single device and no time there, since there is no choice."""
        us = self.costs.times.get(label, {}).get(name)
        return 0.0 if us is None and len(able) == 1 else finite(us)

    def _table(self, entry: NodeEntry) -> Array:
        """The cost of handing over a tensor, by source and destination."""
        size = tensor_bytes(entry.type) or 0
        sources = self.labels if entry.node.name in self.numbers else (HOST,) * len(self.labels)
        over = [[self.costs.hand_over(source, destination) for destination in self.labels] for source in sources]
        return np.array([[0.0 if one is None else one.us(size) for one in row] for row in over])


def placed_together(settings: Sequence[Setting]) -> list[CostedPlacement]:
    """The placements of models that share their devices, with the least load of the busiest resource; an error if nothing that
    fits is found. Each has the certificate of all, and counts the others as given in what-ifs."""
    searches, labels = [_Search(setting) for setting in settings], settings[0].base.devices
    room = np.array([settings[0].limits[label] for label in labels]) - searches[0].beside
    lanes = [settings[0].lanes.get(label) or Lane(label) for label in labels]
    names, factors = loads_of(lanes, len(settings))
    names, factors = [*names, None], np.append(factors, np.zeros_like(factors[:1]), axis=0)
    busy = np.array([0.0 if name is None else settings[0].busy.get(name, 0.0) for name in names])
    busy[-1] = settings[0].least
    latest: dict[int, tuple[_Search, Fitted]] = {}
    taken_by: dict[tuple[int, bytes, tuple[str, ...]], tuple[Array, Array]] = {}
    known: dict[bytes, tuple[list[tuple[str, ...]], Array]] = {}

    def bytes_of(number: int, chosen: Array, cuts: Sequence[str]) -> tuple[Array, Array]:
        """The bytes of a model on each device, and those of its values."""
        search, key = searches[number], (number, chosen.tobytes(), tuple(cuts))
        if key not in taken_by:
            used, values = search.bytes_with(chosen, cuts)
            taken_by[key] = used + search.reserved - search.beside, values
        return taken_by[key]

    def together(assignments: Sequence[Array]) -> tuple[list[tuple[str, ...]], Array]:
        """The cuts of each model, and the bytes of all: within the limits, if such cuts are found."""
        key = b"".join(chosen.tobytes() for chosen in assignments)
        if key not in known:
            cuts: list[tuple[str, ...]] = [()] * len(assignments)
            held = np.array([bytes_of(i, chosen, ()) for i, chosen in enumerate(assignments)]).reshape(-1, 2, len(labels))
            if ((held[:, 0] - held[:, 1]).sum(axis=0) <= room).all():  # else weights alone exceed them
                for i, chosen in enumerate(assignments):
                    if (held[:, 0].sum(axis=0) > room).any():
                        rest, setting = room - held[:, 0].sum(axis=0) + held[i, 1], settings[i]
                        graph, where = setting.base.graph, searches[i].where(chosen)
                        cuts[i] = cuts_to_fit(graph, where, setting.max_nodes, setting.caches, dict(zip(labels, rest.tolist())))
                        held[i] = bytes_of(i, chosen, cuts[i])
            known[key] = cuts, held[:, 0].sum(axis=0)
        return known[key]

    def fit(assignments: Sequence[Array]) -> bool:
        return not np.isfinite(room).any() or bool((together(assignments)[1] <= room).all())

    def fewest(assignments: Sequence[Array]) -> list[tuple[str, ...]]:
        """The cuts of each model without those that are not needed."""
        cuts, total = together(assignments)
        cuts = list(cuts)
        for i, chosen in enumerate(assignments):
            for cut in cuts[i]:
                fewer = tuple(one for one in cuts[i] if one != cut)
                more = total - bytes_of(i, chosen, cuts[i])[0] + bytes_of(i, chosen, fewer)[0]
                if (more <= room).all():
                    cuts[i], total = fewer, more
        return cuts

    def beside(number: int, assignments: Sequence[Array]) -> _Search:
        """The search of a model beside these assignments of earlier ones."""
        others = dict(zip(labels, (together(assignments)[1] + searches[number].beside).astype(int).tolist()))
        return _Search(attrs.evolve(settings[number], beside=others))

    def solver(number: int) -> Solve:
        def solve(problem: AssignmentProblem, earlier: Sequence[Array]) -> Fitted:
            search = searches[number]
            found = search.fitted(search.limits, problem)
            if found.chosen is not None and not fit([*earlier, found.chosen]):
                search = beside(number, earlier)
                found = attrs.evolve(search.fitted(search.limits, problem), bound=found.bound)
            latest[number] = search, found
            return found

        return solve

    solvers = [solver(number) for number in range(len(settings))]
    balanced = Balancing(
        [search.problem for search in searches], solvers, fit, busy, factors, [search.shares for search in searches],
        room - np.sum([search.reserved - search.beside for search in searches], axis=0),
    ).search()
    if balanced is None:
        *earlier, (search, found) = latest.values()
        alone = next((pair for pair in latest.values() if pair[1].chosen is None), None)
        if alone is None:  # each fits, but not beside the others
            search = beside(len(earlier), [one.nearest for _, one in earlier])
        search, found = alone or (search, found)
        raise search.setting._does_not_fit(search, found)
    by_priority = [factors[:, i] @ search.problem.loads(search.by_priority) for i, search in enumerate(searches)]
    priority = float((np.sum(by_priority, axis=0) + busy).max())
    where = [search.where(chosen) for search, chosen in zip(searches, balanced.chosen)]
    cuts = fewest(balanced.chosen)
    taken = [setting.bytes_of(one, cut) for setting, one, cut in zip(settings, where, cuts)]
    loads = [
        factors[:, i] @ search.problem.loads(chosen) for i, (search, chosen) in enumerate(zip(searches, balanced.chosen))
    ]
    placements = []
    for i, (search, chosen) in enumerate(zip(searches, balanced.chosen)):
        others = [j for j in range(len(searches)) if j != i]
        rest = np.sum([busy, *(loads[j] for j in others)], axis=0).tolist()
        own = attrs.evolve(
            settings[i], objective=THROUGHPUT, busy={name: load for name, load in zip(names, rest) if name is not None},
            least=max(load for name, load in zip(names, rest) if name is None),
            beside={label: settings[i].beside.get(label, 0) + sum(taken[j][label].total for j in others) for label in labels},
        )
        certificate = attrs.evolve(
            search.certificate(chosen, balanced.cost, balanced.bound, priority), objective=THROUGHPUT
        )
        placements.append(CostedPlacement(own, where[i], certificate, taken[i], cuts[i]))
    return placements


class CostedPlacement(Placement):
    """A placement by cost, with its certificate. A device assigned by hand changes neither certificate nor bytes."""

    def __init__(
        self, setting: Setting, where: Mapping[str, str], certificate: Certificate, taken: Mapping[str, DeviceBytes],
        cuts: tuple[str, ...] = (),
    ) -> None:
        base = setting.base
        moved = {name: "the total cost is lower elsewhere" for name, label in where.items() if label != base[name]}
        super().__init__(
            base._table, base._devices, base._rules, dict(where), {**base._by_hand, **moved}, base.rounds, base.notes,
            base._homeless, base.computed,
        )
        self._setting = setting
        self.certificate = certificate
        """The predicted cost, its proven lower bound, and the tensors handed over."""
        self.bytes = dict(taken)
        """The projected bytes of each device."""
        self.measured_bytes: dict[str, int] = {}
        """The bytes that each device took in a process of its own, if they were measured."""
        self.max_nodes, self.cuts = setting.max_nodes, cuts

    @property
    def setting(self) -> Setting:
        """Everything that it depends on."""
        return self._setting

    @property
    def limits(self) -> dict[str, float]:
        """The most bytes by device; infinite without a limit."""
        return dict(self._setting.limits)

    @property
    def costs(self) -> Costs:
        """The costs that were minimised."""
        return self._setting.costs

    def to_problem(self) -> tuple[list[str], AssignmentProblem, list[str]]:
        """The ops that are placed, the times and hand-overs that were minimised, and the names of the tensors."""
        search = _Search(self._setting)
        return search.names, search.problem, [entry.name for entry in search.entries]

    def what_if(
        self,
        *,
        support: Mapping[str, str | Sequence[str]] | None = None,
        speed: Mapping[str, float] | None = None,
        without: str | Sequence[str] = (),
        limit: Limits | None = None,
    ) -> CostedPlacement:
        """The placement if something were different: devices ran further ops (`support={"Softmax": "npu"}`; an op without a time
        there is as fast as on its fastest device), ran faster by some factor (`speed`), were missing (`without`), or had other
        limits. Only limits change what can be compiled."""
        setting = self._setting
        able = {name: list(labels) for name, labels in setting.able.items()}
        times = {label: dict(setting.costs.times.get(label, {})) for label in self.devices}
        for op, named in _table_of(support, "support", '{"Softmax": "npu"}').items():
            for label in self._named(named, f"support[{op!r}]"):
                for name in self._gained(op, label):
                    able[name].append(label)
                    fastest = min(finite(times[other].get(name)) for other in able[name])
                    if math.isfinite(fastest):
                        times[label].setdefault(name, fastest)
        for label, factor in _table_of(speed, "speed", '{"npu": 2.0}').items():
            find_device(label, self._devices, "what_if, option speed")
            if not as_number(factor) > 0:
                remedy = "Give a factor above 0; 2.0 is twice as fast"
                raise AcceleratorError(f"the speed of {label!r} is {factor!r:.80}", where="what_if, option speed", remedy=remedy)
            times[label] = {name: us / as_number(factor) for name, us in times[label].items()}
        for label in self._named(without, "without"):
            able = {name: [one for one in labels if one != label] for name, labels in able.items()}
        homeless = [name for name, labels in able.items() if not labels]
        if homeless:
            cause = f"no other device runs {listed(homeless, SHOWN)}"
            raise NotSupported(cause, where=f"what_if, option without={without!r}", remedy="Keep a device that does")
        limits = {**setting.limits, **limits_of(limit, self._devices)}
        order = {label: i for i, label in enumerate(self.devices)}
        changed = attrs.evolve(
            setting, able={name: tuple(sorted(labels, key=order.__getitem__)) for name, labels in able.items()}, limits=limits,
            costs=attrs.evolve(setting.costs, times=times),
        )
        return changed.placed()

    def _named(self, given: object, option: str) -> list[str]:
        """The labels of one or several devices."""
        labels = [given] if isinstance(given, str) else given
        where = f"what_if, option {option}"
        if not isinstance(labels, (list, tuple, set, frozenset)):
            raise AcceleratorError(f"{labels!r:.80} names no devices", where=where, remedy="Give a name, or a list of names")
        return [find_device(label, self._devices, where).label for label in labels]

    def _gained(self, op: str, label: str) -> list[str]:
        """The nodes of an op that the device does not run, and may."""
        return [
            name for name, labels in self._setting.able.items()
            if self.graph[name].op == op and label not in labels and name not in self._rules.pinned
            and self._rules.against(name, label) is None
        ]

    def wishes(self) -> list[Wish]:
        """The ops that some device does not run and that would help most if it did, the greatest gain first: each is that of
        `what_if(support={op: device})`."""
        kinds = dict.fromkeys(
            (str(self.graph[name].op), label)
            for name, labels in self._setting.able.items() for label in self.devices
            if label not in labels and name in self._table.refusals(label)
        )
        wishes = []
        for op, label in kinds:
            nodes = len(self._gained(op, label))
            if nodes:
                predicted = self.what_if(support={op: label}).certificate.predicted_us
                wishes.append(Wish(op, label, nodes, predicted, self.certificate.predicted_us - predicted))
        return sorted((wish for wish in wishes if wish.gain_us > 0), key=lambda wish: (-wish.gain_us, wish.op, wish.device))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        taken = {label: {**attrs.asdict(one), "measured": self.measured_bytes.get(label)} for label, one in self.bytes.items()}
        cuts = {"cuts": list(self.cuts)} if self.cuts else {}
        return {**super().to_dict(), "certificate": self.certificate.to_dict(), "bytes": taken, **cuts}

    def to_table(self, most: int = 12) -> Table:
        """The table of a placement, with the projected bytes and the certificate as its caption."""
        table = super().to_table(most)
        table.caption = "\n".join([*self.bytes_lines(), str(self.certificate)])
        table.caption_justify = "left"
        return table

    def __str__(self) -> str:
        lines = [*self.bytes_lines(), *str(self.certificate).split("\n")]
        return "\n".join([super().__str__(), *(f"  {line}" for line in lines)])

    def bytes_lines(self) -> list[str]:
        """The projected bytes of each device, a line each."""
        lines = []
        for label, held in self.bytes.items():
            most, real = self._setting.limits[label], self.measured_bytes.get(label)
            limit = f" of {size_text(int(most))}" if math.isfinite(most) else ""
            lines.append(f"{label}: {held}{limit}" + ("" if real is None else f"; measured {size_text(real)}"))
        if self.cuts:
            lines.append(f"{counted(len(self.cuts), 'cut')} inside subgraphs, so that values are freed earlier")
        return lines


def _table_of(given: object, option: str, example: str) -> Mapping[str, Any]:
    """The table that an option gives."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise AcceleratorError(f"{given!r:.80} is not a table", where=f"what_if, option {option}", remedy=f"Write {example}")
    return given
