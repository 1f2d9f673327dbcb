"""`compile`: turns a graph and its devices into a model that runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from partita.accelerators.building.report import CompileReport, SubgraphRow
from partita.accelerators.building.subgraphs import Builder, Built, CompileTask
from partita.accelerators.building.units import Unit, compile_unit, measured_units
from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.interface.device_list import MULTI, Absent, find_device, parse_devices, parse_multi, present
from partita.accelerators.interface.settings import read_config
from partita.accelerators.placement.locked import LockedPlan
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import checked_graph, dead_nodes, live_part, place
from partita.accelerators.placement.rules import Forbid, Pin, resolve_rules
from partita.accelerators.process.atomic import write_text
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.runtime.compiled_model import CompiledModel, Origin
from partita.accelerators.runtime.multi import MultiModel
from partita.accelerators.runtime.starting.devices import Devices, Workshops, started
from partita.accelerators.store.answers import remembering
from partita.graph.build import is_made_call
from partita.graph.errors import check_count, check_flag, check_path
from partita.graph.formatting import counted, listed
from partita.graph.graph import NOTES, Graph
from partita.graph.logs import logger
from partita.graph.node import Node
from partita.graph.order import reachable
from partita.graph.pictures import to_dot
from partita.graph.readers.torch import from_torch, is_torchs
from partita.graph.types import Dim
from partita.passes import apply_pass
from partita.passes import optimize as optimized
from partita.passes.infer.traced_sizes import without_claims
from partita.passes.views import shape_view

if TYPE_CHECKING:
    from partita.graph.readers.torch import TorchSource

SHOWN = 8
"""The number of nodes that an error lists."""


@at_a_device()
def compile(  # noqa: A001  the contract's name
    graph: Graph | TorchSource,
    device: str | Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    example_inputs: Any = None,
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    strict: bool = False,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    name: str | None = None,
    optimize: bool = False,
    min_subgraph_size: int | None = None,
    plan: Placement | LockedPlan | str | os.PathLike[str] | None = None,
) -> CompiledModel:
    """The compiled graph, or torch module. `partita.compile` accepts files too, and documents the options."""
    check_flag(strict, "option strict", AcceleratorError)
    check_flag(optimize, "option optimize", AcceleratorError)
    check_count("option min_subgraph_size", min_subgraph_size, AcceleratorError)
    locked = None if plan is None else _locked(plan, pin, forbid, optimize, min_subgraph_size)
    device = list(locked.devices) if locked is not None and device is None else device
    several = parse_multi(device)
    devices = several or parse_devices(device)
    settings = read_config(config, devices)
    devices = present(devices, settings.by_device, strict or settings.hetero.strict)
    if example_inputs is not None or is_torchs(graph):
        graph = from_torch(graph, example_inputs)  # type: ignore[arg-type]
    asked = checked_graph(graph, "compile")  # type: ignore[arg-type]
    asked = asked if locked is None else locked.apply(asked)
    strict = strict or settings.hetero.strict
    whole = _prepared(asked, shapes, name, optimize, strict)
    if locked is not None:
        locked.check_types(whole)
    reason = "the passes of optimize=True removed it, or merged it into another node"
    away = {node.name: reason for node in asked.nodes if node.name not in whole} if optimize and (pin or forbid) else {}
    largest, cuts = (None, ()) if locked is None else (locked.max_nodes, locked.cuts)
    task = CompileTask(whole, devices, settings, pin, forbid, strict, away, min_subgraph_size, largest, cuts)
    if several:
        return _on_each(task)
    if settings.hetero.start == "wait":
        return _compiled(task)
    _check_wishes(task)
    return started(task, _compiled)


def _locked(plan: Any, pin: Pin | None, forbid: Forbid | None, optimize: bool, smallest: int | None) -> LockedPlan:
    """The plan as a LockedPlan."""
    if pin or forbid or optimize or smallest:
        cause = "the plan decides, so that pin, forbid, optimize and min_subgraph_size have no meaning"
        raise AcceleratorError(cause, where="compile, option plan", remedy="Give them to place instead")
    if isinstance(plan, (Placement, LockedPlan)):
        return plan if isinstance(plan, LockedPlan) else LockedPlan.of(plan)
    return LockedPlan.load(check_path("compile, option plan", plan, AcceleratorError))


@at_a_device()
def begin(read: Callable[[], Graph], device: str | None, config: Mapping[str, Any], home: str) -> Devices:
    """The start of a model whose only option is START; `home` was the working directory when the model was requested. The
    processes that compile start while the graph is read."""
    devices = parse_devices(device)
    settings = read_config(config, devices)
    devices = present(devices, settings.by_device, settings.hetero.strict)
    workshops = Workshops(devices, settings)
    try:
        workshops.begin()
        task = CompileTask(_prepared(checked_graph(read(), "compile"), strict=settings.hetero.strict), devices, settings)
        _check_wishes(task)
        return Devices(task, _compiled, home, workshops)
    except BaseException:
        workshops.close()
        raise


def _check_wishes(task: CompileTask) -> None:
    """Checks affinities, pins and forbidden devices at once, not only when compilation gets there."""
    live = live_part(task.graph)
    _affinities(live, task, any(_is_placed(node) for node in live.nodes))
    resolve_rules(live, task.devices, task.pin, task.forbid, removed=_removed(task, live))


def _removed(task: CompileTask, live: Graph) -> dict[str, str]:
    return {**task.optimized_away, **dead_nodes(task.graph, live)} if task.pin or task.forbid else {}


def _on_each(task: CompileTask) -> CompiledModel:
    """The whole graph, compiled for each of the devices."""
    settings = task.settings
    if settings.hetero.start == "now":
        cause = f"a model on {MULTI} does not start at once"
        raise NotSupported(cause, where="config of HETERO", remedy="Leave START out, or name a single device")
    here = [one for one in task.devices if not isinstance(one.accelerator, Absent)]
    each = {one.label: settings.of(one, one is here[0]) for one in here}
    alone = [attrs.evolve(task, devices=(one,), settings=each[one.label]) for one in here]
    return MultiModel({one.devices[0].label: _compiled(one) for one in alone})


def _compiled(task: CompileTask) -> CompiledModel:
    """The graph on these devices together."""
    whole, devices, settings = task.graph, task.devices, task.settings
    live = live_part(whole)
    manual = any(_is_placed(node) for node in live.nodes)
    fixed = _affinities(live, task, manual)
    with remembering(devices, settings.by_device):
        placement = place(live, devices, task.pin, task.forbid, fixed, settings.by_device, removed=_removed(task, live))
    folder = settings.hetero.dot_folder
    if folder is not None and not manual:
        write_affinity_dot(folder, placement)
    forced = {node.name for node in live.nodes if is_made_call(node) and node.name in fixed} | set(placement.pinned)
    strict = task.strict or settings.hetero.strict
    builder = Builder(placement, devices, settings, forced, strict, task.min_subgraph_size, task.max_nodes, task.cuts)
    built = builder.build(placement.apply(live))
    if folder is not None:
        write_subgraphs_dot(folder, built.graph)
    report = _report(built, placement, not manual, whole.attrs.get(NOTES, ()))
    devices_used = ", ".join(dict.fromkeys(unit.device.label for unit in built.units.values()))
    logger("compile").info("%s: %s on %s", whole.name, counted(len(built.units), "subgraph"), devices_used or "no device")
    needed = set(reachable([entry.node for entry in whole.outputs]))
    dead = [node for node in whole.nodes if node.is_op and node not in needed]
    measured = any(values["PERF_COUNT"] for values in settings.by_device.values())
    model = CompiledModel(
        built.graph, built.units, report, settings.hetero, dead, measured, lambda: measured_units(built.units, _compiled_again)
    )
    if not strict:
        model.without_claims = _renouncing(task)
    model.origin = Origin(whole, None if manual else _steps_like(task))
    return model


def _renouncing(task: CompileTask) -> Callable[[], CompiledModel]:
    """A function that compiles the graph without the declared sizes that inference does not confirm."""

    def compiled() -> CompiledModel:
        graph = without_claims(task.graph)
        shape = {"shape": shape_view(graph)}
        return _compiled(attrs.evolve(task, graph=graph.evolve(attrs={**task.graph.attrs, **shape})))

    return compiled


def _steps_like(task: CompileTask) -> Callable[[Graph], CompiledModel] | None:
    """A function that compiles a decoder's step with the task's options; None if its first device does not append to caches."""
    if task.pin or not task.devices[0].accelerator.appends_caches:
        return None
    return lambda graph: _compiled(attrs.evolve(task, graph=_prepared(graph)))


def _prepared(
    graph: Graph, shapes: Mapping[str, Sequence[Dim]] | None = None, name: str | None = None, optimize: bool = False,
    strict: bool = False,
) -> Graph:
    """The graph with inferred types; a declared type that contradicts inference is replaced, or an error if `strict`."""
    graph = graph if name is None else graph.evolve(name=name)
    graph = apply_pass(
        graph, "InferShape", shapes=shapes, strict=shapes is not None, check_declared=strict, check_fits=True, verify=False
    )
    return optimized(graph) if optimize else graph


def _is_placed(node: Node) -> bool:
    """True if the node's affinity switches automatic placement off. The affinity of a call fixes only the call."""
    return node.is_op and node.affinity is not None and not is_made_call(node)


