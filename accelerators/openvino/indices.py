"""Indices that openvino is given: held against their dimensions before it runs, for it makes zeros of one outside, or reads and
writes what lies there.

What is computed within a subgraph nobody can look at from here: of such indices openvino gets none, but for those of Gather,
where it makes zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from accelerators.errors import RunError
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.types import TensorType

INDEXED = frozenset("Gather GatherElements GatherND Scatter ScatterElements ScatterND".split())
"""Ops whose second input holds indices into the first."""


def unseen(node: Node) -> str | None:
    """Why openvino had better not get the op: its indices are computed, or a constant one lies outside."""
    if node.op not in INDEXED or node.domain or node.inputs[1] is None or node.inputs[0] is None:
        return None
    data, read = node.inputs[0].type, node.inputs[1].node
    if read.value is not None:
        sizes = _sizes(node, data.shape) if isinstance(data, TensorType) and data.is_static else None
        return None if sizes is None else _outside(read.value, sizes)
    if node.op == "Gather" or read.is_variable:
        return None
    return f"openvino reads or writes outside where {node.op}'s indices are wrong, and these are computed"


@attrs.frozen(slots=True)
class _Given:
    """One input that holds indices."""

    node: Node
    place: int
    """Which of the graph's inputs it is."""
    data: NodeEntry
    """What is read or written at the indices."""


class GivenIndices:
    """The inputs of a graph that its ops take for indices."""

    def __init__(self, graph: Graph) -> None:
        self._places: Mapping[NodeEntry, int] = {node[0]: i for i, node in enumerate(graph.inputs)}
        self._given = [
            _Given(node, self._places[node.inputs[1]], node.inputs[0])
            for node in graph.nodes
            if node.op in INDEXED and not node.domain and node.inputs[0] is not None and node.inputs[1] in self._places
        ]

    def check(self, inputs: Sequence[Any]) -> None:
        """RunError if one lies outside."""
        for given in self._given:
            sizes = _sizes(given.node, self._shape(given.data, inputs))
            wrong = None if sizes is None else _outside(np.asarray(inputs[given.place]), sizes)
            if wrong is not None:
                raise RunError(wrong, where=f"device 'openvino', {given.node.name!r} ({given.node.op})")

    def _shape(self, data: NodeEntry, inputs: Sequence[Any]) -> Sequence[Any] | None:
        if data in self._places:
            return np.shape(inputs[self._places[data]])
        return data.type.shape if isinstance(data.type, TensorType) else None


def _sizes(node: Node, shape: Sequence[Any] | None) -> tuple[int, ...] | None:
    """What the indices may count to; None where that is not known."""
    if not shape:
        return None
    if str(node.op).endswith("ND"):
        read = node.inputs[1].type if node.inputs[1] is not None else None
        count = read.shape[-1] if isinstance(read, TensorType) and read.shape else None
        first = int(node.attrs.get("batch_dims", 0))
        wanted = tuple(shape[first : first + count]) if isinstance(count, int) else (None,)
    else:
        wanted = (shape[int(node.attrs.get("axis", 0)) % len(shape)],)
    return wanted if all(isinstance(size, int) for size in wanted) else None


def _outside(indices: np.ndarray[Any, Any], sizes: tuple[int, ...]) -> str | None:
    """The first index outside, in words."""
    if not indices.size or not sizes:
        return None
    for column, size in zip(indices.reshape(-1, len(sizes)).T, sizes, strict=True):
        wrong = next((int(n) for n in (column.min(), column.max()) if not -size <= n < size), None)
        if wrong is not None:
            return f"index {wrong} is outside of a dimension of {size}"
    return None
