"""`ort_plugin` and `register_with_onnxruntime`: Partita's devices as an execution provider of onnxruntime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.registry import is_known, register_accelerator
from partita.accelerators.process.forking import Guard
from partita.graph.errors import MissingDependency, PartitaError
from partita.graph.graph import Graph
from partita.graph.types import Array
from partita.onnxruntime_plugin.api import too_old
from partita.onnxruntime_plugin.library import Library
from partita.onnxruntime_plugin.options import ProviderOptions
from partita.onnxruntime_plugin.provider import Plugin
from partita.partition import SubgraphProperty, plan

NEEDED = (1, 24)
"""The oldest onnxruntime that lets a library add a provider of this kind."""

SUFFIX = "ExecutionProvider"
"""The end of a provider's name."""

_plugins: dict[str, Plugin] = {}
"""The plugins of this process, by everything that they were made with."""

_guard = Guard()


def ort_plugin(
    devices: str | SubgraphProperty | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    name: str = "Partita",
    compute: Compute | None = None,
    key: bytes | None = None,
) -> str:
    """The path of a library for `onnxruntime.register_execution_provider_library`, with which these devices become a provider.

    `devices` and `config` are as for `compile`. Instead of devices, a property may choose the subgraphs, which `compute(subgraph,
    inputs)` runs: both become a device named like the provider. The path is valid in this process only; equal arguments give the
    same one. The provider's name is `name` and "ExecutionProvider". With a `key`, compiled models are signed, and only those that
    are signed with it run."""
    return plugin_path(devices, config, name, compute, key)


def plugin_path(
    devices: str | SubgraphProperty | None = None,
    config: Mapping[str, Any] | None = None,
    name: str = "Partita",
    compute: Compute | None = None,
    key: bytes | None = None,
    file: Path | None = None,
) -> str:
    """The same; `file` holds the library, which is then loaded from there."""
    version = _onnxruntime().__version__
    if tuple(int(part) for part in version.split(".")[:2]) < NEEDED:
        raise too_old(version)
    if sys.platform != "linux":
        remedy = "pt.compile runs the model without a session"
        raise PartitaError(f"providers are written for Linux, and this is {sys.platform}", where="ort_plugin", remedy=remedy)
    if not isinstance(name, str) or not (name.isidentifier() and name.isascii()):
        remedy = 'Use letters and digits, as "Partita"'
        raise PartitaError(f"{name!r} is not a name for a provider", where="ort_plugin", remedy=remedy)
    if isinstance(devices, SubgraphProperty) != callable(compute):
        remedy = "Give both, or the names of devices alone"
        raise PartitaError("a property and the function compute belong together", where="ort_plugin", remedy=remedy)
    with _guard.lock:
        if isinstance(devices, SubgraphProperty):
            assert compute is not None
            label = register_function(name.removesuffix(SUFFIX), devices, compute)
        else:
            label = devices or ProviderOptions().devices
        options = ProviderOptions(label, config or {}, key=key).checked()
        identity = json.dumps([name, options.devices, options.config, str(key)], sort_keys=True, default=repr)
        if identity not in _plugins:
            _plugins[identity] = Plugin(name.removesuffix(SUFFIX) + SUFFIX, options, Library(file))
        return _plugins[identity].library.path


def register_with_onnxruntime(
    name: str = "Partita",
    devices: str | SubgraphProperty | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    compute: Compute | None = None,
    key: bytes | None = None,
) -> str:
    """Add a provider with these devices to onnxruntime, and return its name: `name` and "ExecutionProvider".

        pt.register_with_onnxruntime(devices="HETERO:cpu,reference")
        session = onnxruntime.InferenceSession("net.onnx", providers=["PartitaExecutionProvider", "CPUExecutionProvider"])

    (onnxruntime 1.24 takes such a name in `add_provider_for_devices` only.)
    The arguments are those of `ort_plugin`. `onnxruntime.unregister_execution_provider_library(name)` removes it."""
    path = ort_plugin(devices, config, name=name, compute=compute, key=key)
    provider = name.removesuffix(SUFFIX) + SUFFIX
    onnxruntime = _onnxruntime()
    if any(device.ep_name == provider for device in onnxruntime.get_ep_devices()):
        remedy = f"Take it away first: onnxruntime.unregister_execution_provider_library({provider!r}); or give another name"
        raise PartitaError(f"onnxruntime has a {provider} already", where="register_with_onnxruntime", remedy=remedy)
    onnxruntime.register_execution_provider_library(provider, path)
    return provider


def _onnxruntime() -> Any:
    """The package."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingDependency("onnxruntime", "onnxruntime", "a provider for onnxruntime") from None
    return onnxruntime


Compute = Callable[[Graph, Sequence[Array]], Sequence[Array]]
"""The outputs of a subgraph for these inputs, both in its order."""


_registered: dict[str, tuple[SubgraphProperty, Compute]] = {}
"""The property and the function of each device, by its name."""


def register_function(name: str, chooser: SubgraphProperty, compute: Compute) -> str:
    """Registers a device that runs the subgraphs of the property with the function, once. The device's name."""
    label = name.lower()
    if is_known(label):
        known = _registered.get(label, (None, None))
        if known[0] is chooser and known[1] is compute:
            return label
        raise AcceleratorError(f"there is a device {label!r} already", where="ort_plugin", remedy="Give another name")

    class FunctionSubgraph(CompiledSubgraph):
        """A subgraph, run by the function."""

        concurrent = True

        def __init__(self, graph: Graph) -> None:
            self.graph = graph

        def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
            return compute(self.graph, inputs)

    class FunctionDevice(Accelerator):
        """The nodes that the property takes."""

        travels_as_body = True

        def query(self, graph: Graph) -> Mapping[str, bool | str]:
            taken = {name for group in plan(graph, subgraph_property=chooser).groups for name in group.nodes}
            reason = f"the property {chooser.name!r} does not take it"
            return {node.name: node.name in taken or reason for node in graph.nodes if node.is_op}

        def compile(self, graph: Graph, config: Mapping[str, Any]) -> CompiledSubgraph:
            return FunctionSubgraph(graph)

        def subgraph_property(self) -> SubgraphProperty:
            return chooser

    FunctionDevice.name = label
    register_accelerator(FunctionDevice)
    _registered[label] = (chooser, compute)
    return label
