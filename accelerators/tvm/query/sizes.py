"""Finds the values of a graph with symbols that are known once its sizes are: shape arithmetic, and positions computed
from it.
"""

from __future__ import annotations

from accelerators.process.forking import Guard
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.ops import is_random
from passes.deciding import deciding
from passes.labour import ENDLESS

_MEASURING = frozenset(("Shape", "Size"))

def is_settled(node: Node, graph: Graph) -> bool:
    """Are all outputs of the node known once the sizes of the graph's inputs are?

    Then no kernel is made for the node.
    """
    return bool(node.output_names) and node[0] in _settled(graph)


def unsettled_input(node: Node, graph: Graph) -> NodeEntry | None:
    """An input that decides on sizes, and whose value is known only when the model runs."""
    settled = _settled(graph)
    return next((entry for entry in deciding(node) if entry not in settled), None)


SMALL = 200
"""A graph of fewer nodes may be an op taken apart: many of them are asked about between two questions about the model."""

_guard = Guard()
_last: dict[bool, tuple[Graph, frozenset[NodeEntry]]] = {}


def _settled(graph: Graph) -> frozenset[NodeEntry]:
    """The values; those of the small and of the large graph asked about last are remembered."""
    small = len(graph.nodes) < SMALL
    with _guard.lock:
        known = _last.get(small)
    if known is None or known[0] is not graph:
        known = graph, frozenset(_find_settled(graph))
        with _guard.lock:
            _last[small] = known
    return known[1]


def _find_settled(graph: Graph) -> set[NodeEntry]:
    """All values of a graph that are known once its sizes are. Linear."""
    settled: set[NodeEntry] = set()
    for node in graph.nodes:
        known = node.value is not None or node.op in _MEASURING
        if known or (_is_computed_beforehand(node) and all(e in settled for e in node.reads)):
            settled.update(node.outputs)
    return settled


def _is_computed_beforehand(node: Node) -> bool:
    """Does folding compute the op, once all that it reads is known?"""
    return node.is_op and not node.bodies and not is_random(node) and node.op not in ENDLESS
