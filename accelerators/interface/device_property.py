"""The property of a device: its groups are the ops that the device supports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from partita.accelerators.interface.query import Support
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.property import AffinityProperty, SubgraphProperty
from partita.partition.reasons import Outside
from partita.partition.selector import ContainOpSelector, SubgraphSelector

if TYPE_CHECKING:
    from partita.accelerators.interface.accelerator import Accelerator


def growth_on(labels: Collection[str]) -> str:
    """The growth of subgraphs on these devices: the fewest calls if there is a single one."""
    return "waves" if len(labels) == 1 else "largest"


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
        from partita.accelerators.interface.isolation import in_its_place  # upward: a property asks the device as `query` does

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


class DeviceGroups(AffinityProperty):
    """Groups nodes of equal affinity; each device's property creates its calls, or rejects the nodes."""

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        """Calls the `pre_partition` of each device's own property; the default one is skipped, since its query is done."""
        for own in self.properties.values():
            if type(own).pre_partition is not DeviceProperty.pre_partition:
                own.pre_partition(graph, options)

    def post_partition(self, graph: Graph) -> None:
        """Calls the `post_partition` of each device's own property."""
        for own in self.properties.values():
            own.post_partition(graph)


def given_back_because(outside: Outside, own: SubgraphProperty | None) -> str:
    """The reason why a device's property, or a user option (`own` is None), rejected an op that the device supports."""
    text = outside.text.removesuffix(f", by {DeviceGroups.name!r}")
    if text.startswith(f"{outside.node!r} was "):
        text = f"it was {text.removeprefix(f'{outside.node!r} was ')}"
    return text if own is None else f"its property {own.name!r} gave it back: {text}"
