"""The bytes that a placed graph takes on each device: weights, and planned values."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.device_list import Device, find_device
from partita.accelerators.interface.device_property import growth_on
from partita.accelerators.placement.costs import as_number
from partita.accelerators.process.compile_slots import free_memory
from partita.graph.graph import Graph
from partita.graph.nested import bodies_of, graphs_in
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import with_affinities
from partita.graph.summary import size_text
from partita.graph.types import Array
from partita.partition import AffinityProperty
from partita.passes import apply_pass
from partita.passes.plan_memory import MemoryPlan, aligned_bytes
from partita.passes.plan_memory import plan as plan_values

ALIGNMENT = 64
"""The alignment of values, in bytes."""

CUTTINGS = 64
"""Maximum number of rounds in which subgraphs are cut until the values of a placement fit."""

MARGIN = 0.1
"""The share of a device's free memory that limit="free" leaves to others."""

Limits = Mapping[str, "int | str | None"] | str
"""The most bytes by device, as numbers or texts such as "22GiB"; None: any. Or "free": what is free now, less a margin."""


@attrs.frozen(slots=True)
class DeviceBytes:
    """The projected bytes of one device."""

    weights: int
    """The constants that its ops read, each counted once."""
    values: int
    """The most bytes of values that are alive at the same time, as planned."""
    caches: int = 0
    """The caches of a decoder that its ops read."""
    workspace: int = 0
    """Further bytes, which were measured."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.values + self.caches + self.workspace

    def __str__(self) -> str:
        parts = [f"{size_text(self.weights)} of weights", f"{size_text(self.values)} of values"]
        parts += [f"{size_text(self.caches)} of caches"] if self.caches else []
        parts += [f"{size_text(self.workspace)} of workspace"] if self.workspace else []
        return f"{size_text(self.total)} ({', '.join(parts)})"


class ReadWeights:
    """The constants and caches of a graph, and the ops that read them; outputs of ops that are computed while compiling are
    constants."""

    def __init__(
        self, graph: Graph, names: Sequence[str], computed: Collection[str] = (), caches: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        readers: dict[int, set[int]] = {}
        sizes: dict[int, int] = {}
        for number, name in enumerate(names):
            for key, nbytes in self._read_by(graph[name], computed, caches):
                readers.setdefault(key, set()).add(number)
                sizes[key] = nbytes
        cached = {id(node) for node in graph.inputs if node.name in caches}
        self.sizes = [sizes[key] for key in readers]
        """The bytes of each constant."""
        self.readers = [tuple(sorted(nodes)) for nodes in readers.values()]
        """The ops that read each, as numbers in `names`."""
        self.are_caches = [key in cached for key in readers]
        """True for each that is a cache."""

    @staticmethod
    def _read_by(node: Node, computed: Collection[str], caches: Mapping[str, int]) -> list[tuple[int, int]]:
        """The identity and the bytes of each constant that the op reads, those in its bodies included."""
        found = []
        for entry in node.reads:
            if entry.node.value is not None:
                found.append((id(entry.node.value), entry.node.value.nbytes))
            elif entry.node.name in computed:
                found.append((id(entry.node), aligned_bytes(entry.type, 1) or 0))
            elif entry.node.is_variable and entry.node.name in caches:
                found.append((id(entry.node), caches[entry.node.name]))
        for body in bodies_of(node):
            for inner in graphs_in(body):
                found += [(id(one.value), one.value.nbytes) for one in inner.nodes if one.value is not None]
        return found


class ValueSpans:
    """The values of a graph, and the ops between which each is alive, if ops run in the graph's order."""

    def __init__(self, graph: Graph, numbers: Mapping[str, int], caches: Collection[str] = ()) -> None:
        readers: dict[NodeEntry, list[int]] = {}
        for name, number in numbers.items():
            for entry in graph[name].outputs:
                readers[entry] = []
            for entry in dict.fromkeys(graph[name].reads):
                if entry.node.name in numbers or (entry.node.is_variable and entry.node.name not in caches):
                    readers.setdefault(entry, []).append(number)
        for entry in graph.outputs:
            if entry in readers:
                readers[entry].append(len(numbers))
        self.count = len(numbers)
        self._rows = [
            (numbers.get(entry.node.name, -1), size, reading)
            for entry, reading in readers.items() if (size := aligned_bytes(entry.type, ALIGNMENT)) and reading
        ]
        self.made = np.zeros(self.count)
        """The bytes that each op makes or copies at most."""
        self.floors = np.zeros(self.count)
        """The bytes of the values that each op reads and makes, which are alive while it runs."""
        for producer, size, reading in self._rows:
            self.made[producer if producer >= 0 else reading[0]] += size
            self.floors[[node for node in {producer, *reading} if 0 <= node < self.count]] += size

    def peaks(self, chosen: Array, devices: int) -> Array:
        """An estimate of the most bytes of values alive on each device, copies from others included. Linear."""
        changes = np.zeros((devices, self.count + 2))
        where = [*chosen.tolist(), -1]
        for producer, size, reading in self._rows:
            own = where[producer]
            if own >= 0:
                changes[own, producer] += size
                changes[own, max(reading) + 1] -= size
            ends: dict[int, tuple[int, int]] = {}
            for reader in reading:
                at = where[reader]
                if at not in (own, -1):
                    ends[at] = (ends.get(at, (reader, reader))[0], reader)
            for at, (first, last) in ends.items():
                changes[at, first] += size
                changes[at, last + 1] -= size
        return changes.cumsum(axis=1).max(axis=1)


