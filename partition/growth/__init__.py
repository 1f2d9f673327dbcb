"""Growth of groups, on integers: nodes 0..n-1 in topological order, preds[v] the producers of v in input order.

`largest`, `seed` and `waves` take a color (the device) per node and a boolean per edge; `walk` calls a selector for each edge.
All keep the whole partition acyclic, including groups that are already fixed."""

from collections.abc import Callable
from typing import Any

import attrs

from partita.partition.growth.contract import join_bonded
from partita.partition.growth.largest import largest
from partita.partition.growth.observer import BothObservers, SeedObserver, WalkObserver
from partita.partition.growth.seed import Repair, seed
from partita.partition.growth.walk import FilterError, Selector, walk
from partita.partition.growth.waves import waves


@attrs.frozen(slots=True)
class Growing:
    """A way of growing groups."""

    grow: Callable[..., Any]
    """The function, called as `largest` is; `walk` takes a selector in place of colors, and `seed` returns its repairs too."""
    connected: bool = True
    """True if each group is connected by accepted edges."""


GROWTHS = {"walk": Growing(walk), "largest": Growing(largest), "seed": Growing(seed), "waves": Growing(waves, connected=False)}
"""The growths by name, as in the option `growth`. A new one is a file in this folder and a row here."""

__all__ = [
    "GROWTHS",
    "BothObservers",
    "FilterError",
    "Repair",
    "SeedObserver",
    "Selector",
    "WalkObserver",
    "join_bonded",
    "largest",
    "seed",
    "walk",
    "waves",
]
