"""Ops that have no form for any size themselves, while their bodies have one (passes/decompose/dynamic_sizes.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.graph.node import Node

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

SHAPE_HAS_ENDS = 15
"""The opset since which a Shape may return some of the sizes."""

UNSQUEEZE_HAS_AXES = 13
"""The opset since which the axes of Unsqueeze are an input."""

PADDED = frozenset("float32 float64 int32 int64".split())
"""The element types whose padding has a body."""


def is_repeated_by_sizes(node: Node, reading: Reading, version: int) -> bool:
    """True for a Tile by counts that follow from dynamic sizes."""
    if node.op != "Tile" or node.domain or version < UNSQUEEZE_HAS_AXES:
        return False
    return any(isinstance(count, Extent) for count in reading.vector(node.inputs[1]))


def multiplies_a_vector(node: Node, reading: Reading, version: int) -> bool:
    """True for a MatMul by a vector."""
    return node.op == "MatMul" and version >= UNSQUEEZE_HAS_AXES and any(len(reading.sizes(entry)) == 1 for entry in node.reads)


def is_sliced(node: Node, reading: Reading, version: int) -> bool:
    """True for a convolution of volumes of dynamic depth, height or width by constant weights that read all channels."""
    sizes = reading.sizes(node.inputs[0]) if node.op == "Conv" and not node.domain and version >= SHAPE_HAS_ENDS else ()
    if len(sizes) != 5:
        return False
    weight, *others = node.inputs[1:]
    is_constant = all(entry is None or entry.node.value is not None for entry in (weight, *others))
    is_plain = node.attrs.get("group", 1) == 1 and node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return is_constant and is_plain and any(isinstance(size, Extent) for size in sizes[2:])


def padded_by_sizes(node: Node, reading: Reading, version: int) -> dict[int, tuple[int, int]]:
    """By padded axis, the places of its two amounts among the pads; empty unless one of these follows from dynamic sizes."""
    if node.op != "Pad" or node.domain or version < SHAPE_HAS_ENDS or node.inputs[0] is None:
        return {}
    pads: list[Size] = list(reading.vector(node.inputs[1]))
    if not any(isinstance(size, Extent) for size in pads) or reading.type_of(node.inputs[0]).dtype not in PADDED:
        return {}
    named = node.inputs[3] if len(node.inputs) > 3 else None
    rank, count = len(reading.sizes(node.inputs[0])), len(pads) // 2
    axes = range(rank) if named is None else reading.numbers(named)
    return {axis % rank: (i, count + i) for i, axis in enumerate(axes) if pads[i] != 0 or pads[count + i] != 0}
