"""Measures on a device the error and the gain of each op in lower precision, and those of whole models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from partita.accelerators.arrays.distance import distance
from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.precision.calibration import Range, calibrated
from partita.accelerators.precision.device_choice import DeviceChoice
from partita.accelerators.precision.device_plan import lowered_on
from partita.accelerators.precision.lowered_ops import KEPT, bytes_won, lowerable, lowered, moved_from, why_not
from partita.accelerators.precision.options import Given, Target
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.runtime.profile import Row
from partita.graph.build import op, variable
from partita.graph.errors import PartitaError
from partita.graph.flops import count_flops
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter
from partita.graph.types import Array, TensorType
from partita.passes.constants import Namer
from partita.passes.infer import infer

TURNS = 20
"""Number of alternating runs of whole models; the minimum time of each counts."""


class Measuring:
    """Measurements of a model's ops, made step by step."""

    def __init__(
        self,
        graph: Graph,
        batches: Sequence[Given],
        target: Target,
        calibration: str,
        win: str,
        pin: Pin | None = None,
        forbid: Forbid | None = None,
    ) -> None:
        self.graph, self.batches, self.target, self.win = graph, batches, target, win
        self.ops = lowerable(graph)
        self.open = target.opened(graph, win, pin, forbid)
        self.devices: DeviceChoice | None = None
        """The best device of each op, once `gains` has measured it; None if devices are not chosen."""
        self.probe = PrecisionProbe(graph, self.ops)
        self.model = target.compiled(self.probe.graph)
        read = self.probe.reads
        self.ranges: dict[str, Range] = calibrated(lambda: self._seen(read), calibration)
        self.wanted = [self._run(batch) for batch in batches]
        self.refused: dict[tuple[str, str], str] = {}

    def _probed(self, batch: Given, moved: Mapping[str, Array]) -> Any:
        return self.model({**batch, **self.probe.still, **{self.probe.shifts[name]: array for name, array in moved.items()}})

    def _run(self, batch: Given, moved: Mapping[str, Array] | None = None) -> list[Any]:
        return list(self._probed(batch, moved or {}))[: len(self.graph.outputs)]

    def _seen(self, names: Sequence[str]) -> Iterator[Mapping[str, Array]]:
        """The observed values of every second input; the others are held out to estimate the error of new inputs."""
        for batch in self.batches[::2]:
            values = list(self._probed(batch, {}))[len(self.graph.outputs) :]
            known = dict(zip(self.probe.seen, values, strict=True))
            yield {name: np.asarray(known[name]) for name in names}

    # -- error of each op --------------------------------------------------------------------------------

    def errors(self, precisions: Iterable[str]) -> dict[tuple[str, str], float]:
        """The error of the output for the first input if one op alone runs in a precision, by op and precision."""
        seen = next(self._seen(self.probe.seen))
        errors: dict[tuple[str, str], float] = {}
        for precision in dict.fromkeys(p for p in precisions if p != KEPT):
            for name, result in self._alone(precision, seen, self._taking(precision)).items():
                shift = np.asarray(result, np.float32) - seen[self.graph[name][0].name]
                answer = self._run(self.batches[0], {name: shift})
                errors[name, precision] = distance(answer, self.wanted[0])
        return errors

    def _taking(self, precision: str) -> list[Node]:
        """The ops that ONNX supports in a precision; the reasons for the others are recorded."""
        reasons = {node: self._why_not(node, precision) for node in self.ops}
        self.refused |= {(node.name, precision): reason for node, reason in reasons.items() if reason is not None}
        return [node for node, reason in reasons.items() if reason is None]

    def _why_not(self, node: Node, precision: str) -> str | None:
        """The reason why an op may not be lowered; None if it may."""
        value = read_by(node)
        if precision == "int8" and self.ranges[moved_from(value)[-1].name] == (0.0, 0.0):
            return f"no number but zero was seen of {value.name!r}, so that its range is not known"
        return why_not(node, precision, self.graph.opset)

    def _alone(self, precision: str, seen: Mapping[str, Array], ops: Sequence[Node]) -> dict[str, Any]:
        """The result of each op in a precision for its float32 inputs. Ops that the device refuses have none."""
        if not ops:
            return {}
        alone = isolated(self.graph, ops, precision, self.ranges)
        values = [value for i, node in enumerate(ops) for value in given_to(node, i).values()]
        given = {name: seen[entry.name] for name, entry in values}
        try:
            return dict(zip([node.name for node in ops], self.target.compiled(alone)(given), strict=True))
        except PartitaError as error:
            if len(ops) == 1:
                self.refused[ops[0].name, precision] = error.cause
                return {}
        half = len(ops) // 2
        return {**self._alone(precision, seen, ops[:half]), **self._alone(precision, seen, ops[half:])}

    # -- gain of each op ---------------------------------------------------------------------------------

    def gains(self, precisions: Sequence[str], locked: Mapping[str, str]) -> dict[tuple[str, str], float]:
        """The gain of an op in a precision, by op and precision; on its fastest device, if devices are chosen."""
        if self.win == "memory":
            return {
                (node.name, precision): bytes_won(node, precision)
                for node in self.ops for precision in precisions if (node.name, precision) not in self.refused
            }
        labels: Sequence[str | None] = [None] if self.open is None else self.open.preferred
        asked = precisions if self.open is None else [*precisions, *locked.values()]
        taking = {
            precision: {node.name: precision for node in self.ops if (node.name, precision) not in self.refused}
            for precision in asked if precision != KEPT
        }
        times = {(label, KEPT): self._times(self.graph, label) for label in labels}
        for precision, everything in taking.items():
            if everything:
                whole = lowered(self.graph, everything, self.ranges)
                for label in labels:
                    measured = self._times(whole, label)
                    times[label, precision] = {name: us for name, us in measured.items() if name in everything}
        if self.open is not None:
            self.devices = DeviceChoice(self.graph, self.open.allowed, times)
        return {
            (name, precision): self._least(times, name, KEPT) - self._least(times, name, precision)
            for precision in precisions for name in taking.get(precision, ())
        }

    def _least(self, times: Mapping[tuple[str | None, str], Mapping[str, float]], name: str, precision: str) -> float:
        """The microseconds of an op on its fastest device."""
        if self.devices is not None:
            return self.devices.least(name, precision)
        return times[None, precision].get(name, 0.0)

    def _times(self, graph: Graph, label: str | None) -> dict[str, float]:
        """The microseconds of each op, with all ops on one device as far as it runs them, or on the target's own devices."""
        products = [node.name for node in self.ops]
        names = products if self.open is None else list(self.open.allowed)
        model = self.target.compiled(graph, label)
        return times_of(model, graph, self.batches[0], names, products, label)

    # -- error and time of a whole model -----------------------------------------------------------------

    def placements(self, precisions: Mapping[str, str]) -> list[Mapping[str, str] | None]:
        """The placements worth measuring, the best by estimate first; None stands for the target's own."""
        return [None] if self.devices is None else [*self.devices.candidates(precisions)]

    def seconds(self, models: Sequence[CompiledModel]) -> list[float]:
        """The minimum time of each model, in alternating runs."""
        batch = dict(self.batches[0])
        times: list[list[float]] = [[] for _ in models]
        for _ in range(TURNS):
            for model, taken in zip(models, times, strict=True):
                start = perf_counter()
                model(batch)
                taken.append(perf_counter() - start)
        return [min(taken) for taken in times]

    def lowered(self, precisions: Mapping[str, str], placement: Mapping[str, str] | None) -> CompiledModel:
        """The model in these precisions, on these devices."""
        labels, config = self.target.labels, self.target.config
        return self.target.compiled(lowered_on(self.graph, precisions, self.ranges, placement, labels, config))

    def error(self, model: CompiledModel) -> float:
        """The error of a model against float32, over all inputs."""
        return max(distance(list(model(dict(batch))), wanted) for batch, wanted in zip(self.batches, self.wanted, strict=True))

    def measured(self, precisions: Mapping[str, str]) -> float:
        """The error of the model in these precisions against float32, over all inputs."""
        if not any(precision != KEPT for precision in precisions.values()):
            return 0.0
        *others, last = self.placements(precisions)
        for placement in others:
            try:
                return self.error(self.lowered(precisions, placement))
            except NotSupported:  # the next one is tried; the error of the last one is raised
                continue
        return self.error(self.lowered(precisions, last))


