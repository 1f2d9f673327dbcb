"""Restores the order that nodes had when the file was written."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import Node


def move(nodes: Sequence[Node], order: Sequence[int]) -> None:
    """Moves the first nodes to the positions `order`; the others fill the remaining positions in order.

    Places may be changed since the nodes are not shared yet. An order that does not fit is ignored: another program
    changed the file, and nothing depends on it."""
    positions = set(order)
    if len(positions) < len(order) or len(order) > len(nodes) or not all(0 <= p < len(nodes) for p in order):
        return
    places = sorted(node.place for node in nodes)
    left = [place for position, place in enumerate(places) if position not in positions]
    for node, place in zip(nodes, [*(places[p] for p in order), *left], strict=True):
        object.__setattr__(node, "place", place)
