"""What each op costs in accuracy and wins in a lower precision, and what whole models do, measured on a device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from accelerators.arrays.distance import distance
from accelerators.choosing.options import Given
from accelerators.choosing.precision_probe import Probe, isolated, read_by
from accelerators.compiling import compile as compile_model
from accelerators.precision.calibration import Range, calibrated
from accelerators.precision.lowered_ops import KEPT, bytes_won, lowerable, lowered, why_not
from accelerators.running.compiled_model import CompiledModel
from graph.errors import PartitaError
from graph.graph import Graph
from graph.node import Node
from graph.types import Array
from passes.infer import infer

TURNS = 20
"""How often two whole models are run in turn; the shortest time of each counts."""

ROUNDS = 5
"""How often a model is profiled; the shortest time of each op counts."""


class Measuring:
    """What is known of a model's ops, measured step by step."""

    def __init__(
        self, graph: Graph, batches: Sequence[Given], device: Any, config: Any, calibration: str, win: str
    ) -> None:
        self.graph, self.batches = graph, batches
        self.device, self.config, self.win = device, config, win
        self.ops = lowerable(graph)
        self.probe = Probe(graph, self.ops)
        self.model = self._compiled(self.probe.graph)
        read = self.probe.reads
        self.ranges: dict[str, Range] = calibrated(lambda: self._seen(read), calibration)
        self.wanted = [self._run(batch) for batch in batches]
        self.refused: dict[tuple[str, str], str] = {}

    def _compiled(self, graph: Graph) -> CompiledModel:
        return compile_model(graph, self.device, self.config)

    def _probed(self, batch: Given, moved: Mapping[str, Array]) -> Any:
        return self.model({**batch, **self.probe.still, **{self.probe.shifts[name]: array for name, array in moved.items()}})

    def _run(self, batch: Given, moved: Mapping[str, Array] | None = None) -> list[Any]:
        return list(self._probed(batch, moved or {}))[: len(self.graph.outputs)]

    def _seen(self, names: Sequence[str]) -> Iterator[Mapping[str, Array]]:
        for batch in self.batches:
            values = list(self._probed(batch, {}))[len(self.graph.outputs) :]
            known = dict(zip(self.probe.seen, values, strict=True))
            yield {name: np.asarray(known[name]) for name in names}

    # -- what each op costs --------------------------------------------------------------------------------

    def errors(self, precisions: Iterable[str]) -> dict[tuple[str, str], float]:
        """How far the answer to the first input moves if one op alone runs in a precision, by op and precision."""
        seen = next(self._seen(self.probe.seen))
        errors: dict[tuple[str, str], float] = {}
        for precision in dict.fromkeys(p for p in precisions if p != KEPT):
            for name, result in self._alone(precision, seen, self._taking(precision)).items():
                shift = np.asarray(result, np.float32) - seen[self.graph[name][0].name]
                answer = self._run(self.batches[0], {name: shift})
                errors[name, precision] = distance(answer, self.wanted[0])
        return errors

    def _taking(self, precision: str) -> list[Node]:
        """The ops that ONNX has in a precision; the others are noted."""
        reasons = {node: why_not(node, precision, self.graph.opsets.get("", 1)) for node in self.ops}
        self.refused |= {(node.name, precision): reason for node, reason in reasons.items() if reason is not None}
        return [node for node, reason in reasons.items() if reason is None]

    def _alone(self, precision: str, seen: Mapping[str, Array], ops: Sequence[Node]) -> dict[str, Any]:
        """What each op makes in a precision of the values that it reads in float32. What the device refuses has no result."""
        if not ops:
            return {}
        alone = isolated(self.graph, ops, precision, self.ranges)
        given = {f"given{i}": seen[read_by(node).name] for i, node in enumerate(ops)}
        try:
            return dict(zip([node.name for node in ops], self._compiled(alone)(given), strict=True))
        except PartitaError as error:
            if len(ops) == 1:
                self.refused[ops[0].name, precision] = error.cause
                return {}
        half = len(ops) // 2
        return {**self._alone(precision, seen, ops[:half]), **self._alone(precision, seen, ops[half:])}

    # -- what each op wins ---------------------------------------------------------------------------------

    def gains(self, precisions: Sequence[str]) -> dict[tuple[str, str], float]:
        """What an op wins in a precision, by op and precision."""
        if self.win == "memory":
            return {
                (node.name, precision): bytes_won(node, precision)
                for node in self.ops for precision in precisions if (node.name, precision) not in self.refused
            }
        before = self._times(self.graph)
        gains = {}
        for precision in precisions:
            everything = {node.name: precision for node in self.ops if (node.name, precision) not in self.refused}
            if everything:
                after = self._times(lowered(self.graph, everything, self.ranges))
                gains.update({(name, precision): before.get(name, 0.0) - after.get(name, 0.0) for name in everything})
        return gains

    def _times(self, graph: Graph) -> dict[str, float]:
        """The microseconds of each op. The time of a kernel of several ops is shared out among them."""
        model, names = self._compiled(graph), {node.name for node in self.ops}
        rounds: list[dict[str, float]] = []
        parts = {(kernel.symbol, kernel.nodes[0]): [name for name in kernel.nodes if name in names] for kernel in model.kernels()}
        for _ in range(ROUNDS):
            times: dict[str, float] = {}
            for row in model.profile(dict(self.batches[0])).rows:
                shared = parts.get((row.exec_type, row.node), [row.node] if row.node in names else [])
                for name in shared:
                    times[name] = times.get(name, 0.0) + row.real_us / len(shared)
            rounds.append(times)
        return {name: min(times.get(name, 0.0) for times in rounds) for name in names}

    # -- what a whole choice costs and wins ----------------------------------------------------------------

    def is_faster(self, chosen: Mapping[str, str], locked: Mapping[str, str]) -> bool:
        """Is the model faster in the chosen precisions than with those alone that are locked?"""
        if chosen.items() <= locked.items():
            return True
        batch, models = dict(self.batches[0]), [self._lowered(precisions) for precisions in (chosen, locked)]
        times: list[list[float]] = [[], []]
        for _ in range(TURNS):
            for model, taken in zip(models, times, strict=True):
                start = perf_counter()
                model(batch)
                taken.append(perf_counter() - start)
        return min(times[0]) < min(times[1])

    def _lowered(self, precisions: Mapping[str, str]) -> CompiledModel:
        return self._compiled(infer(lowered(self.graph, precisions, self.ranges), strict=False))

    def measured(self, precisions: Mapping[str, str]) -> float:
        """How far the model in these precisions is from float32, over all inputs."""
        if not any(precision != KEPT for precision in precisions.values()):
            return 0.0
        model = self._lowered(precisions)
        return max(distance(list(model(dict(batch))), wanted) for batch, wanted in zip(self.batches, self.wanted, strict=True))
