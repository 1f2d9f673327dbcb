"""`diagnose`: finds the node that makes an output wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators import AcceleratorError, CompiledModel, compile, query
from partita.accelerators.building.units import Unit, compile_unit
from partita.accelerators.errors import BadConfig, CompileError, RunError
from partita.accelerators.interface.device_list import DEFAULT, Device, asked_devices, parse_devices
from partita.accelerators.interface.settings import check_config, read_config, with_key
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.runtime.multi import MultiModel
from partita.by_layer import Layer
from partita.compare import PRECISIONS, Difference, check_tolerance, compare
from partita.graph.errors import check_count
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.node import Node, NodeEntry
from partita.insight.diagnosis import ADDED, MANY, Diagnosis, Fault, SubgraphCheck
from partita.insight.searching import Blamed, first_wrong, search
from partita.insight.trial import (
    INFINITE,
    NAN,
    NUMBERS,
    RIGHT,
    UNCOMPILED,
    WRONG,
    Measure,
    Trial,
    Trials,
    draws_numbers,
    tried_unit,
)
from partita.insight.trusted import Trusted, TrustedWalk, call_arrays, first_not_finite, is_finite
from partita.partition import AffinityProperty
from partita.passes import apply_pass

HALF = 65504.0
"""Largest float16."""


@at_a_device()
def diagnose(
    model: Graph | CompiledModel,
    devices: str | Sequence[str] | None = None,
    inputs: Any = None,
    *,
    against: str | Sequence[str] = "reference",
    tolerance: float | None = None,
    config: Mapping[str, Any] | None = None,
    against_config: Mapping[str, Any] | None = None,
    runs: int = 2,
    isolate: bool = False,
    seed: int = 0,
) -> Diagnosis:
    """Find the node, or the group of fused nodes, that makes a model on these devices differ from the devices `against`.

    Each subgraph runs on its inputs in the trusted run, so that no error of another reaches it. The first wrong subgraph is then
    cut at varying places until no smaller part is wrong. `inputs` are those of one call: an array, a tuple in order, a dictionary
    by name; or a list of such calls, of which the first wrong one is examined; random by default. `tolerance` bounds max|a - b|
    over max|b|; by default it follows the element types and PRECISION. Each part runs `runs` times, which have to agree.
    `isolate` runs the devices in child processes, which may crash. `seed` is the seed of random inputs."""
    check_tolerance(tolerance, "diagnose")
    calls = inputs if isinstance(inputs, list) else [inputs]
    check_count("diagnose, option runs", runs, BadConfig)
    if not calls or not runs:
        raise BadConfig("inputs has no call" if not calls else f"runs is {runs}", where="diagnose", remedy="Give one or more")
    given = dict(check_config({} if config is None else config, "diagnose, option config"))
    task = _Task(model, devices, against, Trusted(against, against_config), tolerance, given, runs, isolate, seed)
    for number, call in enumerate(calls):
        diagnosis = task.diagnosed(call)
        if not diagnosis.ok:
            before = [f"{counted(number, 'call before it is', 'calls before it are')} right"] if number else []
            return attrs.evolve(diagnosis, notes=(*diagnosis.notes, *before))
    return diagnosis


class _Task:
    """One model on its devices, which is compared with the trusted run for each call."""

    def __init__(
        self,
        model: Graph | CompiledModel,
        devices: Any,
        against: Any,
        trusted: Trusted,
        tolerance: float | None,
        config: dict[str, Any],
        runs: int,
        isolate: bool,
        seed: int,
    ) -> None:
        if isinstance(model, CompiledModel) and (devices is not None or config or isolate):
            raise AcceleratorError(
                "a compiled model has its devices already",
                where="diagnose",
                remedy="Leave devices, config and isolate out, or give the graph",
            )
        self.devices, self.trusted, self.runs, self.seed = devices, trusted, runs, seed
        self.config = with_key(config, devices, "ISOLATE", True) if isolate else config
        self.tolerance = tolerance
        self.against = _named(against)
        self.given = model
        self.model = model.wait() if isinstance(model, CompiledModel) else self._compiled(model)
        if isinstance(self.model, MultiModel):
            labels = ", ".join(self.model.models)
            raise AcceleratorError(
                f"it has one model for each of {labels}", where="diagnose", remedy="Diagnose one of them: model.models[device]"
            )
        if self.model is not None:
            self.graph, self.subgraphs = self.model.graph, list(_subgraphs_of(self.model))
        else:
            assert isinstance(model, Graph)
            self.graph = _cut_by_device(model, devices, self.config)
            self.subgraphs = list(_uncompiled(self.graph, devices, self.config))

    def _compiled(self, graph: Graph) -> CompiledModel | None:
        """The compiled model; None if a device cannot compile what it took, which is then the fault."""
        try:
            model = compile(graph, self.devices, self.config).wait()
        except CompileError:
            return None
        return None if getattr(model.report, "moves", ()) else model

    @property
    def name(self) -> str:
        """Names of the devices."""
        if isinstance(self.given, CompiledModel):
            return ", ".join(self.given.properties.devices)
        return _named(self.devices or DEFAULT)

    def diagnosed(self, call: Any) -> Diagnosis:
        """The diagnosis of one call."""
        arrays = call_arrays(self.graph, call, self.seed)
        walk = TrustedWalk(self.graph, [subgraph.body for subgraph in self.subgraphs], arrays, self.trusted)
        checks: list[SubgraphCheck] = []
        notes: list[str] = []
        fault: Fault | None = None
        inside: tuple[Layer, ...] = ()
        for subgraph, border in zip(self.subgraphs, walk, strict=True):
            notes += filter(None, [self._not_finite(subgraph, border.given, border.expected)])
            if fault is None:
                trial = subgraph.tried(border.given, border.expected, self._measure(subgraph))
                checks.append(subgraph.checked(trial))
                if trial.kind == RIGHT and trial.message:
                    notes.append(f"{subgraph.call.name}: {trial.message}")
                if trial.kind != RIGHT:
                    fault, inside = self._fault(subgraph, trial, border.given)
                elif trial.hides:
                    fault = self._hidden(subgraph, trial, border.given)
                    checks[-1] = checks[-1] if fault is None else attrs.evolve(checks[-1], kind=fault.kind)
        outputs = self._outputs(arrays, walk.outputs)
        return Diagnosis(self.graph.name, self.name, self.against, outputs, tuple(checks), fault, inside, tuple(notes))

    def _measure(self, subgraph: _Subgraph) -> Measure:
        return Measure(self.tolerance, str(subgraph.config.get("PRECISION") or "f32"), self.runs)

    def _not_finite(self, subgraph: _Subgraph, given: Sequence[Any], expected: Sequence[Any]) -> str | None:
        """A note about the first NaN or infinity of the trusted run, which is the model's own."""
        if all(map(is_finite, expected)):
            return None
        return first_not_finite(subgraph.body, given, self.trusted)

    def _outputs(self, arrays: list[Any], expected: Sequence[Any]) -> tuple[Difference, ...]:
        """Errors of the whole model's outputs, as its users see them; empty if it draws random numbers."""
        if self.model is None or any(draws_numbers(subgraph.body) for subgraph in self.subgraphs):
            return ()
        try:
            outputs = list(self.model(*arrays))
        except RunError:
            return ()
        precisions = [self._measure(subgraph).precision for subgraph in self.subgraphs]
        coarsest = max(precisions, key=lambda precision: PRECISIONS.get(precision, 0.0), default="f32")
        return tuple(compare(self.graph, outputs, expected, self.tolerance, coarsest))

    def _fault(self, subgraph: _Subgraph, whole: Trial, given: Sequence[Any]) -> tuple[Fault, tuple[Layer, ...]]:
        """The smallest part of a subgraph that is wrong, and the errors of the values at the cuts."""
        body = subgraph.body
        trials = self._trials(subgraph, given)
        blamed = search(trials, whole)
        tries = blamed.tries
        trials, blamed = self._within_calls(trials, blamed, subgraph)
        tries += blamed.tries + 1 if trials.cutter.graph is not body else 0
        return self._told(subgraph, trials, attrs.evolve(blamed, tries=tries), len(whole.members)), _inside(trials)

    def _hidden(self, subgraph: _Subgraph, whole: Trial, given: Sequence[Any]) -> Fault | None:
        """The first op that is wrong by itself, in a subgraph that is right only because quantization hides errors."""
        trials = self._trials(subgraph, given)
        wrong = first_wrong(trials)
        if wrong is None:
            return None
        return self._told(subgraph, trials, Blamed(wrong, len(trials.tried) + trials.whole), len(whole.members))

    def _trials(self, subgraph: _Subgraph, given: Sequence[Any]) -> Trials:
        known: dict[NodeEntry, Any] = {node[0]: value for node, value in zip(subgraph.body.inputs, given, strict=True)}
        known |= self.trusted.values(subgraph.body, given)
        return Trials(subgraph.body, subgraph.device, subgraph.config, known, self._measure(subgraph))

    def _told(self, subgraph: _Subgraph, trials: Trials, blamed: Blamed, among: int) -> Fault:
        cut = trials.cut(blamed.trial.members)
        inputs, expected = trials.inputs(cut), trials.expected(cut)
        return Fault(
            subgraph.call.name,
            subgraph.device.label,
            tuple(node.name for node in cut.ops),
            tuple(str(node.op) for node in cut.ops),
            blamed.trial.kind,
            blamed.trial.message or _reason(blamed.trial, [*inputs, *expected], subgraph.config),
            blamed.trial.layers,
            blamed.tries,
            among,
            cut.graph,
            tuple(inputs),
            tuple(expected),
            subgraph.device,
            subgraph.config,
            self.tolerance,
        )

    def _within_calls(self, trials: Trials, blamed: Blamed, subgraph: _Subgraph) -> tuple[Trials, Blamed]:
        """The search repeated among the ops of blamed functions, if the error persists when these are inlined."""
        cut = trials.cut(blamed.trial.members)
        if not any(op.subgraph is not None for op in cut.ops):
            return trials, blamed
        flat, given = apply_pass(inline_calls(cut.graph), "InferShape", strict=False), trials.inputs(cut)
        known: dict[NodeEntry, Any] = {node[0]: value for node, value in zip(flat.inputs, given, strict=True)}
        known |= self.trusted.values(flat, given)
        inner = Trials(flat, subgraph.device, subgraph.config, known, self._measure(subgraph))
        whole = inner(range(len(inner.cutter.ops)))
        return (inner, search(inner, whole)) if whole.kind == blamed.trial.kind else (trials, blamed)


