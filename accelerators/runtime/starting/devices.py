"""The devices of a model that answers at once (START): those that answer first, and its own, which compile in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from partita.accelerators.building.specialized import SpecializedSubgraph
from partita.accelerators.building.subgraphs import CompileTask
from partita.accelerators.errors import AcceleratorError, AcceleratorUnavailable, NotSupported, UnknownDevice
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device, parse_devices, present
from partita.accelerators.interface.isolation.background_worker import Workshop, afar, is_afar
from partita.accelerators.interface.isolation.process import Limit
from partita.accelerators.interface.registry import engines
from partita.accelerators.interface.settings import MEASURED, Config
from partita.accelerators.placement.rules import Forbid
from partita.accelerators.process.background import behind
from partita.accelerators.process.exit_barrier import main_has_ended
from partita.accelerators.runtime.compiled_model import CompiledModel
from partita.accelerators.runtime.starting.starting_model import StartingModel, ended
from partita.accelerators.runtime.starting.work import DoneOnce, Work, working_folder
from partita.accelerators.store.cached_compiling import check_folder
from partita.accelerators.store.folder import lasting
from partita.graph.graph import Graph
from partita.graph.rewrite import with_changes

THREADS = "NUM_THREADS"
"""The key whose value the devices that answer first copy from the first device that has one."""

Compile = Callable[[CompileTask], CompiledModel]
"""Compiles a task, and returns when the model is ready."""


class Devices:
    """The devices that answer first, and the compilation in the background."""

    def __init__(self, task: CompileTask, compile: Compile, home: str, workshops: Workshops | None = None) -> None:
        """`home` is the working directory when the model was requested; it may have changed since. Invalid values in the
        configuration are errors here, and not in the background, whose result the caller may never wait for."""
        self._task, self._compile = task, compile
        hetero = attrs.evolve(task.settings.hetero, dot_folder=None, strict=False, start="wait", start_with=None)
        self._starters = _starters(task)
        self._settings = Config(hetero, {starter.label: _values(starter, task) for starter in self._starters})
        self._workshops = workshops or Workshops(task.devices, task.settings)
        by_device = {
            label: {key: lasting(value, home) if key == "CACHE_DIR" else value for key, value in values.items()}
            for label, values in task.settings.by_device.items()
        }
        for device in task.devices:
            check_folder(device.accelerator, task.graph, by_device[device.label])
        any_size = [device for device in self._starters if device.accelerator.dynamic_shapes]
        stand_ins = [(device, self._settings.by_device[device.label]) for device in any_size]
        behind = attrs.evolve(task.settings, by_device=by_device, stand_ins=stand_ins)
        as_it_is = with_changes(task.graph, lambda node: {"affinity": node.affinity} if node.is_op else {})
        self._behind = attrs.evolve(task, graph=as_it_is, settings=behind)  # later changes of affinities do not apply
        self._own = DoneOnce[CompiledModel]()

    def starting(self, work: Work) -> StartingModel | None:
        """The model that answers now; None if the devices that answer first cannot run all of it."""
        forbid = _rules_about(self._task.forbid, {starter.label for starter in self._starters})
        task = CompileTask(without_affinities(self._task.graph), self._starters, self._settings, forbid=forbid)
        try:
            return StartingModel(self._compile(task), work)
        except NotSupported:
            return None

    def own(self) -> CompiledModel:
        """The model on its own devices, compiled by the first caller; others wait for it."""
        return self._own(self._compile_own)

    def ready_after(self, seconds: float) -> CompiledModel:
        """The model on its own devices, with the report that it has if no other model answered meanwhile."""
        model = self.own()
        answered = [starter.label for starter in self._starters[:1]]
        model.settings, model.report = self._settings.hetero, ended(model.report, answered, seconds)
        return model

    def give_up(self) -> None:
        """Ends the work early, if its result is not needed any more."""
        self._workshops.give_up()

    def _compile_own(self) -> CompiledModel:
        task = attrs.evolve(self._behind, devices=self._workshops.devices(self._behind))
        # threads that a device starts as it compiles here would inherit the low priority
        starts_threads = any(not (is_afar(one.accelerator) or one.accelerator.last_resort) for one in task.devices)
        try:
            with self._workshops.place(task.graph):
                model = behind(partial(self._compile, task), leaves_threads=starts_threads)
        except BaseException:
            self._workshops.close()
            raise
        if not any(isinstance(unit.compiled, SpecializedSubgraph) for unit in model.units):
            self._workshops.close()
        return model


def started(task: CompileTask, compile: Compile) -> CompiledModel:
    """The model, answering at once if some device can. It is compiled in the foreground if none can, if its own devices compile
    at once, or if the program is ending, when no background thread may start."""
    if main_has_ended() or all(device.accelerator.travels_as_body for device in task.devices):
        return compile(task)
    devices = Devices(task, compile, working_folder())
    return devices.starting(Work(lambda: devices)) or compile(task)


class Workshops:
    """The workshops (background processes) of one model: one for each device that compiles slowly."""

    def __init__(self, devices: Sequence[Device], settings: Config) -> None:
        self._afar = dict[str, tuple[Accelerator, Workshop]]()
        limit = Limit(settings.hetero.start_seconds, "START_SECONDS")
        for device in devices:
            travels = device.accelerator.isolates_itself and device.accelerator.why_no_export() is None
            elsewhere = afar(device.accelerator, settings.by_device[device.label], limit) if travels else None
            if elsewhere is not None:
                self._afar[device.label] = elsewhere
        self._open = [workshop for _, workshop in self._afar.values()]

    def begin(self) -> None:
        """Starts the processes, before they are needed."""
        for workshop in self._open:
            workshop.begin()

    def devices(self, task: CompileTask) -> list[Device]:
        """The task's devices, in the workshops if they may compile this graph there."""
        moved = list(task.devices)
        for number, device in enumerate(moved):
            accelerator, workshop = self._afar.get(device.label, (device.accelerator, None))
            if workshop is not None and not device.accelerator.may_cache(task.graph):
                self._open.remove(workshop)
                workshop.close()
            else:
                moved[number] = attrs.evolve(device, accelerator=accelerator)
        return moved

    @contextmanager
    def place(self, graph: Graph) -> Iterator[None]:
        """A context in which all of them may compile: a model takes one compile slot, however many devices it has."""
        if not self._open:
            yield
            return
        with self._open[0].place(graph):
            for workshop in self._open:
                workshop.has_place = True
            try:
                yield
            finally:
                for workshop in self._open:
                    workshop.has_place = False
        for workshop in self._open:
            workshop.rest()

    def give_up(self) -> None:
        for workshop in list(self._open):
            workshop.give_up()

    def close(self) -> None:
        for workshop in self._open:
            workshop.close()


