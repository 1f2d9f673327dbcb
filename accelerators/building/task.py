"""The request for one compilation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from partita.accelerators.interface.device_list import Device
from partita.accelerators.interface.settings import Config
from partita.accelerators.placement.rules import Forbid, Pin
from partita.graph.graph import Graph


@attrs.frozen(slots=True, eq=False)
class CompileTask:
    """A typed graph, its devices and the options."""

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
    """True if it is an error when a device cannot compile what it accepted."""
    optimized_away: Mapping[str, str] = attrs.field(factory=dict)
    """The nodes of the caller's graph that optimization removed, each with the reason."""
    min_subgraph_size: int | None = None
    """Subgraphs of fewer ops go to the next device; None: the devices' properties decide."""
    max_nodes: int | None = None
    """Subgraphs of more ops are cut into several; None: the devices' properties decide."""
    cuts: tuple[str, ...] = ()
    """The ops before which subgraphs are cut."""
