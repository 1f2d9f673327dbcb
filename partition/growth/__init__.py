"""How groups grow: four algorithms on integers."""
from partition.growth.largest import largest

__all__ = ["largest"]
