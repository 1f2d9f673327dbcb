"""Printing of types and attribute values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from partita.graph.errors import WriteError
from partita.graph.node import Body
from partita.graph.sparse import SparseTensor
from partita.graph.text.arrays import array_type, print_payload
from partita.graph.text.words import quoted, quoted_bytes, word
from partita.graph.types import Dim, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

MAX_NESTING = 32
"""Maximum nesting depth of graphs, lists and types."""


def print_type(type: Type | None) -> str:
    """The type as `parse` reads it; `?` if it is unknown."""
    if type is None:
        return "?"
    if isinstance(type, TensorType):
        return type.dtype if type.shape is None else f"{type.dtype}[{', '.join(map(_dim, type.shape))}]"
    if isinstance(type, SparseTensorType):
        return f"sparse({print_type(TensorType(type.dtype, type.shape))})"
    if isinstance(type, SequenceType):
        return f"sequence({print_type(type.element)})"
    if isinstance(type, OptionalType):
        return f"optional({print_type(type.element)})"
    if isinstance(type, MapType):
        return f"map({type.key}, {print_type(type.value)})"
    raise WriteError(f"{type!r} is not a type")


def _dim(dim: Dim) -> str:
    return "?" if dim is None else str(dim) if isinstance(dim, int) else word(dim)


def print_array(array: np.ndarray[Any, Any], big: int | None) -> str:
    """The array with its type."""
    return f"{print_type(array_type(array))} {print_payload(array, big)}"


def print_value(value: Any, big: int | None, where: str, body: Callable[[Any], str], depth: int = 0) -> str:
    """An attribute value; `body` prints graphs in it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return quoted_bytes(value)
    if isinstance(value, np.ndarray):
        return f"const {print_array(value, big)}"
    if isinstance(value, (list, tuple)):
        if depth > MAX_NESTING:
            raise WriteError(f"lists nest more than {MAX_NESTING} deep", where=where)
        items = ", ".join([print_value(item, big, where, body, depth + 1) for item in value])
        return f"[{items}]" if isinstance(value, list) else f"({items})"
    if isinstance(value, Body):
        return body(value)
    if isinstance(value, (TensorType, SparseTensorType, SequenceType, OptionalType, MapType)):
        return f"type {print_type(value)}"
    if isinstance(value, SparseTensor):
        parts = [value.values, value.indices, list(value.shape)]
        return f"sparse({', '.join(print_value(part, big, where, body, depth) for part in parts)})"
    raise WriteError(
        f"an attribute holds {value!r:.80}, which has no written form",
        where=where,
        remedy="Attributes are numbers, strings, bytes, arrays, types, graphs, and lists of these",
    )