def _starters(task: CompileTask) -> tuple[Device, ...]:
    """The devices that answer first: those of START_WITH or the first engine that is installed, followed by `reference`."""
    asked = task.settings.hetero.start_with
    if asked is not None:
        named = _named(asked, task)
        return named if any(device.accelerator.last_resort for device in named) else (*named, *parse_devices("reference"))
    for engine in engines():
        try:
            return (*parse_devices(engine), *parse_devices("reference"))
        except (AcceleratorUnavailable, UnknownDevice):
            continue
    return parse_devices("reference")


def _named(asked: str, task: CompileTask) -> tuple[Device, ...]:
    """The devices of START_WITH. One that only compiles here, such as a GPU of another machine, is an error: it cannot answer."""
    try:
        named = parse_devices(asked)
        values = {one.label: _values(one, task) for one in named}
        reason = named[0].accelerator.why_not_here(values[named[0].label]) if len(named) == 1 else None
        if reason is not None:
            raise AcceleratorUnavailable(f"it cannot run here: {reason}", remedy="Name another device, or leave START_WITH out")
        return present(named, values, strict=False)
    except AcceleratorError as error:
        inner = f", {error.where}" if error.where else ""
        where = f"START_WITH {asked!r} in the config of HETERO{inner}"
        raise type(error)(error.cause, where=where, remedy=error.remedy) from error


def _values(starter: Device, task: CompileTask) -> Mapping[str, Any]:
    """The configuration of a device that answers first, the user's if there is one. If any device is measured, so is this one."""
    by_device = task.settings.by_device
    given = [by_device[device.label] for device in task.devices]
    is_measured = {MEASURED: any(values[MEASURED] for values in given)}
    if starter.label in by_device:
        return {**by_device[starter.label], **is_measured}
    keys = starter.accelerator.keys()
    threads = [values[THREADS] for values in given if values.get(THREADS) is not None] if THREADS in keys else []
    return starter.accelerator.full_config({THREADS: threads[0], **is_measured} if threads else is_measured)


def _rules_about(forbid: Forbid | None, labels: set[str]) -> Forbid | None:
    """The entries of `forbid` that name these devices."""
    listed = {name: [given] if isinstance(given, str) else given for name, given in (forbid or {}).items()}
    kept = {name: about for name, given in listed.items() if (about := [label for label in given if label in labels])}
    return kept or None


def without_affinities(graph: Graph) -> Graph:
    """The graph with all affinities removed. Linear."""
    return with_changes(graph, lambda node: {"affinity": None} if node.is_op and node.affinity is not None else {})
