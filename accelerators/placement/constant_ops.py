"""Ops with only constant inputs, folded while compiling unless their device takes them into a subgraph with other ops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from partita.accelerators.placement.placement import Placement
from partita.graph.build import is_made_call
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.passes import apply_pass
from partita.passes.fold_constants import ops_of_constants

LIMIT = 1 << 30
"""Maximum size in bytes of the outputs of a folded op."""

FACTOR = 8
"""Maximum ratio of the size of a folded op's outputs to that of its inputs, above a mebibyte. 4-bit weights, which take a
byte each in memory, may so become float64."""


def computable(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Those of the ops that numpy computes from constants alone."""
    ops = [node for node in ops_of_constants(graph) if node.name in names]
    if not ops:
        return frozenset()
    return _gone(_folded(graph, _with_what_they_read(ops)), {node.name for node in ops})


def with_constants_computed(graph: Graph, placement: Placement) -> Graph:
    """The placed graph with those ops folded that read only constants and that no other op of their device reads.
    Their names are added to `placement.computed`."""
    alone = _left_alone(graph, placement)
    if not alone:
        return graph
    folded = _folded(graph, alone)
    placement.computed |= _gone(folded, {node.name for node in alone})
    return apply_pass(folded, "EliminateDead", verify=False)


def _folded(graph: Graph, ops: Collection[Node]) -> Graph:
    only = {node.name for node in ops}
    return apply_pass(graph, "FoldConstants", verify=False, limit=LIMIT, factor=FACTOR, shapes=False, only=only)


def _gone(folded: Graph, names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if name not in folded or not folded[name].is_op)


def _left_alone(graph: Graph, placement: Placement) -> list[Node]:
    """The ops with only constant inputs that their device refuses, or that make no output and that it would not run together with
    an op that reads more, and the ops that these read. Linear."""
    ops = ops_of_constants(graph)
    if not ops:
        return []
    readers: dict[Node, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for entry in node.reads:
            if entry.node in ops:
                readers[entry.node].append(node)
    outputs, joined = {entry.node for entry in graph.outputs}, set[Node]()
    for node in reversed(ops):
        others = [other for other in readers[node] if other.affinity == node.affinity and not is_made_call(other)]
        stays = node in outputs or any(other in joined or other not in ops for other in others)
        if stays and not placement.is_refused(node.name):
            joined.add(node)
    return _with_what_they_read([node for node in ops if node not in joined])


def _with_what_they_read(ops: Sequence[Node]) -> list[Node]:
    """The ops and, transitively, the ops that they read."""
    reached = dict.fromkeys(ops)
    waiting = list(ops)
    while waiting:
        for entry in waiting.pop().reads:
            if entry.node.is_op and entry.node not in reached:
                reached[entry.node] = None
                waiting.append(entry.node)
    return list(reached)
