"""The key NAN: whether a device accepts ops in which its engine does not propagate NaN.

The engines' behaviour is measured: `tests/accelerators/devices/test_nan.py` runs every row of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from partita.accelerators.interface.empty_reductions import may_reduce_nothing
from partita.accelerators.interface.keys import Key, one_of
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

ENGINE, EXACT = "engine", "exact"
"""The values of NAN: accept the ops, with the engine's results for NaN, or leave them to the next device."""

KEY = Key(ENGINE, one_of(ENGINE, EXACT))

Rule = Callable[[Node], bool]
"""True if the engine loses a NaN in this node."""

Table = Mapping[str, Rule]
"""A rule for each op that may lose NaN; ops without one propagate it."""


def loses_nan(node: Node, graph: Graph, table: Table, engine: str) -> str | None:
    """The reason why a device with NAN="exact" refuses this node; None if NaN propagates, and arises where
    ONNX specifies it, as in the mean of no elements."""
    rule = None if node.domain else table.get(node.op or "")
    if not any(_is_float(entry.type) for entry in node.reads):
        return None
    if rule is None or not rule(node):
        nothing = may_reduce_nothing(node, graph)
        return None if nothing is None else f"{nothing} (NAN={EXACT})"
    return f"{engine} does not carry NaN through {node.op} as ONNX does (NAN={EXACT})"


def always(node: Node) -> bool:
    """NaN is lost with any attributes."""
    return True


def only_of(*dtypes: str) -> Rule:
    """NaN is lost in these element types."""
    return lambda node: any(isinstance(entry.type, TensorType) and entry.type.dtype in dtypes for entry in node.reads)


def with_reduction(node: Node) -> bool:
    """NaN is lost if the reduction is a maximum or a minimum."""
    return node.attrs.get("reduction", "none") in ("max", "min")


def not_known_finite(slot: int) -> Rule:
    """NaN is lost if any input from this index on may hold one: it is not constant, or not finite."""
    return lambda node: not all(_is_finite(entry.node.value) for entry in node.inputs[slot:] if entry is not None)


def _is_finite(value: object) -> bool:
    return isinstance(value, np.ndarray) and bool(np.isfinite(value.astype(np.float64)).all())


def _is_float(value_type: object) -> bool:
    return isinstance(value_type, TensorType) and "float" in value_type.dtype
