"""Compiles a placed graph: partitions it, compiles subgraphs in parallel, and moves ops that a device could not compile."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

import attrs

from partita.accelerators.building.refusals import Failure, cut_apart, not_compiled
from partita.accelerators.building.sizes_along import sizes_along
from partita.accelerators.building.specialized import is_static
from partita.accelerators.building.units import Unit, compile_unit
from partita.accelerators.errors import AcceleratorError, CompileError, DeviceMistake, NotSupported, asking
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.device_property import DeviceGroups, given_back_because, growth_on
from partita.accelerators.interface.inlining import without_calls
from partita.accelerators.interface.settings import Config
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import with_constants_computed
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.process.descriptors import at_a_terminal
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.process.forking import Guard
from partita.accelerators.store.capsules.keeping import keep_failure
from partita.accelerators.store.waiting import work_until
from partita.graph.build import is_made_call
from partita.graph.flops import count_flops
from partita.graph.formatting import counted, listed
from partita.graph.graph import Graph
from partita.graph.logs import logger
from partita.graph.node import Node
from partita.graph.rewrite import with_changes
from partita.partition import AffinityProperty, PartitionReport, SubgraphProperty, inline_subgraphs
from partita.passes import apply_pass
from partita.passes.manager import watched_as_here
from partita.passes.registry import REPORT

_log = logger("compile")
_placement = logger("placement")

SHOWN = 8
"""Maximum number of nodes that a note lists."""

MOST_PARTS = 8
"""Maximum number of ops at fault that are isolated per device; then whole subgraphs move."""

PATIENCE = 1.0
"""Seconds before a terminal shows the progress of compilation."""


@attrs.frozen(slots=True, eq=False)
class CompileTask:
    """The request for one compilation: a typed graph, its devices and the options."""

    graph: Graph
    """The graph."""
    devices: Sequence[Device]
    """The devices, the preferred ones first."""
    settings: Config
    """The configuration of each device."""
    pin: Pin | None = None
    """The nodes that are forced onto a device."""
    forbid: Forbid | None = None
    """The ops and nodes that a device must not run."""
    strict: bool = False
    """True if it is an error when a device cannot compile what it accepted."""
    optimized_away: Mapping[str, str] = attrs.field(factory=dict)
    """The nodes of the caller's graph that optimization removed, each with the reason."""
    min_subgraph_size: int | None = None
    """Subgraphs of fewer ops go to the next device; None: the devices' properties decide."""
    max_nodes: int | None = None
    """Subgraphs of more ops are cut into several; None: the devices' properties decide."""
    cuts: tuple[str, ...] = ()
    """The ops before which subgraphs are cut."""


@attrs.frozen(slots=True)
class Move:
    """A subgraph that a device accepted and then could not compile."""

    subgraph: str
    """The call's name."""
    nodes: tuple[str, ...]
    """The op nodes that moved."""
    device: str
    """The device that failed."""
    reason: str
    """The reason that the device gave."""
    to: Mapping[str, str]
    """The device that each node moved to, by the node's name."""


@attrs.frozen(slots=True, eq=False)
class Built:
    """A graph whose live ops are all calls of compiled subgraphs."""

    graph: Graph
    """The partitioned graph."""
    units: Mapping[str, Unit]
    """The compiled subgraphs by the names of their calls."""
    moves: tuple[Move, ...]
    """The moved ops."""
    partition: PartitionReport
    """The partition of the graph."""
    notes: tuple[str, ...]
    """Notes on the ops that the devices' properties rejected, and on their new devices."""


