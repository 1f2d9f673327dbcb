"""What each of several devices says of each op of a graph: asked when needed, and once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelerators.device_list import Device
from accelerators.errors import AcceleratorError, asking
from accelerators.query import yes_or_why_not
from graph.graph import Graph
from graph.node import Node

Refusals = Mapping[str, str]
"""By node name, why a device does not run the op; what it runs is not in it."""


class SupportTable:
    """The answers of the devices for one graph, affinities aside."""

    def __init__(self, graph: Graph, devices: Sequence[Device]) -> None:
        self.graph = graph
        """The graph, with types."""
        self._devices = {device.label: device for device in devices}
        self._refusals: dict[str, dict[str, str]] = {}

    def refusals(self, label: str) -> Refusals:
        """What the device refuses of the graph."""
        if label not in self._refusals:
            self._refusals[label] = ask(self._devices[label], self.graph)
        return self._refusals[label]

    def refuse(self, label: str, names: Sequence[str], reason: str) -> None:
        """From now on the device refuses these ops: it took them and then failed."""
        self.refusals(label)
        self._refusals[label].update(dict.fromkeys(names, reason))


def ask(device: Device, graph: Graph) -> dict[str, str]:
    """What the device refuses of the graph, and why. A call that it does not know as an op is asked about by its body."""
    where = f"query of device {device.label!r}"
    with asking(where):
        answers = device.accelerator.query(graph)
    if not isinstance(answers, Mapping):
        raise AcceleratorError(f"it returned {type(answers).__name__}, not a mapping from node name to answer", where=where)
    refused: dict[str, str] = {}
    for node in graph.nodes:
        if node.is_op:
            answer: bool | str | None = yes_or_why_not(answers.get(node.name, "its query gave no answer"))
            if answer is not True and node.is_call:
                answer = _refused_inside(device, node)
            if isinstance(answer, str):
                refused[node.name] = answer
    return refused


def _refused_inside(device: Device, call: Node) -> str | None:
    assert call.subgraph is not None
    return next((f"its body holds {name!r}: {reason}" for name, reason in ask(device, call.subgraph).items()), None)
