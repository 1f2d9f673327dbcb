"""Helpers for constants that several passes share."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry


def as_constant(entry: NodeEntry | None) -> np.ndarray[Any, Any] | None:
    """The array of a constant; None for other values."""
    return None if entry is None else entry.node.value


def ints(node: Node, i: int, attribute: str) -> list[int] | None:
    """Integers that are an attribute in old opsets and input `i` in new ones; None if they are absent or not
    constant."""
    if attribute in node.attrs:
        return list(node.attrs[attribute])
    value = as_constant(node.inputs[i]) if i < len(node.inputs) else None
    return None if value is None else [int(v) for v in value.reshape(-1)]


class Namer:
    """Makes names for new nodes and values that are unused in the graph."""

    def __init__(self, g: Graph) -> None:
        self._taken = _all_names(g)

    def __call__(self, stem: str) -> str:
        return unique(stem, self._taken)


def made_constant(array: np.ndarray[Any, Any], name: str, like: Node) -> Node:
    """A constant with the place and affinity of a node."""
    return constant(array, name=name).evolve(place=like.place, affinity=like.affinity)


def _all_names(g: Graph) -> set[str]:
    """The names of nodes and values, including those in bodies (those of nodes are unique over all of them)."""
    return {
        name for graph in graphs_in(g) for node in graph.nodes for name in (node.name, *node.output_names)
    }
