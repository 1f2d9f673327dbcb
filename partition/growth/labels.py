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

SHORT = 8
"""Maximum length of a list that is searched as fast as a set."""


def accepted_inputs(preds: Preds, color: Color, accept: Accept | None) -> list[list[int]]:
    """Per node the producers that may share a group with it. Calls `accept` once per edge."""
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

    Edges from nodes that are never grouped raise nothing: only a path that leaves a group can return to
    one, so graph inputs and constants separate nothing. Linear."""
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
    """The latest split: like the earliest, from the outputs upward, where edges into a group raise the label. Linear."""
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
