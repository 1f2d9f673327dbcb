"""A device made of a SubgraphProperty, which chooses the subgraphs, and a function, which computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph
from partita.accelerators.interface.registry import is_known, register_accelerator
from partita.graph.graph import Graph
from partita.graph.types import Array
from partita.partition import SubgraphProperty, plan

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