@attrs.frozen(slots=True, eq=False)
class _Subgraph:
    """A call of the partitioned graph."""

    call: Node
    """The call."""
    body: Graph
    """Body of the call."""
    device: Device
    """Its device."""
    config: Mapping[str, Any]
    """Configuration of the device."""
    unit: Unit | None = None
    """The compiled subgraph; None if it is not compiled yet."""

    def tried(self, given: Sequence[Any], expected: Sequence[Any], measure: Measure) -> Trial:
        """Trial of the whole subgraph on these inputs."""
        try:
            unit = self.unit or compile_unit(self.call.name, self.device, self.body, self.config)
        except CompileError as error:
            count = sum(node.is_op for node in self.body.nodes)
            return Trial(tuple(range(count)), UNCOMPILED, np.inf, message=error.cause)
        return tried_unit(unit, given, expected, measure)

    def checked(self, trial: Trial) -> SubgraphCheck:
        """The row of the diagnosis."""
        label, count = self.device.label, len(trial.members)
        return SubgraphCheck(self.call.name, label, count, trial.kind, trial.excess, trial.layers, trial.message)


def _cut_by_device(graph: Graph, devices: Any, config: Mapping[str, Any]) -> Graph:
    """The graph partitioned as `compile` does it, without compiling."""
    typed = apply_pass(graph, "InferShape", strict=False)
    placed = any(node.affinity is not None for node in typed.nodes if node.is_op)
    applied = typed if placed else query(typed, devices, config=config or None).apply(typed)
    growth = "waves" if len(asked_devices(devices)) == 1 else "largest"
    return apply_pass(applied, "PartitionGraph", subgraph_property=AffinityProperty(), growth=growth)


