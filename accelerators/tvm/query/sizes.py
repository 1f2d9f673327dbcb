"""Values of a graph with symbols that are known once its input sizes are: shape arithmetic, and positions computed from it."""

from __future__ import annotations

import weakref
from functools import partial

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.passes.infer.shape_operands import deciding, is_settled_by


def is_settled(node: Node, graph: Graph) -> bool:
    """True if all outputs of the node are known once the sizes of the graph's inputs are.

    Then no kernel is made for the node.
    """
    return bool(node.output_names) and node[0] in _settled(graph)


def unsettled_input(node: Node, graph: Graph) -> NodeEntry | None:
    """An input that determines sizes and whose value is known only at run time."""
    settled = _settled(graph)
    return next((entry for entry in deciding(node) if entry not in settled), None)


SMALL = 200
"""Graphs with fewer nodes may be decomposed ops, many of which are queried between two queries of the model."""

Settled = tuple["weakref.ref[Graph]", frozenset[NodeEntry]]
"""A graph and its values that are known once its sizes are."""

_last: dict[bool, Settled] = {}
"""The last small and the last large graph, with their known values, while they live: the values hold weights."""


def _settled(graph: Graph) -> frozenset[NodeEntry]:
    """Known values, cached for the last small and the last large graph."""
    small = len(graph.nodes) < SMALL
    known = _last.get(small)
    if known is not None and known[0]() is graph:
        return known[1]
    settled = frozenset(_find_settled(graph))
    _last[small] = weakref.ref(graph, partial(_forget, _last, small)), settled
    return settled


def _forget(last: dict[bool, Settled], small: bool, gone: weakref.ref[Graph]) -> None:
    """Drop the cached values of a graph that was freed. As a finalizer it may run at any time in any thread, so it takes no lock;
    at the end of the process the module's globals are gone, so it reads none."""
    known = last.get(small)
    if known is not None and known[0] is gone:
        last.pop(small, None)


def _find_settled(graph: Graph) -> set[NodeEntry]:
    """All values of a graph that are known once its sizes are. Linear."""
    settled: set[NodeEntry] = set()
    for node in graph.nodes:
        if is_settled_by(node, settled):
            settled.update(node.outputs)
    return settled
