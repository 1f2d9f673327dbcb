"""`measure`: the times of ops and of hand-overs on this machine, as costs for `place`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from partita.accelerators.building.report import CompileReport
from partita.accelerators.errors import AcceleratorError, CompileError
from partita.accelerators.interface.device_list import Absent, Device
from partita.accelerators.placement.by_cost import Setting
from partita.accelerators.placement.costs import ENERGY, MOST, Costs, HandOver
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import query
from partita.accelerators.precision.op_costs import ROUNDS, times_of
from partita.accelerators.precision.options import Given, Target, batches_of
from partita.accelerators.process.cores import processor, usable_cores
from partita.accelerators.process.descriptors import show_progress
from partita.accelerators.process.energy import Joules, gpu_counter, host_counter, watts
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.store.folder import FOLDERS, chosen_folder, keep, read_kept
from partita.accelerators.store.key import make_key
from partita.graph.build import op, variable
from partita.graph.errors import PartitaError, check_flag
from partita.graph.flops import count_flops
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import with_affinities, with_changes
from partita.graph.types import Array

ELEMENTS = (1 << 10, 1 << 19)
"""The numbers of float32 elements of two hand-overs, between which their cost is linear."""

FIRST = "Relu"
"""The op before a measured hand-over, or after it."""

SECOND = "Neg"
"""The other one."""

CALLS = 40
"""Maximum number of measured calls of each model."""

FEWEST = 3
"""Minimum number of measured calls of each model."""

SECONDS = 1.0
"""Seconds after which the calls of a model, or of several in turns, suffice."""

KINDS = 40
"""Maximum number of different ops that are measured alone, if their device reports no times: those with the most FLOPs."""

FITS = 6
"""Maximum number of whole placements by which hand-overs are fitted."""

NEAR = 0.03
"""Relative error of a prediction with which hand-overs count as fitted."""

VERSION = 2
"""The version of what is kept."""

BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10**6))"
"""The neighbour's program, which ends with its parent."""


@at_a_device()
def measure(
    graph: Graph,
    devices: str | Sequence[str] | None = None,
    *,
    inputs: Any = None,
    config: Mapping[str, Any] | None = None,
    busy: bool = False,
    again: bool = False,
    progress: bool = True,
    energy: bool = False,
) -> Costs:
    """The costs of the graph's ops on each device, and of hand-overs between devices, measured on this machine.

    Each device runs all that it can as whole subgraphs: a subgraph's time is divided among its ops as the device's profile says,
    or by times of the ops alone. Hand-overs are the difference between a model on two devices and on either. `inputs` are the
    arrays of one call (default: random ones). With `busy`, another program keeps all cores busy meanwhile. `progress` is printed
    to stderr. The result is kept in the cache for this graph, machine and version of the devices, unless a device failed; `again`
    measures anew. With `energy`, the costs are microjoules: times, multiplied by the power while a device runs all that it can.
    It is read from RAPL for devices in the host's memory, and from NVML for others; NotSupported says why there is no counter."""
    check_flag(energy, "option energy", AcceleratorError)
    check_flag(busy, "option busy", AcceleratorError)
    check_flag(again, "option again", AcceleratorError)
    check_flag(progress, "option progress", AcceleratorError)
    base = query(graph, devices, config=config)
    target = Target(devices, config)
    batch = None if inputs is None else batches_of(base.graph, inputs, "measure")[0]
    labels = [device.label for device in usable(target)]
    counters = {device.label: _counter(device) for device in usable(target)} if energy else {}
    costs = measured(base, target, batch, labels, bool(busy), bool(again), progress=bool(progress), counters=counters)
    assert costs is not None
    return costs


def measured(
    base: Placement, target: Target, batch: Given | None, labels: Sequence[str], busy: bool, again: bool,
    end: float = math.inf, progress: bool = True, counters: Mapping[str, Joules] = MappingProxyType({}),
) -> Costs | None:
    """The costs on these devices, kept or measured. After `end` nothing new is begun: pairs that were not measured have the
    default, and there are no costs if a device was not."""
    path = kept_path(FOLDERS[1], base, target, batch, labels, busy, bool(counters))
    known = None if again or path is None else _read(path)
    if known is not None:
        return known
    measuring = _OnThisMachine(base, target, batch, labels, end, progress, counters)
    with busy_neighbour() if busy else contextlib.nullcontext():
        costs = measuring.costs(busy)
    if path is not None and not measuring.is_late and not measuring.has_failed:
        keep(path, costs.to_json().encode())
    return costs if len(costs.times) == len(labels) else None


