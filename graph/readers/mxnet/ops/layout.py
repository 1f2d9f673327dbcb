"""Channels-last layouts: ONNX is channels-first, so transposes are put around the op."""

from __future__ import annotations

from partita.graph.node import NodeEntry
from partita.graph.readers.mxnet.conversion import Conversion

__all__ = ["channels_first", "channels_last", "is_channels_last", "moved"]

LAYOUTS = ("NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC")
"""Batch, channels, depth, height, width."""


def is_channels_last(c: Conversion, rank: int) -> bool:
    """True if the parameter `layout` puts the channels last; it must fit the rank."""
    if "layout" not in c.params:
        return False
    layout = c.params.choice("layout", LAYOUTS)
    if len(layout) != rank:
        c.params.fail("layout", f"a layout of {rank} dimensions")
    return layout.endswith("C")


def channels_first(c: Conversion, what: str, entry: NodeEntry, rank: int) -> NodeEntry:
    """The value with its last axis moved to position 1."""
    return c.transposed(entry, [0, rank - 1, *range(1, rank - 1)], name=what)


def channels_last(c: Conversion, entry: NodeEntry, rank: int) -> NodeEntry:
    """The MXNet node's value, with axis 1 moved to the end."""
    return c.result("Transpose", entry, perm=[0, *range(2, rank), 1])


def moved(rank: int, source: int, target: int) -> list[int]:
    """The permutation that moves one axis from `source` to `target` and keeps the order of the others."""
    order = [axis for axis in range(rank) if axis != source]
    return [*order[:target], source, *order[target:]]