def projected(
    graph: Graph, where: Mapping[str, str], labels: Sequence[str], computed: Collection[str] = (), max_nodes: int | None = None,
    caches: Mapping[str, int] = MappingProxyType({}), workspaces: Mapping[str, int] = MappingProxyType({}),
    cuts: Collection[str] = (),
) -> dict[str, DeviceBytes]:
    """The bytes of each device for a placement, partitioned as `compile` does. Near-linear."""
    names = [name for name in where if name not in computed]
    weights = ReadWeights(graph, names, computed, caches)
    held, cached = dict.fromkeys(labels, 0), dict.fromkeys(labels, 0)
    for nbytes, readers, is_cache in zip(weights.sizes, weights.readers, weights.are_caches):
        for label in {where[names[number]] for number in readers}:
            (cached if is_cache else held)[label] += nbytes
    values = dict.fromkeys(labels, 0)
    for call in running_calls(partitioned(graph, where, growth_on(labels), max_nodes, cuts), caches):
        values[call.device] = max(values[call.device], call.bytes)
    extra = {label: workspaces.get(label, 0) for label in {where[name] for name in names}}
    return {label: DeviceBytes(held[label], values[label], cached[label], extra.get(label, 0)) for label in labels}


def partitioned(
    graph: Graph, where: Mapping[str, str], growth: str, max_nodes: int | None, cuts: Collection[str] = ()
) -> Graph:
    """The placed graph, whose ops are calls of subgraphs."""
    placed = with_affinities(graph.evolve(attrs={}), where)
    options: dict[str, Any] = {
        "growth": growth, "infer_types": False, "verify": False, "max_nodes": max_nodes, "cuts": cuts,
    }
    return apply_pass(placed, "PartitionGraph", subgraph_property=AffinityProperty(), **options)


