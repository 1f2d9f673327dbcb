"""The bytes that subgraphs take on a device, measured in a process of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.arrays.inputs import InputChecker
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.accelerator import CompiledSubgraph
from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.isolation.isolated_device import Isolated, isolated
from partita.accelerators.interface.isolation.process import ChildTask, DeviceProcess, Limit, origin_of
from partita.accelerators.process.memory import Packing
from partita.graph.graph import Graph


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
