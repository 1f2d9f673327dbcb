"""The groups of all devices at once, each device's own property obeyed: its hooks, its limits, its pre- and post-partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.interface.device_property import DeviceProperty
from partita.graph.graph import Graph
from partita.partition import AffinityProperty, SubgraphProperty
from partita.partition.plans import Outside


class DeviceGroups(AffinityProperty):
    """Nodes of equal affinity go together; each device's property makes its calls, or gives the nodes back."""

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        """The selector of each device; what the device supports was asked before."""
        for own in self.properties.values():
            if type(own).pre_partition is not DeviceProperty.pre_partition:
                own.pre_partition(graph, options)

    def post_partition(self, graph: Graph) -> None:
        """Call the `post_partition` of each device's own property."""
        for own in self.properties.values():
            own.post_partition(graph)


def given_back_because(outside: Outside, own: SubgraphProperty | None) -> str:
    """Why a device's property, or an option of the user's (`own` is None), left an op that the device supports."""
    text = outside.text.removesuffix(f", by {DeviceGroups.name!r}")
    if text.startswith(f"{outside.node!r} was "):
        text = f"it was {text.removeprefix(f'{outside.node!r} was ')}"
    return text if own is None else f"its property {own.name!r} gave it back: {text}"