class Builder:
    """Compiles one graph, all of whose ops have an affinity."""

    def __init__(
        self, placement: Placement, devices: Sequence[Device], config: Config, forced: set[str], strict: bool,
        min_size: int | None = None, max_nodes: int | None = None, cuts: Sequence[str] = (),
    ) -> None:
        self.placement = placement
        self.devices = {device.label: device for device in devices}
        self.config = config
        self.forced = forced
        """The nodes that must not move: pinned ones, and calls with an affinity of their own."""
        self.strict = strict
        self.min_size = min_size
        """Subgraphs of fewer ops go to the next device that runs them; None: the devices' properties decide."""
        self.max_nodes = max_nodes
        """Maximum number of ops of a subgraph; None: the devices' properties decide."""
        self.cuts = cuts
        """The ops before which subgraphs are cut."""
        self.moves: list[Move] = []
        self.notes: list[str] = []
        self.has_given_back = False
        """True if a device's property rejected ops that another device took."""

    def build(self, graph: Graph) -> Built:
        """Partition and compile until every subgraph is compiled; each round excludes what failed."""
        first, done = graph, dict[Task, Unit]()
        graph = self._computed(graph)
        report: PartitionReport | None = None
        while True:
            graph, latest = self._partitioned(graph)
            report = report or latest
            calls = [node for node in graph.nodes if node.is_op]
            waiting = [call for call in calls if _task(call) not in done]
            failures = self._cut_apart(waiting) or self._compile(waiting, done)
            if not failures:
                folder = self.config.hetero.capsules
                units = {call.name: attrs.evolve(done[_task(call)], name=call.name, capsules=folder) for call in calls}
                self._warn()
                return Built(graph, units, tuple(self.moves), self._current(first, report, calls), tuple(self.notes))
            graph = self._computed(self._moved(graph, failures))

    def _current(self, first: Graph, report: PartitionReport, calls: Sequence[Node]) -> PartitionReport:
        """The report of the first partition, or, if any op was rejected or moved, of a partition by the final devices. Its
        subgraphs have the names of the calls that hold the same ops."""
        ops = [node.name for node in first.nodes if node.is_op]
        if not (self.moves or self.has_given_back) or not all(name in self.placement for name in ops):
            return report  # a user's call that was inlined since has no device any more
        placed = _with_affinities(first.evolve(attrs={}), {name: self.placement[name] for name in ops})
        again: PartitionReport = self._grouped(self._computed(placed), AffinityProperty()).attrs[REPORT]
        names = {node.name: call.name for call in calls if call.subgraph for node in call.subgraph.nodes if node.is_op}
        return again.renamed([names.get(group.nodes[0], group.name) for group in again.groups])

    def _warn(self) -> None:
        """Warns once about the moved share of the model, and the reason."""
        if not self.moves:
            return
        flops = count_flops(self.placement.graph).by_node
        names = list(dict.fromkeys(name for move in self.moves for name in move.nodes))
        share = sum(flops.get(name, 0) for name in names) / max(sum(flops.values()), 1)
        to = ", ".join(dict.fromkeys(device for move in self.moves for device in move.to.values()))
        took = ", ".join(dict.fromkeys(move.device for move in self.moves))
        text = f"{_titled(names)} with {share:.0%} of the FLOPs moved to {to}: {took} could not compile what it took"
        self.notes.append(text)
        warnings.warn(f"{self.placement.graph.name}: {text}: {self.moves[0].reason}", stacklevel=2)

    def _partitioned(self, graph: Graph) -> tuple[Graph, PartitionReport]:
        """Groups each device's ops into calls by the device's property; rejected ops go to the next device, and are grouped
        there. The calls of earlier devices stay, so no device is queried more often than there are devices."""
        own = {label: _property_of(device) for label, device in self.devices.items()}
        before = {node.name for node in graph.nodes if is_made_call(node)}
        partitioned = self._grouped(graph.evolve(attrs={}), DeviceGroups(own))
        report: PartitionReport = partitioned.attrs[REPORT]
        labels = list(self.devices)
        for i, label in enumerate(labels):
            given_back = self._given_back(partitioned, label, own[label])
            if given_back:
                later = set(labels[i + 1 :])
                calls = [node for node in partitioned.nodes if is_made_call(node) and node.affinity in later]
                regrouped = [call.name for call in calls if call.name not in before]
                plain = _with_affinities(without_calls(partitioned, [regrouped]), given_back)
                partitioned = self._grouped(plain, DeviceGroups(own))
        if not all(map(is_made_call, filter(_is_op, partitioned.nodes))):
            partitioned = self._grouped(partitioned, AffinityProperty())
        partitioned = sizes_along(partitioned, self._wants_sizes)
        return partitioned.evolve(nodes=(), attrs={REPORT: report}), report

    def _computed(self, graph: Graph) -> Graph:
        return with_constants_computed(graph, self.placement)

    def _wants_sizes(self, call: Node) -> bool:
        """True for a call of ours on a device that needs static sizes to compile."""
        device = self.devices[str(call.affinity)]
        return call.name not in self.placement and not device.accelerator.dynamic_shapes and _keeps_bodies(device)

    def _grouped(self, graph: Graph, groups: SubgraphProperty) -> Graph:
        options: dict[str, Any] = {
            "growth": growth_on(self.devices), "infer_types": False, "verify": False, "max_nodes": self.max_nodes,
            "cuts": [name for name in self.cuts if name in graph],  # others are in calls already, or constants
        }
        if isinstance(groups, DeviceGroups):
            options["min_subgraph_size"] = self.min_size
        return apply_pass(graph, "PartitionGraph", subgraph_property=groups, **options)

    def _given_back(self, graph: Graph, label: str, own: SubgraphProperty) -> dict[str, str]:
        """The next device of each op that the device's property rejected, by the op's name.

        Ops that are forced onto the device stay."""
        report: PartitionReport = graph.attrs[REPORT]
        by_reason: dict[str, list[str]] = {}
        for outside in report.outside:
            node = graph[outside.node]
            if outside.rule in ("size", "hook") and node.affinity == label:
                optional = outside.rule == "size" and self.min_size is not None
                by_reason.setdefault(given_back_because(outside, None if optional else own), []).append(node.name)
        moved: dict[str, str] = {}
        for reason, names in by_reason.items():
            forced = [name for name in names if name in self.forced]
            if forced:
                self.notes.append(f"stays on {label}, where it was forced: {_titled(forced)}: {reason}")
            alone = [name for name in names if self.min_size is not None and not self.placement.has_other(name, label)]
            if alone:
                self.notes.append(f"stays on {label}, since no later device runs it: {_titled(alone)}: {reason}")
            free = [name for name in names if name not in {*forced, *alone}]
            if free:
                to = self.placement.move(free, label, reason)
                self.has_given_back = True
                self.notes.append(f"moved from {label} to {', '.join(dict.fromkeys(to.values()))}: {_titled(free)}: {reason}")
                moved.update(to)
        return moved

    def _cut_apart(self, calls: Sequence[Node]) -> list[Failure]:
        """The calls that their devices support only in part, after partitioning.

        A node that was a call before was queried alone."""
        new = [call for call in calls if call.name not in self.placement]
        devices, values = self.devices, self.config.by_device
        failures = [cut_apart(call, devices[str(call.affinity)], values[str(call.affinity)]) for call in new]
        return [failure for failure in failures if failure is not None]

    def _compile(self, calls: Sequence[Node], done: dict[Task, Unit]) -> list[Failure]:
        """Compiles these calls' bodies on a thread per core, shared ones once. Returns those that failed."""
        failures: dict[Task, CompileError] = {}
        tasks = {_task(call): call for call in calls}
        quiet = bool(self.config.stand_ins)
        with _threads(min(len(tasks), os.cpu_count() or 1)) as pool, _progress(len(tasks), quiet) as shown:
            compile_one = watched_as_here(self._compile_one)
            running = {pool.submit(compile_one, call): task for task, call in tasks.items()}
            for future in _as_done(running, shown):
                error = future.exception()
                if isinstance(error, CompileError) and not isinstance(error, DeviceMistake):
                    failures[running[future]] = error
                    self._keep(tasks[running[future]], error)
                else:
                    unit = done[running[future]] = future.result()
                    ops = counted(len(unit.ops), "op")
                    _log.info("%s is ready on %s: %s, %.2f s", unit.name, unit.device.label, ops, unit.seconds)
        return [not_compiled(call, failures[_task(call)], self._bisecting(call)) for call in calls if _task(call) in failures]

    def _bisecting(self, call: Node) -> Callable[[Graph], CompileError | None] | None:
        """A function that tells why the call's device cannot compile a part of its body; None if all ops move together."""
        assert call.subgraph is not None
        parts = sum(move.device == call.affinity for move in self.moves)
        is_static_body = is_static(call.subgraph) or self.devices[str(call.affinity)].accelerator.dynamic_shapes
        names = {node.name for node in call.subgraph.nodes if node.is_op}
        if self.strict or self.forced & names or call.name in self.placement or parts >= MOST_PARTS or not is_static_body:
            return None

        def why_not(part: Graph) -> CompileError | None:
            try:
                self._compile_one(call.evolve(subgraph=part))
            except CompileError as error:
                return error
            return None

        return why_not

    def _keep(self, call: Node, error: CompileError) -> None:
        """Writes a capsule of a subgraph that does not compile, if CAPSULES is set."""
        folder = self.config.hetero.capsules
        if folder is not None:
            assert call.subgraph is not None and call.affinity is not None
            device = self.devices[call.affinity]
            keep_failure(folder, call.name, call.subgraph, device, self.config.by_device[device.label], error.cause)

    def _compile_one(self, call: Node) -> Unit:
        assert call.subgraph is not None and call.affinity is not None
        device = self.devices[call.affinity]
        values = self.config.by_device[device.label]
        others = [(d, self.config.by_device[d.label]) for d in self.devices.values() if d.accelerator.dynamic_shapes]
        stand_ins, behind = [*self.config.stand_ins, *others], bool(self.config.stand_ins)
        name, model, body = call.name, self.placement.graph.name, call.subgraph
        checked = _keeps_bodies(device)
        if device.accelerator.parallel_compile:
            return compile_unit(name, device, body, values, stand_ins, behind, model, checked=checked)
        with _turns.setdefault(device.accelerator.name, Guard()).lock:
            return compile_unit(name, device, body, values, stand_ins, behind, model, checked=checked)

    def _moved(self, graph: Graph, failures: Sequence[Failure]) -> Graph:
        """The graph with the failed calls inlined again, where each node at fault has the next device that runs it."""
        where: dict[str, str] = {}
        for failure in failures:
            call, error = failure.call, failure.error
            assert call.subgraph is not None and call.affinity is not None
            names = [call.name] if call.name in self.placement else [name for name in failure.ops if name in self.placement]
            if self.strict or self.forced & {call.name, *names}:
                raise _final(error, call, "strict=True" if self.strict else "its place was forced")
            try:
                to = self.placement.move(names, call.affinity, failure.reason)
            except NotSupported as nowhere:
                raise _final(error, call, f"no other device takes it: {nowhere.cause}") from error
            self.moves.append(Move(call.name, tuple(names), call.affinity, error.cause, to))
            moved_to = ", ".join(dict.fromkeys(to.values()))
            _placement.warning("%s moves from %s to %s: %s", call.name, call.affinity, moved_to, failure.reason)
            if call.name in to:
                inner = [node.name for node in call.subgraph.nodes if node.is_op]
                to = {call.name: to[call.name], **dict.fromkeys(inner, to[call.name])}
            where.update(to)
        whole = {name for name in where if name in graph}
        failed = {failure.call.name for failure in failures} - whole
        moved = {name for move in self.moves for name in move.nodes}
        again = {node.name for node in graph.nodes if self._holds_only(node, moved)}  # they join the moved neighbours now
        return _with_affinities(inline_subgraphs(graph, lambda node: node.name in failed | again), where)

    def _holds_only(self, node: Node, moved: set[str]) -> bool:
        """True for a call of ours whose ops all moved."""
        if not is_made_call(node) or node.name in self.placement or node.subgraph is None:
            return False
        return all(inner.name in moved for inner in node.subgraph.nodes if inner.is_op)


