"""A graph with smaller sizes, and its inputs cut accordingly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np

from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.infer import infer


def smaller_arrays(graph: Graph, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs with one size reduced to one, or to half, in all inputs that have this size at this axis."""
    sizes = {
        (axis, size)
        for node in graph.inputs if isinstance(given[node.name], np.ndarray)
        for axis, size in enumerate(given[node.name].shape) if size > 1
    }
    for axis, size in sorted(sizes, key=lambda one: (-one[1], one[0])):
        for smaller in dict.fromkeys((1, size // 2)):
            yield {name: _cut(array, axis, size, smaller) for name, array in given.items()}


def _cut(array: Any, axis: int, size: int, smaller: int) -> Any:
    fits = isinstance(array, np.ndarray) and array.ndim > axis and array.shape[axis] == size
    return np.ascontiguousarray(np.take(array, range(smaller), axis)) if fits else array


def with_sizes(graph: Graph, arrays: Mapping[str, Any]) -> Graph | None:
    """The graph with the arrays' sizes as input sizes; None if its ops do not accept them."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        kind = node.output_types[0] if node.is_variable else None
        if isinstance(kind, TensorType) and isinstance(arrays[node.name], np.ndarray):
            rewriter.keep(node, node.evolve(output_types=(attrs.evolve(kind, shape=arrays[node.name].shape),)))
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_names)))
        else:
            rewriter.keep(node)

    try:
        return infer(rewrite(graph, visit), strict=True)
    except PartitaError:
        return None
