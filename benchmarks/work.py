"""The work of a set of nodes: how much they compute, and how many bytes they must move at least."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType, numpy_dtype


def flops(nodes: Collection[Node]) -> int:
    """Multiplications and additions of products and convolutions; one for each element that any other op makes."""
    return sum(map(_of_node, nodes))


def _of_node(node: Node) -> int:
    size = sum(_size(entry) for entry in node.outputs)
    if node.op in ("Conv", "ConvTranspose"):
        data, weight = (_shape(entry) for entry in node.inputs[:2])
        per_element = prod(weight[1:])
        return 2 * per_element * (size if node.op == "Conv" else prod(data))
    if node.op in ("MatMul", "Gemm"):
        inner = _shape(node.inputs[0])
        return 2 * size * (inner[0] if node.attrs.get("transA") else inner[-1]) if inner else size
    return size


def traffic(graph: Graph, nodes: Collection[Node]) -> int:
    """Bytes of the values that these nodes read from outside, weights too, and of those that others read of them."""
    inside = set(nodes)
    outputs = set(graph.outputs)
    read = {entry for node in inside for entry in node.reads if entry.node not in inside}
    index = graph.index
    written = {
        entry
        for node in inside
        for entry in node.outputs
        if entry in outputs or any(index.nodes[i] not in inside for i in index.consumers[index.number[node]])
    }
    return sum(map(_bytes, read | written))


def _shape(entry: NodeEntry | None) -> tuple[int, ...]:
    kind = entry.type if entry is not None else None
    if not isinstance(kind, TensorType) or kind.shape is None or not all(isinstance(d, int) for d in kind.shape):
        return ()
    return tuple(int(d) for d in kind.shape if isinstance(d, int))


def _size(entry: NodeEntry) -> int:
    return prod(_shape(entry))


def _bytes(entry: NodeEntry) -> int:
    kind = entry.type
    return _size(entry) * numpy_dtype(kind.dtype).itemsize if isinstance(kind, TensorType) and kind.dtype != "string" else 0