def _affinities(graph: Graph, task: CompileTask, manual: bool) -> dict[str, str]:
    """The device of each op with an affinity, by node name. All ops need one if the user placed any by hand (`manual`)."""
    ops = [node for node in graph.nodes if node.is_op]
    lacking = [node.name for node in ops if node.affinity is None]
    if manual and lacking:
        raise AcceleratorError(
            f"some ops have an affinity and these have none: {listed(lacking, SHOWN)}",
            where=f"graph {graph.name!r}",
            remedy="Give every op an affinity (placement = query(g, ...); g = placement.apply(g)), or none",
        )
    if manual and (task.pin or task.forbid or task.min_subgraph_size):
        raise AcceleratorError(
            "the graph's affinities decide, so that pin, forbid and min_subgraph_size have no meaning",
            where=f"graph {graph.name!r}",
            remedy="Clear the affinities, or give pin and forbid to query",
        )
    fixed = {}
    for node in ops:
        if node.affinity is not None:
            fixed[node.name] = find_device(node.affinity, task.devices, f"the affinity of node {node.name!r} ({node.op})").label
    return fixed


def _report(built: Built, placement: Placement, automatic: bool, noted: Sequence[str]) -> CompileReport:
    rows = tuple(SubgraphRow(u.name, u.device.label, len(u.ops), u.seconds, u.compiled.story) for u in built.units.values())
    of_units = [f"{unit.name}: {note}" for unit in built.units.values() for note in unit.compiled.notes]
    notes = (*placement.notes, *built.notes, *_unheard(placement), *of_units)
    return CompileReport(built.graph.name, automatic, placement, built.moves, rows, built.partition, (*noted, *notes))