def _titled(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'op')} ({listed(names, SHOWN)})"


def _property_of(device: Device) -> SubgraphProperty:
    where = f"subgraph_property of device {device.label!r}"
    with asking(where):
        subject = device.accelerator.subgraph_property()
    if not isinstance(subject, SubgraphProperty):
        raise AcceleratorError(f"it returned {subject!r}, not a SubgraphProperty", where=where)
    return subject


def _keeps_bodies(device: Device) -> bool:
    """True if the bodies of the device's subgraphs are unchanged parts of the inferred graph: a property of its own has hooks,
    which may change them."""
    return type(device.accelerator).subgraph_property is Accelerator.subgraph_property


Task = tuple[int, str | None]
"""A body's identity, and its device: calls that share both are compiled once."""


def _task(call: Node) -> Task:
    return id(call.subgraph), call.affinity


_turns: dict[str, Guard] = {}
"""The locks of the devices that compile one subgraph at a time, by device name."""


def _is_op(node: Node) -> bool:
    return node.is_op


def _final(error: CompileError, call: Node, why: str) -> CompileError:
    return CompileError(
        f"{error.cause}\n    (not placed elsewhere: {why})",
        where=error.where,
        remedy=error.remedy or f"Keep the ops off it with forbid={{...: {call.affinity!r}}}, or name a device behind it",
    )


