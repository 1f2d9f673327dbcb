"""Types of an Attention with dynamic sizes: ONNX's inference takes an unknown size of heads, or number of keys, for zero."""

from __future__ import annotations

from collections.abc import Sequence

from partita.graph.node import Node
from partita.graph.types import Dim, TensorType, Type

SCORES = 3
"""The index of the output with the products of queries and keys."""


def is_uncounted(node: Node) -> bool:
    """True for an Attention with packed heads of unknown size, or with scores for an unknown number of keys."""
    if node.op != "Attention" or node.domain:
        return False
    types = [None if entry is None else entry.type for entry in node.inputs]
    if node.attrs.get("kv_num_heads") and not all(isinstance(_packed_size(kind), int) for kind in types[:3]):
        return True
    keys = _with_heads(types[1], node, "kv_num_heads")
    return len(node.output_names) > SCORES and not isinstance(_total(keys, types), int)


def attention_types(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The types of the result, the present keys and values, and the scores, as far as known."""
    queries, keys, values = inputs[:3]
    if not (isinstance(queries, TensorType) and isinstance(keys, TensorType) and isinstance(values, TensorType)):
        return ()
    batch, heads, length, _ = _with_heads(queries, node, "q_num_heads")
    _, kv_heads, _, wide = kept = _with_heads(keys, node, "kv_num_heads")
    _, _, _, per_value = _with_heads(values, node, "kv_num_heads")
    total = _total(kept, inputs)
    result: tuple[Dim, ...] | None = None if queries.shape is None else (batch, heads, length, per_value)
    if queries.shape is not None and len(queries.shape) == 3:
        is_static = isinstance(heads, int) and isinstance(per_value, int)
        result = (batch, length, heads * per_value if is_static else None)  # type: ignore[operator]
    return (
        TensorType(queries.dtype, result),
        TensorType(keys.dtype, (batch, kv_heads, total, wide)),
        TensorType(values.dtype, (batch, kv_heads, total, per_value)),
        TensorType(queries.dtype, (batch, heads, length, total)),
    )[: len(node.output_names)]


def _total(keys: tuple[Dim, ...], inputs: Sequence[Type | None]) -> Dim:
    """The number of keys, including the past ones."""
    if len(inputs) < 5 or inputs[4] is None:
        return keys[2]
    past = inputs[4].shape if isinstance(inputs[4], TensorType) else None
    earlier = past[2] if past is not None and len(past) == 4 else None
    return earlier + keys[2] if isinstance(earlier, int) and isinstance(keys[2], int) else None


def _with_heads(kind: Type | None, node: Node, attribute: str) -> tuple[Dim, Dim, Dim, Dim]:
    """Batch, number of heads, length, and size of a head, as far as known."""
    shape = (isinstance(kind, TensorType) and kind.shape) or ()
    heads = int(node.attrs.get(attribute, 0)) or None
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) != 3:
        return None, None, None, None
    batch, length, size = shape
    return batch, heads, length, size // heads if isinstance(size, int) and heads else None


def _packed_size(kind: Type | None) -> Dim:
    """The size of the axis with packed heads; None if heads have a separate axis."""
    shape = (isinstance(kind, TensorType) and kind.shape) or ()
    return shape[2] if len(shape) == 3 else None
