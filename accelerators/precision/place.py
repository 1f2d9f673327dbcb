"""`place`: the cheapest placement on several devices, whose bytes keep within limits, projected and, if asked for, measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.decoder.conversation import ROOM
from partita.accelerators.decoder.decoder import decoder_roles
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.device_property import growth_on
from partita.accelerators.interface.isolation.isolated_device import Isolated, isolated
from partita.accelerators.interface.isolation.process import ChildTask, DeviceProcess, Limit, origin_of
from partita.accelerators.interface.settings import read_config
from partita.accelerators.placement.by_cost import LATENCY, THROUGHPUT, CostedPlacement, Setting, placed_together
from partita.accelerators.placement.costs import GivenCosts, costs_of
from partita.accelerators.placement.device_bytes import Limits, limits_of, partitioned
from partita.accelerators.placement.placing import query
from partita.accelerators.placement.rules import Forbid, Pin
from partita.accelerators.placement.throughput import lane_of
from partita.accelerators.precision.measured_costs import kept_path
from partita.accelerators.precision.options import Target
from partita.accelerators.process.exit_barrier import at_a_device
from partita.accelerators.process.memory import Packing
from partita.accelerators.store.folder import FOLDERS, keep, read_kept
from partita.graph.errors import check_count, check_flag
from partita.graph.graph import Graph
from partita.graph.nested import bodies_of
from partita.graph.summary import size_text

ROUNDS = 4
"""Maximum number of placements that are measured until one fits."""


@at_a_device()
def place(
    graph: Graph,
    devices: str | Sequence[str] | None = None,
    *,
    costs: GivenCosts | None = None,
    limit: Limits | None = None,
    even: bool = False,
    config: Mapping[str, Any] | None = None,
    pin: Pin | None = None,
    forbid: Forbid | None = None,
    max_nodes: int | None = None,
    longest: int | None = None,
    measure_bytes: bool = False,
    objective: str = LATENCY,
) -> CostedPlacement:
    """The placement with the least sum of times and hand-overs, whose projected bytes keep within the limits. Affinities of the
    graph are ignored, as by `query`.

    `costs` are `Costs`, a table of microseconds by device and op name, or a function of a node and a device.
    Without them, times are estimated as if each device were slower than the one named before it. `limit` are the most bytes by
    device, such as {"cuda": "22GiB"}, or "free": what is free now, less a tenth. With `even`, the bytes are spread over the
    devices as evenly as possible. `config`, `pin` and `forbid` are as for `query`. Two devices are placed exactly, and more if
    the graph is narrow. No compiled subgraph has more than `max_nodes` ops. The caches of a decoder have room for `longest`
    tokens (default: as many as a session begins with). With `measure_bytes`, a process of its own compiles and runs what each
    device gets, and measured bytes keep within the limits too; they are kept in the cache.

    With objective="throughput", devices work at the same time, each on another request, as in the pipeline of `start`, and the
    load of the busiest resource is least. Devices that work on the host's cores share that resource."""
    if objective not in (LATENCY, THROUGHPUT):
        remedy = f'Write "{LATENCY}" or "{THROUGHPUT}"'
        raise AcceleratorError(f"there is no objective {objective!r:.80}", where="option objective", remedy=remedy)
    if even and objective == THROUGHPUT:
        raise AcceleratorError("bytes are spread, or loads", where="options even and objective", remedy="Leave one of them out")
    for name, flag in (("even", even), ("measure_bytes", measure_bytes)):
        check_flag(flag, f"option {name}", AcceleratorError)
    setting = _setting(graph, devices, costs, limit, config, pin, forbid, max_nodes, longest)
    setting = attrs.evolve(setting, even=bool(even), objective=objective)
    return _measured(setting, Target(devices, config)) if measure_bytes else setting.placed()


@at_a_device()
def place_many(
    graphs: Sequence[Graph],
    devices: str | Sequence[str] | None = None,
    *,
    costs: Sequence[GivenCosts] | None = None,
    limit: Limits | None = None,
    config: Mapping[str, Any] | None = None,
    max_nodes: int | None = None,
    longest: int | None = None,
) -> list[CostedPlacement]:
    """The placements of several models that run at the same time: a round, which runs each once, loads the busiest resource
    least, and the bytes of all keep within the limits together. Resources are the host's cores, which all devices without
    memory of their own share, and other devices. `costs` has those of each model; other options are as for `place`. Each
    placement has the same predicted load and bound, and its own tensors in the cut."""
    if isinstance(graphs, Graph) or not isinstance(graphs, Sequence) or not graphs:
        remedy = "Write [graph, ...]"
        raise AcceleratorError("graphs are given as a list, with at least one", where="place_many", remedy=remedy)
    if costs is not None and (not isinstance(costs, Sequence) or len(costs) != len(graphs)):
        remedy = "Give a list with as many as there are graphs"
        raise AcceleratorError("costs are given for each graph", where="place_many, option costs", remedy=remedy)
    each: Sequence[GivenCosts | None] = costs or [None] * len(graphs)
    return placed_together([
        _setting(graph, devices, own, limit, config, None, None, max_nodes, longest) for graph, own in zip(graphs, each)
    ])