def _unheard(placement: Placement) -> list[str]:
    """A note for each If, Loop or Scan whose body names another device for an op: the node runs as a whole on one device."""
    notes = []
    for node in placement.graph.nodes:
        label = placement.get(node.name) if node.is_op and node.bodies else None
        inner = [inner for _, body in node.bodies for inner in body.nodes if inner.is_op] if label is not None else []
        asking = next((one for one in inner if one.affinity not in (None, label)), None)
        if asking is not None:
            notes.append(
                f"{node.name} ({node.op}) runs as a whole on {label}: the affinity {asking.affinity!r} of {asking.name!r} in its "
                "body is not obeyed"
            )
    return notes


def _compiled_again(unit: Unit, config: Mapping[str, Any]) -> Unit:
    return compile_unit(unit.name, unit.device, unit.body, config)


def write_affinity_dot(folder: Path, placement: Placement) -> None:
    """`hetero_affinity_<name>.dot`: the graph, each node in its device's colour."""
    text = to_dot(placement.graph, colour_by=lambda node: placement.get(node.name))
    write_text(_path(folder, "affinity", placement.graph), text)


def write_subgraphs_dot(folder: Path, graph: Graph) -> None:
    """`hetero_subgraphs_<name>.dot`: the partitioned graph, each subgraph in its device's colour."""
    write_text(_path(folder, "subgraphs", graph), to_dot(graph))


def _path(folder: Path, what: str, graph: Graph) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AcceleratorError(f"the folder cannot be created: {error.strerror}", where=str(folder)) from None
    return folder / f"hetero_{what}_{re.sub(r'[^A-Za-z0-9._-]', '_', graph.name)}.dot"
