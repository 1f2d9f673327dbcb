"""Reductions that are given no axes, and asked to take that for none."""

from __future__ import annotations

from partita.graph.node import Node


def reduces_nothing(node: Node) -> bool:
    """Does a reduction name no axes, and take that for none?"""
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    empty = axes is None or (axes.node.value is not None and not axes.node.value.size)
    return bool(node.attrs.get("noop_with_empty_axes", 0)) and empty


UNREDUCED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")
"""Reductions that do something to each number even where nothing is reduced."""