ROUNDS = 5
"""Number of profiles of a model; the minimum time of each op counts."""


def times_of(
    model: CompiledModel,
    graph: Graph,
    batch: Mapping[str, Any],
    names: Collection[str],
    products: Collection[str],
    label: str | None,
    rounds: int = ROUNDS,
) -> dict[str, float]:
    """The microseconds of each of these ops on the device, or on any; ops that did not run there have none.

    `graph` is the compiled graph. A kernel's time is divided among its products, or else among its ops in `names`, or else it
    counts for the ops that read its result: so casts and roundings count for the op that they were added for.
    The time of rows without such an op, as that of a whole subgraph, is divided by FLOPs among the ops that have none."""
    sharing = _Sharing(model, graph, names, products)
    there = [name for unit in model.units if label in (None, unit.device.label) for name in unit.ops if name in sharing.names]
    profiles = [sharing.times(model.profile(dict(batch)).rows, label) for _ in range(rounds)]
    return {name: min(times.get(name, 0.0) for times in profiles) for name in there}


class _Sharing:
    """Divides the time of rows among ops."""

    def __init__(self, model: CompiledModel, graph: Graph, names: Collection[str], products: Collection[str]) -> None:
        self.names, self.products = frozenset(names), frozenset(products)
        self.held = {(kernel.symbol, kernel.nodes[0]): tuple(kernel.nodes) for kernel in model.kernels()}
        self.units = {unit.name: unit.ops for unit in model.units}
        self.work = count_flops(graph).by_node
        self.owners: dict[str, str] = {}
        for node in reversed(graph.nodes):
            readers = (self.owners.get(reader.name) for reader in graph.consumers(node))
            owner = node.name if node.name in self.names else next(filter(None, readers), None)
            if owner is not None:
                self.owners[node.name] = owner

    def times(self, rows: Collection[Row], label: str | None) -> dict[str, float]:
        """The microseconds of one profile."""
        times: dict[str, float] = {}
        unknown: dict[str, float] = {}
        for row in rows:
            if label in (None, row.device):
                sharing = self._sharing(self.held.get((row.exec_type, row.node), (row.node,)))
                for name in sharing:
                    times[name] = times.get(name, 0.0) + row.real_us / len(sharing)
                if not sharing and row.subgraph in self.units:
                    unknown[row.subgraph] = unknown.get(row.subgraph, 0.0) + row.real_us
        for unit, us in unknown.items():
            sharing = self._sharing([name for name in self.units[unit] if not times.get(name)]) or self._sharing(self.units[unit])
            work = [self.work.get(name, 0) + 1 for name in sharing]
            for name, own in zip(sharing, work, strict=True):
                times[name] = times.get(name, 0.0) + us * own / sum(work)
        return times

    def _sharing(self, held: Collection[str]) -> list[str]:
        products = [name for name in held if name in self.products]
        ops = products or [name for name in held if name in self.names]
        return ops or list(dict.fromkeys(self.owners[name] for name in held if name in self.owners))