def _with_affinities(graph: Graph, where: Mapping[str, str]) -> Graph:
    def moved(node: Node) -> dict[str, str]:
        label = where.get(node.name) if node.is_op else None
        return {} if label is None or label == node.affinity else {"affinity": label}

    return with_changes(graph, moved)


@contextmanager
def _threads(count: int) -> Iterator[Pool]:
    """A pool whose threads start no more work, and wait for no other process, once an interrupt leaves the block."""
    abandoned = threading.Event()
    pool = Pool(max(1, count), "partita-compile", work_until, (abandoned,))
    try:
        yield pool
    except BaseException:
        abandoned.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _as_done(running: Mapping[Future[Unit], Task], shown: Any) -> Iterator[Future[Unit]]:
    waiting = set(running)
    while waiting:
        finished, waiting = wait(waiting, timeout=PATIENCE, return_when=FIRST_COMPLETED)
        yield from finished
        shown(len(running) - len(waiting))


@contextmanager
def _progress(count: int, quiet: bool) -> Iterator[Any]:
    """A function that shows the number of finished tasks: only on a terminal, after PATIENCE, and not for background work."""
    if quiet or not at_a_terminal():
        yield lambda finished: None
        return
    import time

    from rich.console import Console
    from rich.progress import Progress

    begun = time.monotonic()
    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("compiling", total=count)
    started = False

    def shown(finished: int) -> None:
        nonlocal started
        if not started and time.monotonic() - begun > PATIENCE and finished < count:
            bar.start()
            started = True
        bar.update(task, completed=finished)

    try:
        yield shown
    finally:
        if started:
            bar.stop()
