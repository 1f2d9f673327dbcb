"""Sequences, which are lists of arrays, and optional values: a value, or None."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import differs, numerics


@numerics("SequenceInsert", why=differs("where an item goes to the end"))
def sequence_insert(items: list[Any], item: np.ndarray, position: np.ndarray | None = None) -> list[Any]:
    """Inserts the item before a position, which may be the end, and counts from there if negative. (ONNX's own reference inserts
    at the front instead of the end, and nothing into an empty sequence.)"""
    index = len(items) if position is None else int(np.asarray(position).reshape(()))
    if not -len(items) <= index <= len(items):
        raise ValueError(f"position {index} is outside of a sequence of {len(items)}")
    index += len(items) if index < 0 else 0
    return [*items[:index], item, *items[index:]]


@numerics("Optional", why=differs("because it wraps the value in a list"))
def optional(x: Any = None, *, type: Any = None) -> Any:
    """The value itself; without an input, an empty optional."""
    return x