def _counter(device: Device) -> Joules:
    """The energy counter of a device."""
    id_ = device.device_id
    return host_counter() if device.accelerator.free_bytes(id_) is None else gpu_counter(id_)


def kept_path(subfolder: str, base: Placement, target: Target, batch: Given | None, *more: Any) -> Path | None:
    """The file for this graph, these devices and this machine; None without a cache."""
    folder = chosen_folder(target.by_device[target.labels[0]].get("CACHE_DIR"))
    if folder is None:
        return None
    keys = {d.label: make_key(d.accelerator, base.graph, target.by_device[d.label]).digest for d in usable(target)}
    sizes = None if batch is None else {name: array.shape for name, array in batch.items()}
    depends = [VERSION, keys, list(base), sizes, processor(), usable_cores(), *more]
    return folder / subfolder / hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> Costs | None:
    data = read_kept(path)
    try:
        return None if data is None else Costs.from_json(data)
    except AcceleratorError:
        return None


def usable(target: Target) -> list[Device]:
    """The devices that can be used here."""
    return [device for device in target.devices if not isinstance(device.accelerator, Absent)]


@contextlib.contextmanager
def busy_neighbour() -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """A context in which other processes keep each core busy."""
    command = [sys.executable, "-I", "-S", "-c", BUSY]
    running = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(usable_cores())]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def in_turns(calls: Sequence[Callable[[], Any]], seconds: float, times_more: int = 1) -> list[list[float]]:
    """The microseconds of calls that take turns, after one of each that is not measured, until they have taken `seconds` or there
    are CALLS * `times_more` of each."""
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    end = perf_counter() + seconds
    for number in range(CALLS * times_more):
        if number >= FEWEST and perf_counter() > end:
            break
        for call, taken in zip(calls, times):
            start = perf_counter()
            call()
            taken.append(1e6 * (perf_counter() - start))
    return times


def failed_device(model: CompiledModel) -> str | None:
    """The first device from which ops moved since it could not compile them."""
    report = model.report
    return report.moves[0].device if isinstance(report, CompileReport) and report.moves else None


