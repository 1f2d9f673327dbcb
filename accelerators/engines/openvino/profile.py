"""Parses openvino's profile into rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.engines.model import EngineModel
from partita.accelerators.interface.accelerator import OPTIMIZED_OUT, ProfileRow
from partita.graph.graph import Graph
from partita.graph.node import Node

Owners = Mapping[str, Node]
"""The node that each layer, by name, computes or prepares inputs for."""

Microseconds = tuple[float, float]
"""Wall time and processor time in microseconds."""


def owners_of_layers(compiled: Any, model: EngineModel, graph: Graph) -> Owners:
    """The node of each layer of the compiled model.

    The engine reports the original layers of each layer. A layer that the engine adds (a change of layout, a part of an op)
    gets the node of a layer that reads it, or else of a layer that it reads. Linear."""
    owners: dict[str, Node] = {f"x{number}": node for number, node in enumerate(graph.inputs)}
    layers = compiled.get_runtime_model().get_ordered_ops()
    for layer in reversed(layers):
        name, info = layer.get_friendly_name(), layer.get_rt_info()
        originals = str(info["originalLayersNames"].value).split(",") if "originalLayersNames" in info else []
        readers = [reader.get_node().get_friendly_name() for port in layer.outputs() for reader in port.get_target_inputs()]
        candidates = [model.node_of(part) for part in (name, *originals)] + [owners.get(reader) for reader in readers]
        owner = next((node for node in candidates if node is not None), None)
        if owner is not None:
            owners.setdefault(name, owner)
    for layer in layers:
        sources = [port.get_source_output().get_node().get_friendly_name() for port in layer.inputs()]
        owner = next((owners[source] for source in sources if source in owners), None)
        if owner is not None:
            owners.setdefault(layer.get_friendly_name(), owner)
    return owners


KEPT = 16
"""Number of the run after which a time is the mean of all later runs. openvino reports means in whole microseconds: their
rounding error, times the number of runs, soon exceeds the time of one run."""


class Times:
    """The layers' times in the last run, or since run number KEPT. openvino reports means that include the slow first run."""

    def __init__(self, runs: int = 0, last_times: Mapping[str, Microseconds] | None = None, before: Times | None = None) -> None:
        self.runs = runs
        """The number of runs in the means."""
        self._last_times = last_times or {}
        self._before = before

    def after(self, infos: Sequence[Any]) -> Times:
        """The times after one more run, measured from the run before it, or from run number KEPT."""
        before = self if self.runs <= KEPT or self._before is None else self._before
        earlier = Times(before.runs, before._last_times)
        return Times(self.runs + 1, {info.node_name: _microseconds(info) for info in infos}, earlier)

    def of(self, info: Any) -> Microseconds:
        """A layer's wall time and processor time in microseconds."""
        times, before = _microseconds(info), self._before
        if before is None or info.node_name not in before._last_times:
            return times
        then, count = before._last_times[info.node_name], self.runs - before.runs
        real, cpu = (max(0.0, (new * self.runs - old * before.runs) / count) for new, old in zip(times, then, strict=True))
        return real, cpu


def _microseconds(info: Any) -> Microseconds:
    return info.real_time.total_seconds() * 1e6, info.cpu_time.total_seconds() * 1e6


def rows_of(infos: Sequence[Any], times: Times, owners: Owners, model: EngineModel) -> Sequence[ProfileRow]:
    """A row for each layer, then one for each node that no layer belongs to.

    Layers that the engine added and did not run are left out."""
    rows, seen = [], set()
    for info in infos:
        node = owners.get(info.node_name) or model.node_of(info.node_name)
        status = str(info.status).rpartition(".")[2]
        if node is None and status != "EXECUTED" and model.nodes:
            continue
        title = info.node_name if node is None else node.name
        rows.append(ProfileRow(title, info.node_type, status, *times.of(info), info.exec_type))
        seen.add(node)
    gone = [node for node in model.nodes if node not in seen]
    return (*rows, *(ProfileRow(node.name, node.op or "", OPTIMIZED_OUT, 0.0, 0.0, "") for node in gone))
