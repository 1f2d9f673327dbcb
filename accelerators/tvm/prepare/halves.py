"""Half-precision numbers: what rounds at every step is computed in float32 and rounded once, as ONNX's reference does it.

Sums of 4,096 ones are 2,048 in float16, and norms of them nothing at all. Ops that only move or compare numbers, and those of one
exact step, stay as they are."""

from __future__ import annotations

from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType

HALVES = frozenset(("float16", "bfloat16"))
"""The element types of two bytes."""

WIDENED = (
    ops("unary", "broadcast", "reduction", "pool", "global_pool", "convolution", "matmul", "norm", "softmax")
    - ops("primitive")
    - {"GroupNormalization", "Hardmax", "LayerNormalization"}
) | frozenset("Attention CumProd CumSum Einsum GridSample Resize RoiAlign RotaryEmbedding Upsample".split())
"""Ops that are computed in float32."""

_SCATTERED = frozenset(("ScatterElements", "ScatterND"))


def is_half(entry: object) -> bool:
    """Does the value hold half-precision numbers?"""
    value_type = getattr(entry, "type", None)
    return isinstance(value_type, TensorType) and value_type.dtype in HALVES


def is_widened(node: Node) -> bool:
    """Is it an op that rounds half-precision numbers at every step?"""
    summed = node.op in WIDENED or (node.op in _SCATTERED and node.attrs.get("reduction", "none") != "none")
    return summed and not node.domain and any(map(is_half, node.inputs))