class PrecisionProbe:
    """The graph with a value added to the result of each op, which is zero or the op's error; its further outputs are the values
    that the ops read and compute."""

    def __init__(self, graph: Graph, ops: Sequence[Node]) -> None:
        rewriter, namer = Rewriter(graph), Namer(graph)
        self.shifts: dict[str, str] = {}
        """The inputs that are added to the results of ops, by op."""
        self.still: dict[str, Array] = {}
        """Zeros for all of them."""
        results: dict[NodeEntry, NodeEntry] = {}
        extra: list[Node] = []
        measured = set(ops)
        for node in graph.nodes:
            kept = rewriter.keep(node)
            if node in measured:
                shift = variable(namer(f"{node.name}_shift"), type=node.output_types[0])
                extra.append(shift)
                self.shifts[node.name] = shift.name
                self.still[shift.name] = np.zeros(_sizes(node[0]), np.float32)
                name = namer(f"{node.name}_moved")
                moved = op("Add", kept[0], shift, name=name, output_names=(name,))
                results[node[0]] = kept[0]
                rewriter.replace(node[0], moved.evolve(output_types=node.output_types, affinity=node.affinity)[0])
        read = [entry for node in ops for entry in moved_from(read_by(node))]
        self.reads = list(dict.fromkeys(entry.name for entry in read))
        """The values that ops read, and those that they are moves of."""
        beside = [entry for node in ops for entry in read_beside(node).values()]
        seen = {entry.name: rewriter.value(entry) for entry in (*read, *beside)}
        seen |= {entry.name: kept for entry, kept in results.items()}
        self.seen = list(seen)
        """The values that are further outputs."""
        names = [*graph.output_names, *(namer(f"{name}_seen") for name in self.seen)]
        outputs = [*map(rewriter.value, graph.outputs), *seen.values()]
        self.graph = rewriter.finish(outputs=outputs, output_names=names, inputs=[*graph.inputs, *extra], nodes=())


def isolated(graph: Graph, ops: Sequence[Node], precision: str, ranges: Mapping[str, Range]) -> Graph:
    """Ops in a lower precision, each with its own float32 inputs, named by `given_to`."""
    inputs: list[Node] = []
    nodes: list[Node] = []
    own: dict[str, Range] = {}
    for i, node in enumerate(ops):
        given = {slot: variable(name, type=entry.type) for slot, (name, entry) in given_to(node, i).items()}
        inputs += given.values()
        read = tuple(given[slot][0] if slot in given else entry for slot, entry in enumerate(node.inputs))
        nodes.append(node.evolve(inputs=read, after=()))
        own[given[0].name] = ranges[moved_from(read_by(node))[-1].name]
    alone = Graph([node[0] for node in nodes], inputs, f"{graph.name}_alone", graph.opsets)
    return infer(lowered(alone, {node.name: precision for node in nodes}, own), strict=False)


def given_to(node: Node, number: int) -> dict[int, tuple[str, NodeEntry]]:
    """By slot: the input of the isolated op of that number, and the value that it replaces."""
    values = {0: read_by(node), **read_beside(node)}
    return {slot: (f"given{number}_{slot}", entry) for slot, entry in values.items()}


def read_beside(node: Node) -> dict[int, NodeEntry]:
    """The computed inputs of a product other than its first, by slot: a bias."""
    given = enumerate(node.inputs)
    return {slot: entry for slot, entry in given if slot > 0 and entry is not None and entry.node.value is None}


def read_by(node: Node) -> NodeEntry:
    """The value that a product multiplies by its weights."""
    (value, *_) = node.reads
    return value


def _sizes(entry: NodeEntry) -> tuple[int, ...]:
    known = entry.type
    if not isinstance(known, TensorType) or not known.is_static or known.shape is None:
        raise AcceleratorError(
            f"the size of {entry.name!r} depends on values", where="choose_precision", remedy="Fix the sizes of the inputs"
        )
    return tuple(int(size or 0) for size in known.shape)
