"""The types of an Attention whose heads stand in one axis of unknown size: ONNX's inference takes the size for zero."""

from __future__ import annotations

from collections.abc import Sequence

from graph.node import Node
from graph.types import Dim, TensorType, Type


def is_uncounted(node: Node) -> bool:
    """Is it an Attention with its heads in the last axis of queries, keys or values, whose size is not known?"""
    if node.op != "Attention" or node.domain or not node.attrs.get("kv_num_heads"):
        return False
    return not all(entry is not None and isinstance(_size(entry.type, 2), int) for entry in node.inputs[:3])


def attention_types(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The types of the result, the present keys and values, and the scores, as far as they follow."""
    queries, keys, values = inputs[:3]
    if not (isinstance(queries, TensorType) and isinstance(keys, TensorType) and isinstance(values, TensorType)):
        return ()
    q_heads, kv_heads = int(node.attrs.get("q_num_heads", 0)) or None, int(node.attrs["kv_num_heads"])
    wide, per_value = _split(_size(keys, 2), kv_heads), _split(_size(values, 2), kv_heads)
    batch, length = _size(queries, 0), _size(queries, 1)
    total = None if len(inputs) > 4 and inputs[4] is not None else _size(keys, 1)
    result = q_heads * per_value if q_heads and per_value else None
    return (
        TensorType(queries.dtype, (batch, length, result)),
        TensorType(keys.dtype, (batch, kv_heads, total, wide)),
        TensorType(values.dtype, (batch, kv_heads, total, per_value)),
        TensorType(queries.dtype, (batch, q_heads, length, total)),
    )[: len(node.output_names)]


def _size(kind: Type | None, axis: int) -> Dim:
    known = isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) == 3
    return kind.shape[axis] if known else None  # type: ignore[union-attr, index]


def _split(size: Dim, heads: int) -> int | None:
    return size // heads if isinstance(size, int) else None
