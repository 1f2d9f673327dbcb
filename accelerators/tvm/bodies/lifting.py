"""Weights of second-level calls, taken out of the graph so that each can be freed once it is packed."""

from __future__ import annotations

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body, element_of, make_body
from partita.accelerators.tvm.bodies.stored_types import as_stored
from partita.graph.build import variable
from partita.graph.graph import Graph
from partita.graph.mapped_arrays import has_own_memory
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite

LARGE = 1 << 16
"""Minimum size in bytes of the constants that are taken out of a call's body."""


@attrs.frozen(slots=True, eq=False)
class Lifted:
    """A graph of calls without their weights."""

    graph: Graph
    """The graph; in its calls' bodies variables replace the large constants."""
    bodies: dict[Node, Body]
    """Body of each call."""
    weights: dict[Node, list[np.ndarray]]
    """Weights of each body. Nothing else here refers to them: replacing one frees it."""


def lift_weights(fused: Graph) -> Lifted:
    """The graph that `fuse` made, its bodies, and the weights separately. Linear.

    The report of the partition is dropped, because it refers to the original graph."""
    bodies: dict[Node, Body] = {}
    weights: dict[Node, list[np.ndarray]] = {}

    def visit(node: Node, rewriter: Rewriter) -> None:
        if node.subgraph is None:
            rewriter.keep(node)
            return
        body = make_body(node.subgraph)
        call = rewriter.keep(node, rewriter.rebuilt(node, subgraph=_without_large(node.subgraph)))
        bodies[call], weights[call] = attrs.evolve(body, weights=()), list(body.weights)

    return Lifted(rewrite(fused.evolve(attrs={}), visit), bodies, weights)


def store_own_weights(lifted: Lifted) -> None:
    """Convert the weights that the compiler made to the types in which their kernels store them, and free each original.
    Linear."""
    readers: dict[tuple[int, str], list[tuple[list[np.ndarray], int]]] = {}
    for node, body in lifted.bodies.items():
        weights = lifted.weights[node]
        for position, read in enumerate(body.graph.inputs[body.values :]):
            if has_own_memory(weights[position]):
                readers.setdefault((id(weights[position]), element_of(read[0])), []).append((weights, position))
    for (_, dtype), equal in readers.items():
        first, position = equal[0]
        stored = as_stored(first[position], dtype)
        for weights, position in equal:
            weights[position] = stored


def _without_large(graph: Graph) -> Graph:
    """The body with variables in place of its large constants."""
    rewriter, lifted = Rewriter(graph), list[Node]()
    for node in graph.nodes:
        if node.value is not None and node.value.nbytes >= LARGE:
            lifted.append(rewriter.keep(node, variable(node.name, type=node.output_types[0])))
        else:
            rewriter.keep(node)
    return rewriter.finish(inputs=[*graph.inputs, *lifted])
