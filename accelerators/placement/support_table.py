"""The answers of several devices about each op of a graph, queried once when needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.errors import NotSupported, asking
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.isolation import has_own_query, in_its_place
from partita.accelerators.interface.query import NO_ANSWER, first_refusal, with_own_nodes
from partita.accelerators.placement.rules import Rules
from partita.graph.build import is_made_call
from partita.graph.formatting import listed
from partita.graph.graph import Graph
from partita.graph.node import Node

Refusals = Mapping[str, str]
"""The reason why a device does not run an op, by node name; ops that it runs are absent."""


class SupportTable:
    """The answers of the devices for one graph and configuration, ignoring affinities."""

    def __init__(self, graph: Graph, devices: Sequence[Device], by_device: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.graph = graph
        """The graph, with types."""
        self._devices = {device.label: device for device in devices}
        self._by_device = by_device or {}
        self._refusals: dict[str, dict[str, str]] = {}

    def refusals(self, label: str) -> Refusals:
        """The ops of the graph that the device refuses, with the reasons."""
        if label not in self._refusals:
            self._refusals[label] = ask(self._devices[label], self.graph, self._by_device.get(label))
        return self._refusals[label]

    def refuse(self, label: str, names: Sequence[str], reason: str) -> None:
        """Records that the device refuses these ops from now on: it failed on them, or its property rejected them."""
        self.refusals(label)
        self._refusals[label].update(dict.fromkeys(names, reason))


def ask(device: Device, graph: Graph, config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Queries the device for the ops of the graph that it refuses, and why.

    A call that a partition made is compiled alone: if a device with its own `query` does not support it as an op, its body
    is queried."""
    where = f"query of device {device.label!r}"
    accelerator = in_its_place(device.accelerator, config or {}).configured(config or {})
    answers = _answers(accelerator, graph, where)
    refused: dict[str, str] = {}
    bodies: dict[int, str | None] = {}
    own_query = has_own_query(accelerator)
    for node in graph.nodes:
        if node.is_op:
            answer: bool | str | None = answers.get(node.name, NO_ANSWER)
            if own_query and answer is not True and is_made_call(node) and node.subgraph is not None:
                if id(node.subgraph) not in bodies:
                    bodies[id(node.subgraph)] = first_refusal(_answers(accelerator, node.subgraph, where), node.subgraph)
                answer = bodies[id(node.subgraph)]
            if isinstance(answer, str):
                refused[node.name] = answer
    return refused


def _answers(accelerator: Accelerator, graph: Graph, where: str) -> Mapping[str, bool | str]:
    with asking(where):
        return accelerator.query(with_own_nodes(graph) if has_own_query(accelerator) else graph)


SHOWN = 8
"""The number of kinds of refusal, and of nodes of each kind, that an error lists."""


def choose(name: str, devices: Sequence[Device], table: SupportTable, rules: Rules) -> str | None:
    """The first device that may run the node; None if no device may."""
    if name in rules.pinned:
        return rules.pinned[name][0]
    for device in devices:
        if rules.against(name, device.label) is None and name not in table.refusals(device.label):
            return device.label
    return None


def unsupported(nodes: Sequence[Node], devices: Sequence[Device], table: SupportTable, rules: Rules) -> NotSupported:
    """The error for ops that no device runs: grouped by op and reasons, the first few of each."""
    groups: dict[tuple[str | None, tuple[str, ...]], list[str]] = {}
    for node in nodes:
        reasons = [
            f"{device.label}: {rules.against(node.name, device.label) or table.refusals(device.label)[node.name]}"
            for device in devices
        ]
        groups.setdefault((node.op, tuple(reasons)), []).append(node.name)
    lines = []
    for (op, said), names in list(groups.items())[:SHOWN]:
        lines.append(f"{op} ({listed(names, SHOWN)})")
        lines += [f"  {reason if len(reason) <= 300 else reason[:300] + '…'}" for reason in said]
    if len(groups) > SHOWN:
        lines.append(f"and {len(groups) - SHOWN} further kinds")
    asked = ", ".join(device.label for device in devices)
    known = {device.label for device in devices}
    return NotSupported(
        f"no device of those asked ({asked}) can run:\n    " + "\n    ".join(lines),
        where=f"graph {table.graph.name!r}",
        remedy=None if "reference" in known else 'Add a device that can: "reference" runs every op of ONNX',
    )
