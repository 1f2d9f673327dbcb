"""Labels that rise where a path leaves a device: equal labels cannot close a cycle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

Preds = Sequence[Sequence[int]]
"""preds[v]: the producers of node v in input order; nodes are numbered in topological order."""

Color = Sequence[int | None]
"""color[v]: the device (any number) that v belongs to, or None if v is never grouped."""

Edges = frozenset[tuple[int, int]]
"""Edges as (producer, consumer)."""

Accept = Callable[[int, int], bool]
"""accept(u, v): may the edge u -> v lie inside a group?"""

SHORT = 8
"""Up to this length a list is searched as fast as a set."""


def accepted_inputs(preds: Preds, color: Color, accept: Accept | None) -> list[list[int]]:
    """For each node, the producers that may share a group with it. Asks `accept` once for each edge."""
    accepted: list[list[int]] = []
    for v, producers in enumerate(preds):
        c = color[v]
        same = []
        if c is not None:
            for u in producers:
                if color[u] == c:
                    same.append(u)
            if accept is not None:
                same = [u for u in dict.fromkeys(same) if accept(u, v)]
        accepted.append(same)
    return accepted


def earliest_labels(preds: Preds, color: Color, accepted: Sequence[Sequence[int]]) -> list[int]:
    """The earliest split: the largest label of the producers, plus one for an edge that leaves a group.

    Edges out of nodes that are never grouped raise nothing: only what comes out of a group can come back into
    one, so graph inputs and constants hold nothing apart. Linear.
    """
    label = [0] * len(preds)
    for v, producers in enumerate(preds):
        highest = 0
        inside: Collection[int] = accepted[v]
        if len(inside) == len(producers):
            for u in inside:
                if label[u] > highest:
                    highest = label[u]
        else:
            if len(inside) > SHORT:
                inside = set(inside)
            for u in producers:
                rise = label[u] + (color[u] is not None and u not in inside)
                if rise > highest:
                    highest = rise
        label[v] = highest
    return label


def latest_labels(preds: Preds, color: Color, accepted: Sequence[Sequence[int]]) -> list[int]:
    """The latest split: the same from the outputs upward, where edges into a group raise the label. Linear."""
    label = [0] * len(preds)
    for v in range(len(preds) - 1, -1, -1):
        mine, producers, inside = label[v], preds[v], accepted[v]
        for u in inside:
            if label[u] < mine:
                label[u] = mine
        if len(inside) < len(producers):
            risen = mine if color[v] is None else mine + 1
            known: Collection[int] = set(inside) if len(inside) > SHORT else inside
            for u in producers:
                if label[u] < risen and u not in known:
                    label[u] = risen
    return label