@attrs.define(slots=True)
class _OnThisMachine:
    """The measurement of one graph on its devices."""

    base: Placement
    """The placement by priority, whose graph is measured."""
    target: Target
    """The devices."""
    batch: Given | None
    """The inputs of a call; None for random ones."""
    labels: Sequence[str]
    """The devices that are measured."""
    end: float
    """The time after which nothing new is begun."""
    progress: bool
    """True to print what is being measured."""
    counters: Mapping[str, Joules]
    """The energy counter of each device; empty if times are the costs."""
    power: dict[str, float] = attrs.field(factory=dict)
    """The watts of each device."""
    has_failed: bool = False
    """True if a device ran none of the ops that it takes."""

    @property
    def is_late(self) -> bool:
        """True if the time is over."""
        return perf_counter() > self.end

    def costs(self, busy: bool) -> Costs:
        """All costs."""
        labels = self.labels
        pairs = [(a, b) for i, a in enumerate(labels) for b in labels[i + 1 :]]
        times: dict[str, dict[str, float]] = {}
        for i, label in enumerate(labels):
            if self.is_late:
                break
            self._say(f"{label} ({i + 1} of {counted(len(labels), 'device')})")
            times[label] = self._times(label)
            self.has_failed |= not times[label] and bool(self._names(label))
        over: dict[tuple[str, str], HandOver] = {}
        for i, (a, b) in enumerate(pairs):
            if self.is_late:
                break
            self._say(f"hand-overs between {a} and {b} ({i + 1} of {counted(len(pairs), 'pair')})")
            over |= self._hand_overs(a, b)
        over = self._fitted(times, over)
        where = processor() or os.uname().machine
        source = f"measured on {where}{', beside a busy neighbour' if busy else ''}"
        return self._energy(times, over, source) if self.counters else Costs(times, over, source)

    def _energy(
        self, times: Mapping[str, Mapping[str, float]], over: Mapping[tuple[str, str], HandOver], source: str
    ) -> Costs:
        """The costs in microjoules."""
        power = {label: self.power.get(label, 0.0) for label in times}
        used = {label: {name: us * power[label] for name, us in own.items()} for label, own in times.items()}
        both = {pair: (power[pair[0]] + power[pair[1]]) / 2 for pair in over}
        handed = {pair: HandOver(one.launch_us * both[pair], one.bytes_per_us / both[pair]) for pair, one in over.items()}
        return Costs(used, handed, source, ENERGY)

    def _say(self, text: str) -> None:
        if self.progress:
            show_progress(f"measuring {self.base.graph.name!r}: {text}")

    def _names(self, label: str) -> list[str]:
        """The ops that the device takes."""
        return [name for name in self.base if name not in self.base.computed and label in self.base.able(name)]

    # -- ops ---------------------------------------------------------------------------------------------

    def _times(self, label: str) -> dict[str, float]:
        """The microseconds of each op on the device. Empty, with a line that says why, if the device cannot run them."""
        names = self._names(label)
        graph = with_changes(self.base.graph, lambda node: {"affinity": None} if node.affinity is not None else {})
        try:
            model = self.target.compiled(graph, label)
            batch = dict(self.batch or zip([node.name for node in graph.inputs], model.example_inputs()))
            whole, _ = self._of_units(model, batch)
            slow = sum(whole.values()) > 1e6 * SECONDS / ROUNDS
            shares = times_of(model, graph, batch, names, (), label, 1 if slow else ROUNDS)
            if self.counters:
                self.power[label] = watts(self.counters[label], partial(model, batch), SECONDS)
        except PartitaError as error:
            self._say(f"{label} is left out: {error.cause}")
            return {}
        times = {}
        silent = {row.subgraph for row in model.profile(batch).rows if row.layer_type == "Subgraph"}
        for unit in model.units:
            ops = [name for name in unit.ops if name in shares and unit.device.label == label]
            if unit.name in silent:
                shares |= self._alone([graph[name] for name in ops], label)
            total = sum(shares[name] for name in ops)
            for name in ops:
                times[name] = whole[unit.name] * (shares[name] / total if total else 1 / len(ops))
        return times

    def _of_units(self, model: CompiledModel, batch: Mapping[str, Any]) -> tuple[dict[str, float], float]:
        """The microseconds of each subgraph, and of the model, in calls that are not profiled."""
        model(batch)
        with model.timeline() as timeline:
            (calls,) = in_turns([partial(model, batch)], SECONDS)
        names = {unit.name for unit in model.units}
        laps: dict[str, list[float]] = {}
        for lap in timeline.laps:
            if lap.name in names and not lap.is_copy:
                laps.setdefault(lap.name, []).append(lap.us)
        return {name: statistics.median(laps[name]) for name in laps}, statistics.median(calls)

    def _alone(self, nodes: Sequence[Node], label: str) -> dict[str, float]:
        """The microseconds of ops that run alone; equal ones are measured once. Ops that cannot be measured have none."""
        work = count_flops(self.base.graph).by_node
        kinds: dict[str, list[Node]] = {}
        for node in sorted(nodes, key=lambda node: -work.get(node.name, 0)):
            types = [str(entry.type) for entry in (*node.reads, *node.outputs)]
            kinds.setdefault(str((node.domain, node.op, types, sorted(map(str, node.attrs.items())))), []).append(node)
        found: dict[str, float] = {}
        for same in list(kinds.values())[:KINDS]:
            try:
                model = self._compiled(op_alone(same[0], self.base.graph), label)
                (taken,) = in_turns([partial(model, *model.example_inputs())], SECONDS / 10)
            except PartitaError:
                continue
            found |= {node.name: statistics.median(taken) for node in same}
        return found

    def _compiled(self, graph: Graph, first: str | None = None) -> CompiledModel:
        """The compiled graph; an error if ops moved to another device."""
        model = self.target.compiled(graph, first)
        failed = failed_device(model)
        if failed is not None:
            raise CompileError(f"{failed} cannot compile it", where=f"graph {graph.name!r}")
        return model

    # -- hand-overs --------------------------------------------------------------------------------------

    def _hand_overs(self, a: str, b: str) -> dict[tuple[str, str], HandOver]:
        """The hand-overs between two devices; none, with a line that says why, if it cannot be measured."""
        try:
            points = [self._crossings(a, b, count) for count in ELEMENTS]
        except PartitaError as error:
            self._say(f"hand-overs between {a} and {b} have the default: {error.cause}")
            return {}
        few, many = (4.0 * count for count in ELEMENTS)
        over = {}
        for i, pair in enumerate([(a, b), (b, a)]):
            slope = max((points[1][i] - points[0][i]) / (many - few), 1 / MOST)
            over[pair] = HandOver(max(0.0, points[0][i] - slope * few), min(1 / slope, MOST))
        return over

    def _crossings(self, a: str, b: str, count: int) -> tuple[float, float]:
        """The microseconds of handing over `count` elements from `a` to `b`, and back. For each way there are two models, with
        either op first, so that the ops' own times cancel out."""
        ops = FIRST, SECOND
        ways = [(ops, (a, a)), (ops, (b, b)), *((order, pair) for pair in ((a, b), (b, a)) for order in (ops, ops[::-1]))]
        models = [self._compiled(_chain(order, pair, count)) for order, pair in ways]
        x = np.linspace(-1, 1, count, dtype=np.float32)
        taken: Array = np.array(in_turns([partial(model, x) for model in models], SECONDS))
        own = taken[0] + taken[1]
        return tuple(float(np.median(taken[i] + taken[i + 1] - own)) / 2 for i in (2, 4))  # type: ignore[return-value]

    def _fitted(
        self, times: Mapping[str, Mapping[str, float]], over: Mapping[tuple[str, str], HandOver]
    ) -> dict[tuple[str, str], HandOver]:
        """The hand-overs with launches that predict the time of the cheapest placement. Only whole placements show what borders
        cost: lost fusion, and caches and cores that another engine uses."""
        base, over = self.base, dict(over)
        able = {name: base.able(name) for name in base if name not in base.computed}
        for _ in range(FITS):
            try:
                costs = Costs(times, over)
                placement = Setting(base, costs, able, dict.fromkeys(base.devices, math.inf)).placed()
                cut = [(one.source, one.destination) for one in placement.certificate.cut]
                if not cut or self.is_late:
                    break
                self._say(f"a placement with {counted(len(cut), 'hand-over')}")
                model = self._compiled(placement.apply(placement.graph))
                batch = dict(self.batch or zip([name for name, _ in model.properties.inputs], model.example_inputs()))
                laps, whole = self._of_units(model, batch)
            except PartitaError as error:
                self._say(f"hand-overs are not fitted: {error.cause}")
                break
            lacking = whole - placement.certificate.predicted_us
            if abs(lacking) <= NEAR * whole:
                break
            borders = Counter(label for pair in cut for label in pair)
            lost = dict.fromkeys(borders, 0.0)
            for unit in model.units:
                if unit.device.label in lost:
                    own = sum(times[unit.device.label].get(name, 0.0) for name in unit.ops)
                    lost[unit.device.label] += laps.get(unit.name, 0.0) - own
            rest = (lacking - sum(lost.values())) / len(cut)
            for a, b in dict.fromkeys(cut):
                now = costs.hand_over(a, b) or HandOver()
                more = lost[a] / borders[a] + lost[b] / borders[b] + rest
                over[a, b] = HandOver(min(max(0.0, now.launch_us + more), MOST), now.bytes_per_us)
        return over


def _chain(ops: Sequence[str], labels: Sequence[str], count: int) -> Graph:
    """Two ops in a row, placed on two devices."""
    value: Any = variable("x", "float32", (count,))
    for number, name in enumerate(ops):
        value = op(name, value, name=f"op{number}")
    return with_affinities(Graph([value], name="hand_over", output_names=["y"]), {"op0": labels[0], "op1": labels[1]})


def op_alone(node: Node, graph: Graph) -> Graph:
    """An op of the graph with its own inputs."""
    given: dict[Any, Node] = {}
    for i, entry in enumerate(dict.fromkeys(node.reads)):
        if entry.node.value is None:
            given[entry] = variable(f"given{i}", type=entry.type)
    inputs = tuple(given[entry][0] if entry in given else entry for entry in node.inputs)
    own = node.evolve(inputs=inputs, captures=tuple(given[e][0] if e in given else e for e in node.captures), after=())
    return Graph([own[i] for i, _ in enumerate(own.outputs)], list(given.values()), "alone", graph.opsets)
