"""What several passes ask of constants, and how they make new ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.names import unique
from partita.graph.nested import graphs_in
from partita.graph.node import Node, NodeEntry


def as_constant(entry: NodeEntry | None) -> np.ndarray[Any, Any] | None:
    """The array, if the value is a constant."""
    return None if entry is None else entry.node.value


def ints(node: Node, i: int, attribute: str) -> list[int] | None:
    """The integers that old opsets give as an attribute and new ones as input `i`; None if they are absent or not
    constant.
    """
    if attribute in node.attrs:
        return list(node.attrs[attribute])
    value = as_constant(node.inputs[i]) if i < len(node.inputs) else None
    return None if value is None else [int(v) for v in value.reshape(-1)]


class Namer:
    """Names for new nodes and their values that nothing in the graph bears yet."""

    def __init__(self, g: Graph) -> None:
        self._taken = _all_names(g)

    def __call__(self, stem: str) -> str:
        return unique(stem, self._taken)


def made_constant(array: np.ndarray[Any, Any], name: str, like: Node) -> Node:
    """A constant with the place of a node in the order, and with its affinity."""
    return constant(array, name=name).evolve(place=like.place, affinity=like.affinity)


def _all_names(g: Graph) -> set[str]:
    """The names of nodes and values, in the bodies too (those of nodes are unique over all of them)."""
    return {
        name for graph in graphs_in(g) for node in graph.nodes for name in (node.name, *node.output_names)
    }
