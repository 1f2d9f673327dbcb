"""Convolutions of signals and volumes whose strides equal their windows, as matrix products of patches by the filters. Video
transformers begin with one. Images have kernels of their own."""

from __future__ import annotations

import math

from partita.graph.body_builder import BodyBuilder, static_shape
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

FEW = 16
"""Signals with fewer windows than this have no convolution kernel."""


def is_of_patches(node: Node) -> bool:
    """True for such a convolution of floats, of static sizes, by a constant that reads all channels."""
    if node.op != "Conv" or node.domain or None in node.inputs[:2]:
        return False
    weight, given, result = node.reads[1].node.value, node.reads[0].type, node.output_types[0]
    if weight is None or not isinstance(given, TensorType) or not isinstance(result, TensorType):
        return False
    if not given.is_static or not result.is_static or given.dtype != "float32" or weight.ndim not in (3, 5):
        return False
    taps, attributes = list(weight.shape[2:]), node.attrs
    ones = [1] * len(taps)
    is_side_by_side = list(attributes.get("strides") or ones) == taps and list(attributes.get("dilations") or ones) == ones
    is_plain = not any(attributes.get("pads") or ()) and attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    windows = math.prod((static_shape(node[0]) or ())[2:])
    is_few = windows < FEW or len(taps) == 3
    return is_side_by_side and is_plain and attributes.get("group", 1) == 1 and math.prod(taps) > 1 and windows > 0 and is_few


def patches(b: BodyBuilder) -> Graph:
    """The body of such a convolution."""
    outs, channels, *taps = b.value(1).shape
    batch, _, *windows = static_shape(b.node[0]) or ()
    rank, depth = len(taps), channels * math.prod(taps)
    cut = b.Slice(b.input(0), [0] * rank, [t * n for t, n in zip(taps, windows, strict=True)], range(2, rank + 2))
    apart = b.Reshape(cut, [batch, channels, *(size for pair in zip(windows, taps, strict=True) for size in pair)])
    order = [0, *range(2, 2 * rank + 2, 2), 1, *range(3, 2 * rank + 3, 2)]
    rows = b.Reshape(b.Transpose(apart, perm=order), [-1, depth])
    total = b.MatMul(rows, b.Transpose(b.Reshape(b.input(1), [outs, depth]), perm=[1, 0]))
    total = b.Add(total, b.input(2)) if b.has(2) else total
    back = b.Transpose(b.Reshape(total, [batch, math.prod(windows), outs]), perm=[0, 2, 1])
    return b.done(b.Reshape(back, [batch, outs, *windows]))
