"""How groups grow, on integers: nodes 0..n-1 in topological order, preds[v] the producers of v in input order.

`largest`, `seed` and `waves` take a device per node and a yes or no per edge; `walk` asks selectors in a fixed order.
"""
from partition.growth.largest import largest
from partition.growth.observer import WalkObserver
from partition.growth.walk import FilterError, Selector, walk

__all__ = ["FilterError", "Selector", "WalkObserver", "largest", "walk"]
