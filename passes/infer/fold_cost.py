"""Cost of computing a node of constants by numpy, if it is larger than the sizes suggest.

A file of a hundred bytes may declare a pool whose window is larger than any image, or trees with cycles."""

from __future__ import annotations

import math

from partita.graph.flops import einsum_products
from partita.graph.node import Node
from partita.graph.ops.traits import FILTERS, ops, traits
from partita.graph.types import TensorType

STEP = 1000
"""Elements that numpy processes in the time of one Python step."""

GATES = 50
"""Approximate number of Python steps per step of a recurrent op."""


def labour(node: Node) -> float:
    """Estimated number of elements touched; infinity if it has no static bound."""
    if "endless" in traits(str(node.op), node.domain):
        return math.inf
    if node.op == "Einsum" and not node.domain:
        products = einsum_products(node)
        return math.inf if products is None else products
    if node.op == "LRN" and not node.domain:
        return int(node.attrs["size"]) * (_elements(node, 0) + STEP)
    if node.op in ops("recurrent") and not node.domain:
        return GATES * STEP * math.prod(_sizes(node, 0)[:2])
    weights = FILTERS.get(str(node.op))
    if node.domain or (weights is None and node.op not in ops("pool")):
        return 0
    kernel = node.attrs.get("kernel_shape", ()) if weights is None else _sizes(node, weights)[2:]
    return _padded(node, kernel) + math.prod(kernel) * (_elements(node, 0) + STEP)


def _padded(node: Node, kernel: tuple[int, ...]) -> float:
    """The elements of the first input including padding and the span of a dilated window."""
    sizes, rank = _sizes(node, 0), len(kernel)
    pads = [abs(int(pad)) for pad in node.attrs.get("pads", ()) or (0,) * (2 * rank)]
    dilations = [int(d) for d in node.attrs.get("dilations", ()) or (1,) * rank]
    spans = [
        size + before + after + kernel_size * dilation
        for size, before, after, kernel_size, dilation in zip(sizes[2:], pads[:rank], pads[rank:], kernel, dilations)
    ]
    return math.prod(sizes[:2]) * math.prod(spans)


def _sizes(node: Node, position: int) -> tuple[int, ...]:
    entry = node.inputs[position] if position < len(node.inputs) else None
    value_type = None if entry is None else entry.type
    return tuple(int(size or 0) for size in (value_type.shape or ())) if isinstance(value_type, TensorType) else ()  # type: ignore[arg-type]


def _elements(node: Node, position: int) -> int:
    return math.prod(_sizes(node, position))
