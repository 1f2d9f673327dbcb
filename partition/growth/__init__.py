"""Growth of groups, on integers: nodes 0..n-1 in topological order, preds[v] the producers of v in input order.

`largest`, `seed` and `waves` take a device per node and a yes or no per edge; `walk` asks a selector edge by
edge. All keep the whole partition acyclic, including groups that are already fixed.
"""

from partita.partition.growth.contract import join_bonded
from partita.partition.growth.largest import largest
from partita.partition.growth.observer import BothObservers, SeedObserver, WalkObserver
from partita.partition.growth.seed import Repair, seed
from partita.partition.growth.walk import FilterError, Selector, walk
from partita.partition.growth.waves import waves

__all__ = [
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
