"""What one compilation is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.settings import Config
from partita.accelerators.placement.rules import Forbid, Pin
from partita.graph.graph import Graph


@attrs.frozen(slots=True, eq=False)
class Task:
    """A typed graph, and the devices that are to run it together."""

    graph: Graph
    """The graph."""
    devices: Sequence[Device]
    """The devices, the preferred ones first."""
    settings: Config
    """The configuration of each device."""
    pin: Pin | None = None
    """The nodes that are forced onto a device."""
    forbid: Forbid | None = None
    """The ops and nodes that a device must not run."""
    strict: bool = False
    """Is it an error if a device cannot compile what it took?"""
    optimized_away: Mapping[str, str] = attrs.field(factory=dict)
    """The nodes that the caller's graph had before it was optimized, each with the reason why this one has not."""
    min_subgraph_size: int | None = None
    """Subgraphs of fewer ops go to the next device; None: as each device's property says."""
