"""Fixed groups count as one node each: they are contracted before growth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from partita.graph.order import lowest_first
from partita.partition.growth.labels import Accept, Color, Preds

Groups = list[list[int]]


@attrs.frozen
class Contracted:
    """A graph whose fixed groups are one node each, named by their first member."""

    owner: list[int]
    """The name of each node's group; for a node outside all fixed groups, itself."""
    order: list[int]
    """The names in a topological order; among the ready ones the smallest comes first."""
    preds: list[list[int]]
    """The producers of each name, by name, without duplicates; empty for other members."""
    succ: list[list[int]]
    """The consumers, likewise."""


def contract_fixed(preds: Preds, fixed: Sequence[Sequence[int]]) -> Contracted:
    """The graph with each fixed group as one node. Raises ValueError if the fixed groups overlap or close a cycle.
    O((nodes + edges) log nodes)."""
    count = len(preds)
    owner = list(range(count))
    for group in fixed:
        name = min(group)
        for v in group:
            if owner[v] != v:
                raise ValueError(f"node {v} is in two fixed groups")
            owner[v] = name
    inputs: list[list[int]] = [[] for _ in preds]
    for v, producers in enumerate(preds):
        inputs[owner[v]] += [owner[u] for u in producers]
    succ: list[list[int]] = [[] for _ in preds]
    waiting = [0] * count
    for v in range(count):
        inputs[v] = [u for u in dict.fromkeys(inputs[v]) if u != v]
        waiting[v] = len(inputs[v])
        for u in inputs[v]:
            succ[u].append(v)
    order = lowest_first([v for v in range(count) if owner[v] == v and not waiting[v]], waiting, succ)
    if len(order) != sum(v == name for v, name in enumerate(owner)):
        raise ValueError("the fixed groups depend on each other: together they close a cycle")
    return Contracted(owner, order, inputs, succ)


def renumbered(
    grow: Callable[[Preds, Color, Accept | None], Groups],
    preds: Preds,
    color: Color,
    accept: Accept | None,
    fixed: Sequence[Sequence[int]],
) -> Groups:
    """Calls `grow` on the contracted graph, numbered in topological order, and translates its result back."""
    contracted = contract_fixed(preds, fixed)
    order = contracted.order
    number = [0] * len(preds)
    for i, name in enumerate(order):
        number[name] = i
    members = {v for group in fixed for v in group}
    groups = grow(
        [[number[u] for u in contracted.preds[name]] for name in order],
        [None if name in members else color[name] for name in order],
        None if accept is None else lambda u, v: accept(order[u], order[v]),
    )
    return by_size([sorted(order[x] for x in group) for group in groups])


def by_size(groups: Iterable[list[int]]) -> Groups:
    """Sorts groups by descending size, then by first node."""
    return sorted(groups, key=lambda group: (-len(group), group[0]))
