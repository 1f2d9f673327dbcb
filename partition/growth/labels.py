"""Labels that rise where a path leaves a device: groups of equal labels cannot close a cycle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

Preds = Sequence[Sequence[int]]
"""preds[v]: the producers of node v in input order; nodes are numbered in topological order."""

Color = Sequence[int | None]
"""color[v]: the device (any number) of v, or None if v is never grouped."""

Edges = frozenset[tuple[int, int]]
"""Edges as (producer, consumer)."""

Accept = Callable[[int, int], bool]
"""accept(u, v): True if the edge u -> v may be inside a group."""


def refusals(preds: Preds, color: Color, accept: Accept | None, control: Edges = frozenset()) -> set[tuple[int, int]]:
    """The edges between nodes of one device that `accept` refuses; it is called once per edge that is no control dependency."""
    if accept is None:
        return set()
    edges = ((u, v) for v, producers in enumerate(preds) for u in dict.fromkeys(producers) if (u, v) not in control)
    return {(u, v) for u, v in edges if color[u] is not None and color[u] == color[v] and not accept(u, v)}


def earliest_labels(preds: Preds, color: Color, refused: Collection[tuple[int, int]]) -> list[int]:
    """The earliest split: the largest label of the producers, plus one for an edge that leaves a group.

    Edges from nodes that are never grouped raise nothing: only a path that leaves a group can return to
    one, so graph inputs and constants separate nothing. Linear."""
    label, risen = [0] * len(preds), [0] * len(preds)
    for v, producers in enumerate(preds):
        mine, highest = color[v], 0
        for u in producers:
            reached = label[u] if color[u] == mine and not (refused and (u, v) in refused) else risen[u]
            if reached > highest:
                highest = reached
        label[v] = highest
        risen[v] = highest if mine is None else highest + 1
    return label


def latest_labels(preds: Preds, color: Color, refused: Collection[tuple[int, int]]) -> list[int]:
    """The latest split: like the earliest, from the outputs upward, where edges into a group raise the label. Linear."""
    label = [0] * len(preds)
    for v in range(len(preds) - 1, -1, -1):
        mine, low = color[v], label[v]
        risen = low if mine is None else low + 1
        for u in preds[v]:
            reached = low if color[u] == mine and not (refused and (u, v) in refused) else risen
            if label[u] < reached:
                label[u] = reached
    return label
