"""Groups the ops of all devices at once by each device's own property: its hooks, its limits, its pre- and post-partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.accelerators.interface.device_property import DeviceProperty
from partita.graph.graph import Graph
from partita.partition import AffinityProperty, SubgraphProperty
from partita.partition.plans import Outside


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
