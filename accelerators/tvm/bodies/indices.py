"""Bounds checks for indices that a model computes or is given.

Each op that reads memory at indices gets a node before it that compares every index with the size of its dimension, and wraps
negative ones where the op does. An index out of bounds is an error while the model runs; without the check the kernel would read
or write arbitrary memory. On a GPU, where a kernel cannot raise an error, the index is clamped to the dimension, and a second
node computes a flag for out-of-bounds indices, which the host reads with the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import shape_of
from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.graph.build import CALL_DOMAIN
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.infer.shape_operands import INDEXED
from partita.passes.registry import COMPLAINTS, REQUESTS, register_pass

INDICES = "Indices"
"""Op that checks indices. `sizes` are the bounds: one for all, or one per position of the last dimension. If `signed`, negative
indices are counted from the end."""

OUTSIDE = "IndicesOutside"
"""Op that computes a flag: 1 if an index is out of bounds, else 0."""

UNSIGNED = INDEXED.keys() - ops("indexed")
"""Ops whose negative indices are out of bounds, not counted from the end."""


def is_indices(node: Node) -> bool:
    """True for a node that `check_indices` inserted."""
    return node.op == INDICES and node.domain == CALL_DOMAIN


@register_pass("CheckIndices", keeps=REQUESTS, family="tvm", essential=True)
def check_indices(graph: Graph) -> Graph:
    """A bounds check before each op that reads or writes at indices. CompileError where a constant index is outside, or where the
    sizes that bound computed ones are unknown. Linear."""
    checked: dict[tuple[NodeEntry, tuple[Size, ...], bool], NodeEntry] = {}

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        slot = INDEXED.get(str(node.op)) if not node.domain else None
        read = rebuilt.inputs[slot] if slot is not None else None
        if slot is not None and read is not None:
            wrong, sizes = outside(node), _sizes(node)
            is_bounded = sizes is not None and all(isinstance(size, (int, Extent)) for size in sizes)
            if wrong is None and read.node.value is None and not is_bounded:
                wrong = "the sizes that bound its indices are unknown"
            if wrong is not None:
                raise CompileError(wrong, where=f"node {node.name!r} ({node.op})")
            if read.node.value is None:
                assert sizes is not None
                key = (read, sizes, node.op in UNSIGNED)
                if key not in checked:
                    checked[key] = _check(node, read, sizes)
                inputs = (*rebuilt.inputs[:slot], checked[key], *rebuilt.inputs[slot + 1 :])
                rebuilt = rebuilt.evolve(inputs=inputs)
        rewriter.keep(node, rebuilt)

    return rewrite(graph, visit)


@register_pass("FlagIndices", keeps=REQUESTS, family="tvm", essential=True)
def flag_indices(graph: Graph) -> Graph:
    """An output for each bounds check, since kernels of a GPU cannot raise errors: the run fails where it is not 0. Linear."""
    looking = [node for node in graph.nodes if is_indices(node) and 0 not in shape_of(node[0])]
    if not looking:
        return graph
    flags = [_flag(node) for node in looking]
    names = (*graph.output_names, *(flag.name for flag in flags))
    outputs = [*graph.outputs, *(flag[0] for flag in flags)]
    complaints = (*graph.attrs.get(COMPLAINTS, ()), *(complaint(node.attrs["sizes"]) for node in looking))
    attributes = {**graph.attrs, COMPLAINTS: complaints}
    return graph.evolve(outputs=outputs, output_names=names, nodes=(*graph.nodes, *flags), attrs=attributes)


def _flag(node: Node) -> Node:
    name, number = f"{node.name}_outside", TensorType("int32", (1,))
    return Node(name, OUTSIDE, node.inputs, node.attrs, (name,), (number,), CALL_DOMAIN, affinity=node.affinity)


def complaint(sizes: Sequence[Size]) -> str:
    """Error message for an index out of bounds of these dimensions."""
    return f"an index is outside of {'a dimension' if len(sizes) == 1 else 'dimensions'} of {', '.join(map(str, sizes))}"


def outside(node: Node) -> str | None:
    """Description of the first constant index of an op that is out of bounds."""
    slot = INDEXED.get(str(node.op)) if not node.domain else None
    if slot is None or node.inputs[slot] is None:
        return None
    read = node.inputs[slot]
    sizes, value = _sizes(node), read.node.value if read is not None else None
    if sizes is None or value is None or not value.size:
        return None
    for number, size in zip(value.reshape(-1, len(sizes)).T, sizes):
        if not isinstance(size, int):  # `sizing` makes it a condition, and the op is checked again for each size
            continue
        least = 0 if node.op in UNSIGNED else -size
        wrong = next((int(n) for n in (number.min(), number.max()) if not least <= n < size), None)
        if wrong is not None:
            return f"index {wrong} is outside of a dimension of {size}"
    return None


def _sizes(node: Node) -> tuple[Any, ...] | None:
    """Sizes that bound the node's indices, possibly symbolic; None if they are unknown."""
    counted = node[0] if node.op == "MaxUnpool" else node.inputs[0]
    data, indices = (entry.type if entry is not None else None for entry in (counted, node.inputs[INDEXED[str(node.op)]]))
    if not (isinstance(data, TensorType) and isinstance(indices, TensorType)) or not data.shape or indices.shape is None:
        return None
    shape = data.shape
    if node.op == "MaxUnpool":
        return (math.prod(int(size or 0) for size in shape),) if data.is_static else None
    if not str(node.op).endswith("ND"):
        return (shape[int(node.attrs.get("axis", 0)) % len(shape)],)
    first, count = int(node.attrs.get("batch_dims", 0)), indices.shape[-1] if indices.shape else None
    return shape[first : first + count] if isinstance(count, int) else None


def _check(node: Node, read: NodeEntry, sizes: tuple[Size, ...]) -> NodeEntry:
    name = f"{node.name}_indices"
    bounds = {"sizes": list(sizes), "signed": int(node.op not in UNSIGNED)}
    check = Node(name, INDICES, (read,), bounds, (name,), (read.type,), CALL_DOMAIN, affinity=node.affinity)
    return check[0]