def _subgraphs_of(model: CompiledModel) -> Iterator[_Subgraph]:
    calls = [node for node in model.graph.nodes if node.is_op]
    for call, unit in zip(calls, model.units, strict=True):
        yield _Subgraph(call, unit.body, unit.device, unit.config, unit)


def _uncompiled(graph: Graph, devices: Any, config: Mapping[str, Any]) -> Iterator[_Subgraph]:
    asked = asked_devices(devices)
    by_device, known = read_config(config, asked).by_device, {device.label: device for device in asked}
    for node in graph.nodes:
        if node.is_op:
            assert node.subgraph is not None and node.affinity is not None
            yield _Subgraph(node, node.subgraph, known[node.affinity], by_device[node.affinity])


def _inside(trials: Trials) -> tuple[Layer, ...]:
    """The values at the ends of the tried prefixes, in order, each as in the longest prefix."""
    whole = len(trials.cutter.ops)
    seen: dict[str, Layer] = {}
    for size in range(1, whole):
        prefix = trials.tried.get(tuple(range(size)))
        seen |= {layer.name: layer for layer in prefix.layers} if prefix is not None else {}
    return tuple(seen.values())


def _reason(trial: Trial, values: Sequence[Any], config: Mapping[str, Any]) -> str:
    """Known reason for wrong values, in words."""
    sizes = [np.abs(value[np.isfinite(value)].astype(np.float64)).max(initial=0.0) for value in values if _is_float(value)]
    narrow = config.get("PRECISION") in ("f16", "fast") or any(_is_float(value) and value.dtype == np.float16 for value in values)
    if trial.kind in (NAN, INFINITE) and narrow and max(sizes, default=0.0) > HALF / 2:
        return f"numbers as large as {max(sizes):.4g} come to it or from it, and float16 ends at {HALF:.0f}"
    if trial.kind in NUMBERS and len(trial.members) > MANY:
        is_small = trial.kind == WRONG and trial.excess <= ADDED
        why = "small errors of many ops may add up" if is_small else "it is wrong only as the device runs these ops together"
        return f"no smaller group is wrong by itself: {why}"
    return ""


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _named(devices: str | Sequence[str]) -> str:
    return devices if isinstance(devices, str) else ", ".join(device.label for device in parse_devices(devices))