def _setting(
    graph: Graph, devices: str | Sequence[str] | None, costs: GivenCosts | None, limit: Limits | None,
    config: Mapping[str, Any] | None, pin: Pin | None, forbid: Forbid | None, max_nodes: int | None, longest: int | None,
) -> Setting:
    """The problem that the options describe."""
    for name, count in (("max_nodes", max_nodes), ("longest", longest)):
        check_count(f"option {name}", count, AcceleratorError, 1)
    base = query(graph, devices, config=config, pin=pin, forbid=forbid)
    able = {name: base.able(name) for name in base if name not in base.computed}
    limits = {**dict.fromkeys(base.devices, math.inf), **limits_of(limit, base.requested)}
    roles = decoder_roles(base.graph)
    caches = {} if roles is None else roles.cache_bytes(1, ROOM if longest is None else int(longest))
    known, most = costs_of(costs, base.graph, base.devices), None if max_nodes is None else int(max_nodes)
    configs = read_config(config, base.requested).by_device
    lanes = {device.label: lane_of(device, configs[device.label]) for device in base.requested}
    return Setting(base, known, able, limits, max_nodes=most, caches=caches, lanes=lanes)


def _measured(setting: Setting, target: Target) -> CostedPlacement:
    """The placement whose measured bytes keep within the limits: what a device takes beside its projected bytes is its workspace,
    for which the next placement leaves room."""
    for _ in range(ROUNDS):
        placement = setting.placed()
        placement.measured_bytes = _real_bytes(placement, target)
        workspaces, over = dict(setting.workspaces), []
        for label, real in placement.measured_bytes.items():
            held = placement.bytes[label]
            workspaces[label] = max(workspaces.get(label, 0), real - (held.total - held.workspace))
            if real > setting.limits[label]:
                over.append(f"{label} lacks {size_text(math.ceil(real - setting.limits[label]))} of {size_text(real)}")
        if not over:
            return placement
        setting = attrs.evolve(setting, workspaces=workspaces)
    raise AcceleratorError(
        f"no placement whose measured bytes fit is found; in the last one, {'; '.join(over)}",
        where=f"graph {setting.base.graph.name!r}, option measure_bytes", remedy="Raise the limit, or add a device without one",
    )


def _real_bytes(placement: CostedPlacement, target: Target) -> dict[str, int]:
    """The bytes that each device takes, measured or kept."""
    base = placement.setting.base
    path = kept_path(FOLDERS[1], base, target, None, "bytes", dict(placement), placement.max_nodes, placement.cuts)
    data = None if path is None else read_kept(path)
    if data is not None:
        kept: dict[str, int] = json.loads(data)
        return kept
    whole = partitioned(base.graph, placement, growth_on(base.devices), placement.max_nodes, placement.cuts)
    bodies: dict[str, list[Graph]] = {}
    for node in whole.nodes:
        if node.is_call and node.affinity is not None:
            bodies.setdefault(node.affinity, []).extend(bodies_of(node))
    by_label = {device.label: device for device in target.devices}
    real = {label: measured_bytes(by_label[label], graphs, target.by_device[label]) for label, graphs in bodies.items()}
    if path is not None:
        keep(path, json.dumps(real).encode())
    return real


def measured_bytes(device: Device, bodies: Sequence[Graph], config: Mapping[str, Any]) -> int:
    """The bytes that the device holds when it has compiled and run these graphs, beside those of its libraries: the smallest
    graph is compiled and run once before. Inputs and outputs are not counted."""
    accelerator = isolated(device.accelerator)
    assert isinstance(accelerator, Isolated)
    accelerator.process = DeviceProcess(origin_of(accelerator.name, type(device.accelerator)))
    try:
        _run(accelerator, min(bodies, key=_weight), config)
        before = _held(accelerator, device, config)
        running = [_run(accelerator, body, config) for body in bodies]
        held = _held(accelerator, device, config) - before
        del running
        return max(0, held)
    finally:
        accelerator.process.end()


def _run(accelerator: Isolated, body: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
    """The compiled graph, after one run."""
    compiled = accelerator.compile(body, config)
    compiled.run(InputChecker(body).made_up(0, 1))
    return compiled


def _held(accelerator: Isolated, device: Device, config: Mapping[str, Any]) -> int:
    """The bytes in use, up to a constant."""
    task = ChildTask("while its memory was measured", Limit(config["ISOLATE_SECONDS"]), AcceleratorError)
    with accelerator.process.child() as child:
        held: int = child.asked({"do": "memory", "device_id": device.device_id}, Packing(), task)
    return held


def _weight(body: Graph) -> int:
    """The bytes of the constants."""
    return sum(node.value.nbytes for node in body.nodes if node.value is not None)
