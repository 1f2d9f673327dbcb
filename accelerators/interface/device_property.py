"""The property of a device: its groups are the ops that the device supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from partita.accelerators.interface.query import Support
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

if TYPE_CHECKING:
    from partita.accelerators.interface.accelerator import Accelerator


class DeviceProperty(SubgraphProperty):
    """Selects the nodes that the device's `query` supports."""

    options: ClassVar[Sequence[str] | None] = ()

    def __init__(self, device: Accelerator) -> None:
        super().__init__()
        self.device = device
        self.name = device.name
        self._support: Support = {}

    def pre_partition(self, graph: Graph, options: Any) -> None:
        """Queries the device once for the whole graph, in a child process if its own configuration sets ISOLATE."""
        # upward: a property asks the device as `query` does
        from partita.accelerators.isolation import in_its_place

        asked = in_its_place(self.device, {"ISOLATE": self.device.get_config("ISOLATE")})
        self._support = dict(asked.query(graph))

    def create_subgraph_selector(self) -> SubgraphSelector:
        """All nodes that the device supports."""
        return SupportedOps(self._support)


class SupportedOps(ContainOpSelector):
    """Selects the ops that a device supports; returns the device's reasons for the others."""

    def __init__(self, support: Support) -> None:
        super().__init__(lambda node: support.get(node.name) is True)
        self._support = support

    def why_not(self, node: Node) -> str | None:
        answer = self._support.get(node.name)
        return answer if isinstance(answer, str) else None
