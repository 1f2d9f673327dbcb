"""A model that answers at once (START): which devices answer first, and what is compiled in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from accelerators.building.specialized import SpecializedSubgraph
from accelerators.building.task import Task
from accelerators.errors import AcceleratorUnavailable, NotSupported, UnknownDevice
from accelerators.interface.device_list import Device, parse_devices
from accelerators.interface.settings import Config
from accelerators.isolation.afar import Workshop, afar
from accelerators.placement.rules import Forbid
from accelerators.running.compiled_model import CompiledModel
from accelerators.running.starting_model import StartingModel, Work
from graph.graph import Graph
from graph.rewrite import Rewriter, rewrite

ENGINES = ("onnxruntime", "openvino")
"""The engines that compile a model within a fraction of a second, the fastest first."""

SHARED = ("NUM_THREADS", "PERF_COUNT")
"""The keys whose values the devices that answer first take over."""

Compile = Callable[[Task], CompiledModel]
"""Compiles what it is asked for, and returns when it is ready."""


@attrs.frozen(slots=True, eq=False)
class _Start:
    """A model on the devices that answer first."""

    model: CompiledModel
    devices: Sequence[Device]
    settings: Config

    @property
    def stand_ins(self) -> list[tuple[Device, Mapping[str, Any]]]:
        """The devices among these that take any size."""
        able = [device for device in self.devices if device.accelerator.dynamic_shapes]
        return [(device, self.settings.by_device[device.label]) for device in able]


def started(task: Task, compile: Compile) -> CompiledModel:
    """The model, answering at once where there are devices that can. Where there are none, and where its own devices compile at
    once, it is compiled as always."""
    if all(device.accelerator.travels_as_body for device in task.devices):
        return compile(task)
    start = _start(task, compile)
    if start is None:
        return compile(task)
    behind = attrs.evolve(task, graph=_as_it_is(task.graph), settings=attrs.evolve(task.settings, stand_ins=start.stand_ins))
    workshops = _Workshops()

    def compile_behind() -> CompiledModel:
        try:
            model = compile(_in_workshops(behind, workshops))
        except BaseException:
            workshops.close()
            raise
        if not any(isinstance(unit.compiled, SpecializedSubgraph) for unit in model.units):
            workshops.close()
        return model

    return StartingModel(start.model, Work(compile_behind, workshops.give_up))


class _Workshops:
    """The workshops of one model, which are opened in the background; given up, it gives up those that come later too."""

    def __init__(self) -> None:
        self._open: list[Workshop] = []
        self._is_given_up = False

    def add(self, workshop: Workshop) -> None:
        self._open.append(workshop)
        if self._is_given_up:
            workshop.give_up()

    def give_up(self) -> None:
        self._is_given_up = True
        for workshop in list(self._open):
            workshop.give_up()

    def close(self) -> None:
        for workshop in self._open:
            workshop.close()


def _start(task: Task, compile: Compile) -> _Start | None:
    """The model on the devices that answer first; None if they do not run all of it."""
    starters = _starters(task.settings.hetero.start_with)
    values = {starter.label: _values(starter, task) for starter in starters}
    hetero = attrs.evolve(task.settings.hetero, dot_folder=None, strict=False, start="wait", start_with=None)
    settings = Config(hetero, values)
    forbid = _rules_about(task.forbid, set(values))
    try:
        model = compile(Task(without_affinities(task.graph), starters, settings, forbid=forbid))
    except NotSupported:
        return None
    return _Start(model, starters, settings)


def _starters(asked: str | None) -> tuple[Device, ...]:
    """The devices that answer first: those asked for, or the first engine that there is; `reference` behind them."""
    if asked is not None:
        named = parse_devices(asked)
        return named if any(device.accelerator.last_resort for device in named) else (*named, *parse_devices("reference"))
    for engine in ENGINES:
        try:
            return (*parse_devices(engine), *parse_devices("reference"))
        except (AcceleratorUnavailable, UnknownDevice):
            continue
    return parse_devices("reference")


def _values(starter: Device, task: Task) -> Mapping[str, Any]:
    """The configuration of a device that answers first: its own where the user asked for it too."""
    by_device = task.settings.by_device
    if starter.label in by_device:
        return by_device[starter.label]
    given = [by_device[device.label] for device in task.devices]
    keys = starter.accelerator.keys()
    values = {key: values[key] for key in SHARED if key in keys for values in given if values.get(key) is not None}
    return starter.accelerator.full_config(values)


def _rules_about(forbid: Forbid | None, labels: set[str]) -> Forbid | None:
    """What is forbidden to these devices."""
    if not forbid:
        return None
    kept = {}
    for name, listed in forbid.items():
        about = [label for label in ([listed] if isinstance(listed, str) else listed) if label in labels]
        if about:
            kept[name] = about
    return kept or None


def _as_it_is(graph: Graph) -> Graph:
    """The graph with ops of its own: affinities that are set from now on are not theirs. Linear."""

    def visit(node: Any, rewriter: Rewriter) -> None:
        rewriter.keep(node, rewriter.rebuilt(node, affinity=node.affinity) if node.is_op else None)

    return rewrite(graph, visit)


def without_affinities(graph: Graph) -> Graph:
    """The graph with no op that has an affinity. Linear."""

    def visit(node: Any, rewriter: Rewriter) -> None:
        if node.is_op and node.affinity is not None:
            rewriter.keep(node, rewriter.rebuilt(node, affinity=None))
        else:
            rewriter.keep(node)

    return rewrite(graph, visit)


def _in_workshops(task: Task, workshops: _Workshops) -> Task:
    """The task with those devices that compile for long at work in processes of their own."""
    moved: list[Device] = []
    for device in task.devices:
        accelerator, values = device.accelerator, task.settings.by_device[device.label]
        travels = accelerator.may_cache(task.graph) and accelerator.why_no_export() is None
        elsewhere = afar(accelerator, values) if accelerator.isolates_itself and travels else None
        if elsewhere is None:
            moved.append(device)
        else:
            moved.append(attrs.evolve(device, accelerator=elsewhere[0]))
            workshops.add(elsewhere[1])
    return attrs.evolve(task, devices=moved)
