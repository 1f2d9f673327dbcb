"""Indices that a model computes or is given: looked at before a kernel goes where they say.

Each op that reads memory at indices gets a node before it that holds every index against the size of its dimension, and counts
negative ones from the end. An index outside is an error while the model runs; without this the kernel would read, or write,
whatever lies there. On a GPU, where a kernel cannot complain, the index is brought to the dimension's border."""

from __future__ import annotations

import math
from collections.abc import Mapping

from graph.build import CALL_DOMAIN
from graph.graph import Graph
from graph.node import Node, NodeEntry
from graph.rewrite import Rewriter, rewrite
from graph.types import TensorType

INDICES = "Indices"
"""The op that looks at indices; `sizes` are what they may count to: one for all, or one for each place of the last dimension."""

OPS: Mapping[str, int] = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "Scatter": 1, "ScatterND": 1,
    "MaxUnpool": 1, "RoiAlign": 2,
}  # fmt: skip
"""By op, which of its inputs holds indices."""


def is_indices(node: Node) -> bool:
    """Is it a node that `check_indices` put there?"""
    return node.op == INDICES and node.domain == CALL_DOMAIN


def check_indices(graph: Graph) -> Graph:
    """The graph with a node before each op that reads or writes at indices; constant indices were looked at before. Linear."""
    checked: dict[tuple[NodeEntry, tuple[int, ...]], NodeEntry] = {}

    def visit(node: Node, rewriter: Rewriter) -> None:
        made = rewriter.rebuilt(node)
        place = OPS.get(str(node.op)) if not node.domain else None
        sizes = _sizes(node) if place is not None else None
        if place is not None and sizes is not None and made.inputs[place] is not None:
            read = made.inputs[place]
            assert read is not None
            if read.node.value is None:
                if (read, sizes) not in checked:
                    checked[read, sizes] = _check(node, read, sizes)
                inputs = (*made.inputs[:place], checked[read, sizes], *made.inputs[place + 1 :])
                made = made.evolve(inputs=inputs)
        rewriter.keep(node, made)

    return rewrite(graph, visit)


def outside(node: Node) -> str | None:
    """The first constant index of an op that lies outside of its dimension, in words."""
    place = OPS.get(str(node.op)) if not node.domain else None
    if place is None or node.inputs[place] is None:
        return None
    read = node.inputs[place]
    sizes, value = _sizes(node), read.node.value if read is not None else None
    if sizes is None or value is None or not value.size:
        return None
    for number, size in zip(value.reshape(-1, len(sizes)).T, sizes):
        found = next((int(n) for n in (number.min(), number.max()) if not -size <= n < size), None)
        if found is not None:
            return f"index {found} is outside of a dimension of {size}"
    return None


def _sizes(node: Node) -> tuple[int, ...] | None:
    """What the node's indices may count to; None if that is unknown. Of the sizes only those that are counted need be known."""
    counted = node[0] if node.op == "MaxUnpool" else node.inputs[0]
    data, indices = (entry.type if entry is not None else None for entry in (counted, node.inputs[OPS[str(node.op)]]))
    if not (isinstance(data, TensorType) and isinstance(indices, TensorType)) or not data.shape or indices.shape is None:
        return None
    shape = data.shape
    if node.op == "MaxUnpool":
        return (math.prod(int(size or 0) for size in shape),) if data.is_static else None
    if str(node.op).endswith("ND"):
        first, count = int(node.attrs.get("batch_dims", 0)), indices.shape[-1] if indices.shape else None
        chosen = shape[first : first + count] if isinstance(count, int) else (None,)
    else:
        chosen = (shape[int(node.attrs.get("axis", 0)) % len(shape)],)
    found = tuple(size for size in chosen if isinstance(size, int))
    return found if len(found) == len(chosen) else None


def _check(node: Node, read: NodeEntry, sizes: tuple[int, ...]) -> NodeEntry:
    name = f"{node.name}_indices"
    made = Node(name, INDICES, (read,), {"sizes": list(sizes)}, (name,), (read.type,), CALL_DOMAIN, affinity=node.affinity)
    return made[0]
