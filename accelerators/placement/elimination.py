"""Minimises a sum of costs over discrete variables exactly, by eliminating one variable after the other.

The cost of a solution grows exponentially with the width of the elimination order, which is small for neural networks: 2 to 4
for chains, residual networks and transformers."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partita.graph.types import Array

LARGEST = 1 << 22
"""Maximum number of elements of all tables of an elimination, per variable of a graph with few variables."""

PER_VARIABLE = 64
"""Maximum mean number of elements of a table of a graph with many variables."""


class Elimination:
    """An elimination order for pairwise costs, ready to be solved for any costs of single variables. Near-linear in the number of
    variables for a bounded width."""

    def __init__(
        self, sizes: Sequence[int], pairs: Mapping[tuple[int, int], Array], order: Sequence[tuple[int, list[int]]], elements: int
    ) -> None:
        self.sizes = sizes
        """The number of values of each variable."""
        self.order = order
        """The variables in the order of their elimination, each with those that its message depends on, in that order too."""
        self.elements = elements
        """The number of elements of all tables, for one row of a batch."""
        position = {variable: i for i, (variable, _) in enumerate(order)}
        self._factors: list[list[tuple[tuple[int, ...], Array]]] = [[] for _ in sizes]
        """By variable: the scopes and tables of the pairwise costs in which it is eliminated first."""
        for (first, second), table in pairs.items():
            if position[first] > position[second]:
                first, second, table = second, first, table.T
            self._factors[first].append(((second,), table[np.newaxis]))

    def solve(self, unary: Sequence[Array]) -> tuple[Array, Array]:
        """The least costs, and a best value of each variable, for a batch of costs of single variables: `unary` has an array of
        the shape (batch, number of values) for each."""
        batch = len(unary[0]) if unary else 1
        total = np.zeros(batch)
        waiting: list[list[tuple[tuple[int, ...], Array]]] = [list(factors) for factors in self._factors]
        choices: list[Array] = []
        for variable, scope in self.order:
            table: Array = unary[variable]
            if scope:
                table = table.reshape(table.shape + (1,) * len(scope))
                for factor_scope, factor in waiting[variable]:
                    table = table + _broadcast(factor, factor_scope, scope)
                waiting[variable] = []
                choice = table.argmin(axis=1)
                message = table.min(axis=1)
                waiting[scope[0]].append(((*scope[1:],), message))
            else:
                for _, factor in waiting[variable]:
                    table = table + factor
                choice = table.argmin(axis=1)
                total += table.min(axis=1)
            choices.append(choice)
        rows = np.arange(batch)
        values = [rows] * len(self.sizes)
        for (variable, scope), choice in zip(reversed(self.order), reversed(choices)):
            values[variable] = choice[(rows, *[values[other] for other in scope])]
        return total, np.array(values, np.intp).reshape(-1, batch).T


def _broadcast(factor: Array, factor_scope: tuple[int, ...], scope: Sequence[int]) -> Array:
    """The table of a factor with an axis of size 1 for each variable that it does not depend on."""
    if len(factor_scope) == len(scope):
        return factor
    shape = [*factor.shape[:2]]
    sizes = iter(factor.shape[2:])
    among = set(factor_scope)
    shape += [next(sizes) if other in among else 1 for other in scope]
    return factor.reshape(shape)


def elimination(sizes: Sequence[int], pairs: Mapping[tuple[int, int], Array]) -> Elimination | None:
    """An elimination in order of increasing degree; None if its tables would be too large."""
    neighbours: list[set[int]] = [set() for _ in sizes]
    for first, second in pairs:
        neighbours[first].add(second)
        neighbours[second].add(first)
    queue = [(len(others), variable) for variable, others in enumerate(neighbours)]
    heapq.heapify(queue)
    done = [False] * len(sizes)
    order: list[tuple[int, set[int]]] = []
    elements, most = 0, LARGEST + PER_VARIABLE * len(sizes)
    while queue:
        degree, variable = heapq.heappop(queue)
        around = neighbours[variable]
        if done[variable] or degree != len(around):
            continue
        done[variable] = True
        size = sizes[variable]
        for other in around:
            size *= sizes[other]
        elements += size
        if elements > most or len(around) > MOST_AXES:
            return None
        for other in around:
            own = neighbours[other]
            before = len(own)
            own |= around
            own -= {other, variable}
            if len(own) != before:
                heapq.heappush(queue, (len(own), other))
        order.append((variable, around))
    position = [0] * len(sizes)
    for i, (variable, _) in enumerate(order):
        position[variable] = i
    ordered = [
        (variable, sorted(around, key=position.__getitem__) if len(around) > 1 else list(around)) for variable, around in order
    ]
    return Elimination(sizes, pairs, ordered, elements)


MOST_AXES = 24
"""Maximum number of variables that a message depends on; numpy has at most 32 axes (64 since 2.0)."""


def summed(pairs: dict[tuple[int, int], Any], first: int, second: int, table: Array) -> None:
    """Adds a table of costs of two variables to those that there are."""
    key, table = ((first, second), table) if first < second else ((second, first), table.T)
    pairs[key] = pairs[key] + table if key in pairs else table
