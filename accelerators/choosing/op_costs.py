"""Measures on a device the error and the gain of each op in lower precision, and those of whole models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from partita.accelerators.arrays.distance import distance
from partita.accelerators.choosing.device_choice import DeviceChoice
from partita.accelerators.choosing.op_times import times_of
from partita.accelerators.choosing.options import Given
from partita.accelerators.choosing.precision_probe import Probe, given_to, isolated, read_by
from partita.accelerators.choosing.target import Target
from partita.accelerators.errors import NotSupported
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.precision.calibration import Range, calibrated
from partita.accelerators.precision.device_plan import lowered_on
from partita.accelerators.precision.lowered_ops import (
    KEPT,
    bytes_won,
    lowerable,
    lowered,
    moved_from,
    why_not,
)
from partita.accelerators.running.compiled_model import CompiledModel
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Array

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
        self.probe = Probe(graph, self.ops)
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
        return why_not(node, precision, self.graph.opsets.get("", 1))

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