@attrs.frozen(slots=True)
class RunningCall:
    """A call of a partitioned graph, and the memory of its device while it runs."""

    node: Node
    """The call."""
    device: str
    """Its device."""
    bytes: int
    """The values alive between calls, those that it reads included, and the planned peak of those inside."""
    plan: MemoryPlan | None
    """The plan of the values inside; None if it has no body."""

    @property
    def ops(self) -> list[Node]:
        """The ops inside."""
        return [node for body in itertools.islice(bodies_of(self.node), 1) for node in body.nodes if node.is_op]

    def cuts(self) -> set[str]:
        """The ops before which a cut of the subgraph frees values: those that were read before most bytes are alive or, if there
        are none, those that are first read after that; and the inputs of either half. Empty if there is a single op."""
        ops = self.ops
        if self.plan is None or len(ops) < 2:
            return set()
        alive = [self.plan.alive[node.name] for node in ops]
        peak = alive.index(max(alive))
        spans: dict[NodeEntry, tuple[int, int]] = {}
        for i, node in enumerate(ops):
            spans.update({entry: (spans.get(entry, (i, i))[0], i) for entry in node.reads if entry.node.is_variable})
        if all(last >= peak for _, last in spans.values()) and any(first > peak for first, _ in spans.values()):
            peak += 1
        return {ops[min(max(peak, 1), len(ops) - 1)].name, ops[len(ops) // 2].name}


def running_calls(graph: Graph, caches: Collection[str] = ()) -> list[RunningCall]:
    """The calls of a partitioned graph in the order of execution. A value is alive on its device until the last call that reads
    it, on whichever device, has run; a copy of it until the last one of the device that reads it. Caches are not counted."""
    last: dict[tuple[NodeEntry, str], int] = {}
    for i, node in enumerate(graph.nodes):
        if node.is_op:
            last.update({(entry, str(node.affinity)): i for entry in node.reads})
    ends: dict[NodeEntry, int] = {}
    for (entry, _), i in last.items():
        ends[entry] = max(i, ends.get(entry, 0))
    ends.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    known: dict[int, MemoryPlan] = {}
    alive: dict[str, int] = defaultdict(int)
    resident = {node[0] for node in graph.inputs if node.name in caches}
    held: set[tuple[NodeEntry, str]] = set()
    ending: dict[int, list[tuple[str, int]]] = {}
    calls = []

    def take(entry: NodeEntry, label: str, until: int) -> None:
        size = aligned_bytes(entry.type, ALIGNMENT) or 0
        held.add((entry, label))
        alive[label] += size
        ending.setdefault(until, []).append((label, size))

    for i, node in enumerate(graph.nodes):
        label = node.affinity
        if not node.is_op or label is None:
            continue
        for entry in node.reads:
            if entry.node.value is None and entry not in resident and (entry, label) not in held:
                take(entry, label, last[entry, label])
        before = alive[label]
        for entry in node.outputs:
            take(entry, label, ends.get(entry, i))
        plans = [plan_values(body, ALIGNMENT, known) for body in bodies_of(node)]
        inner = max((plan.peak for plan in plans), default=0)
        calls.append(RunningCall(node, label, max(before + inner, alive[label]), plans[0] if plans else None))
        for where, size in ending.pop(i, ()):
            alive[where] -= size
    return calls


def cuts_to_fit(
    graph: Graph, where: Mapping[str, str], max_nodes: int | None, caches: Collection[str], room: Mapping[str, float]
) -> tuple[str, ...]:
    """The ops before which subgraphs are cut so that the values of each device keep within its room; they may not suffice."""
    cuts: set[str] = set()
    for _ in range(CUTTINGS):
        calls = running_calls(partitioned(graph, where, growth_on(room), max_nodes, cuts), caches)
        full = [i for i, call in enumerate(calls) if call.bytes > room[call.device]]
        new = {cut for i in full for cut in calls[i].cuts()} - cuts
        if full and not new:  # values of calls before and after are alive too: those then end earlier, or begin later
            several = [i for i, call in enumerate(calls) if len(call.ops) > 1]
            around = {several[j] for i in full for j in _around(several, i)}
            new = {calls[i].ops[len(calls[i].ops) // 2].name for i in around} - cuts
        if not new:
            break
        cuts |= new
    return tuple(sorted(cuts))


def _around(numbers: Sequence[int], number: int) -> range:
    """The places of the greatest of the sorted numbers below a number, and of the least one above it."""
    place = bisect_left(numbers, number)
    return range(max(0, place - 1), min(len(numbers), place + 1))


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
"""The bytes of each unit, in capitals."""

_AMOUNT = re.compile(rf"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*({'|'.join(_UNITS)})\s*", re.ASCII | re.IGNORECASE)
"""A number and a unit."""


def limits_of(given: Limits | None, devices: Sequence[Device]) -> dict[str, float]:
    """The most bytes of each device that is named; infinite for None."""
    if isinstance(given, str):
        if given != "free":
            remedy = 'Write "free", or {"cuda": "8GiB"}'
            raise AcceleratorError(f"there is no limit {given!r}", where="option limit", remedy=remedy)
        return {device.label: _free(device) for device in devices}
    if given is not None and not isinstance(given, Mapping):
        cause = f"it is a dictionary by device, not {given!r:.80}"
        raise AcceleratorError(cause, where="option limit", remedy='Write {"cuda": "8GiB"}')
    return {
        find_device(label, devices, f"limit[{label!r}]").label: math.inf if most is None else bytes_of(most, label)
        for label, most in (given or {}).items()
    }


def bytes_of(most: int | str, label: str) -> float:
    """A number of bytes, or a text such as "22GiB"."""
    amount = _AMOUNT.fullmatch(most) if isinstance(most, str) else None
    number_of_bytes = as_number(most) if amount is None else float(amount[1]) * _UNITS[amount[2].upper()]
    if not 0 <= number_of_bytes < math.inf:
        cause = f"{most!r:.80} is not an amount of memory"
        raise AcceleratorError(cause, where=f"limit[{label!r}]", remedy='Write "22GiB", or None for any')
    return number_of_bytes


def _free(device: Device) -> float:
    """The free bytes of the device, less the margin."""
    own = device.accelerator.free_bytes(device.device_id)
    free = free_memory() if own is None else own
    return math.inf if free is None else free * (1 - MARGIN)
