"""Half precision: an op that would round at every step is computed in float32 and rounded once, as in ONNX's reference.

In float16 a sum of 4,096 ones is 2,048, and norms of such vectors are meaningless. Ops that only move or compare elements, and
ops of one exact step, stay as they are."""

from __future__ import annotations

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.types import HALVES, TensorType

WIDENED = (
    ops("unary", "broadcast", "reduction", "pool", "global_pool", "convolution", "matmul", "norm", "softmax")
    - ops("primitive")
    - {"GroupNormalization", "Hardmax", "LayerNormalization"}
) | ops("contraction", "running", "resizing") | {"GridSample", "RoiAlign", "RotaryEmbedding"}
"""Ops that are computed in float32."""


def is_half(entry: object) -> bool:
    """True for a half-precision value."""
    value_type = getattr(entry, "type", None)
    return isinstance(value_type, TensorType) and value_type.dtype in HALVES


def is_widened(node: Node) -> bool:
    """True for an op that would round half-precision values at every step."""
    summed = node.op in WIDENED or (node.op in ops("scattering") and node.attrs.get("reduction", "none") != "none")
    return summed and not node.domain and any(map(is_half, node.inputs))


def in_single_precision(b: BodyBuilder) -> Graph:
    """The op itself, with its half-precision inputs cast to float32 and its results cast back."""
    node = b.node
    inputs = [b.optional(i) for i in range(len(node.inputs))]
    wide = [b.Cast(x, to="float32") if is_half(x) else x for x in inputs]
    results = b.ops(str(node.op), len(node.output_names), *wide, **node.attrs)
    half = next(b.type(i).dtype for i, x in enumerate(inputs) if is_half(x))
    narrow = [is_half(entry) for entry in node.outputs]
    return b.done(*[b.Cast(y, to=half) if short else y for y, short in zip(results, narrow, strict=True)])
