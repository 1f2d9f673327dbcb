"""HETERO as a device of its own: defaults for all models on several devices, its metrics, and its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.errors import NotSupported
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.device_list import DEFAULT, parse_devices
from partita.accelerators.interface.keys import Key, optional
from partita.accelerators.interface.registry import HETERO, devices
from partita.accelerators.interface.settings import HETERO_KEYS
from partita.accelerators.placement.placement import Placement
from partita.accelerators.placement.placing import query
from partita.graph.graph import Graph


class HeteroAccelerator(Accelerator):
    """Several devices by priority. Its configuration holds the defaults of every later compilation.

    TARGET_FALLBACK names the devices, the best first, that plain "HETERO" stands for."""

    name = HETERO

    def keys(self) -> dict[str, Key]:
        """The keys of a model as a whole, and TARGET_FALLBACK."""
        return {**HETERO_KEYS, "TARGET_FALLBACK": Key(None, optional(_labels))}

    def metrics(self) -> dict[str, Any]:
        """AVAILABLE_DEVICES are the names that may follow `HETERO:` here; the capabilities are those of any default device."""
        chosen = parse_devices(None)
        able = [capability for device in chosen for capability in device.accelerator.get_metric("OPTIMIZATION_CAPABILITIES")]
        return {
            "AVAILABLE_DEVICES": [device.name for device in devices() if device.usable],
            "FULL_DEVICE_NAME": f"{HETERO}:{','.join(device.label for device in chosen)}",
            "OPTIMIZATION_CAPABILITIES": list(dict.fromkeys(able)),
        }

    def query(self, graph: Graph) -> Placement:
        """The device of each node by name, among those of TARGET_FALLBACK (or else the default ones)."""
        return query(graph)

    def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
        """Raises NotSupported: HETERO partitions graphs, and compiles no subgraph itself."""
        raise NotSupported(f"{HETERO} runs no subgraph itself", remedy=f'Write compile(graph, "{DEFAULT}")')

    def add_extension(self, extension: Any) -> None:
        """Raises NotSupported: extensions belong to the devices that run them."""
        raise NotSupported(f"{HETERO} takes no extensions", remedy='Add it to a device: accelerator("cpu").add_extension(...)')


def _labels(value: Any) -> str:
    """The labels of devices that can be used here, joined by commas."""
    listed = f"{HETERO}:{value}" if isinstance(value, str) and ":" not in value else value
    return ",".join(device.label for device in parse_devices(listed))
