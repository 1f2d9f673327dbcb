"""Takes RotaryEmbedding apart: pairs of numbers of each head are turned by angles that depend on positions.

ONNX's own body is one of sizes that are computed while it runs, which no device here reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import TensorType

ROTARY = "RotaryEmbedding"
"""The op."""


def rotary_parts(node: Node, graph: Graph) -> Graph | None:
    """The op's body, its inputs named x0, x1, … after the node's; None where sizes of heads are not known."""
    kinds = [None if entry is None else entry.type for entry in node.inputs]
    heads = int(node.attrs.get("num_heads", 0))
    kind = kinds[0]
    shape = kind.shape if isinstance(kind, TensorType) else None
    if shape is None or len(shape) not in (3, 4) or not isinstance(shape[-1], int) or (len(shape) == 3 and not heads):
        return None
    depth = shape[-1] // heads if len(shape) == 3 else shape[-1]
    inputs = [variable(f"x{i}", type=kind) for i, kind in enumerate(kinds) if kind is not None]
    writing = _Writing(graph.opsets.get("", 1))
    x = inputs[0][0]
    if len(shape) == 3:
        x = writing.op("Transpose", writing.reshaped(x, (0, 0, heads, depth)), perm=[0, 2, 1, 3])
    tables = [table[0] for table in inputs[1:3]]
    if len(inputs) > 3:
        tables = [writing.op("Gather", table, inputs[3][0], axis=0) for table in tables]
    cos, sin = (writing.op("Unsqueeze", table, writing.numbers(1)) for table in tables)
    size = int(node.attrs.get("rotary_embedding_dim", 0)) or depth
    turned = writing.turned(x, cos, sin, size, bool(node.attrs.get("interleaved", 0)))
    if size < depth:
        turned = writing.op("Concat", turned, writing.part(x, size, depth), axis=-1)
    if len(shape) == 3:
        turned = writing.reshaped(writing.op("Transpose", turned, perm=[0, 2, 1, 3]), (0, 0, shape[-1]))
    return Graph([turned], inputs, "parts", graph.opsets)


class _Writing:
    """Ops of one opset."""

    def __init__(self, version: int) -> None:
        self.version = version

    def op(self, name: str, *inputs: NodeEntry, **attributes: Any) -> NodeEntry:
        return op(name, *inputs, opset=self.version, **attributes)[0]

    @staticmethod
    def numbers(*values: int) -> NodeEntry:
        return constant(np.array(values, np.int64))[0]

    def reshaped(self, x: NodeEntry, sizes: tuple[int, ...]) -> NodeEntry:
        return self.op("Reshape", x, self.numbers(*sizes))

    def part(self, x: NodeEntry, first: int, end: int, step: int = 1) -> NodeEntry:
        """Some numbers of each head."""
        return self.op("Slice", x, *map(self.numbers, (first, end, 3, step)))

    def turned(self, x: NodeEntry, cos: NodeEntry, sin: NodeEntry, size: int, interleaved: bool) -> NodeEntry:
        """The first numbers of each head, so many: pairs are neighbours, or stand in both halves."""
        half = size // 2
        cuts = ((0, size, 2), (1, size, 2)) if interleaved else ((0, half, 1), (half, size, 1))
        first, second = (self.part(x, *cut) for cut in cuts)
        real = self.op("Sub", self.op("Mul", cos, first), self.op("Mul", sin, second))
        imaginary = self.op("Add", self.op("Mul", sin, first), self.op("Mul", cos, second))
        if not interleaved:
            return self.op("Concat", real, imaginary, axis=-1)
        beside = [self.op("Unsqueeze", part, self.numbers(4)) for part in (real, imaginary)]
        joined = self.op("Concat", *beside, axis=-1)
        return self.reshaped(joined, (0, 0, 0, size))
