"""Sizes of resizes by factors whose products are rounded, for which ONNX's inference is wrong: it multiplies in double
precision, and the op in single. Ten times 0.7 is 7, and not a little less."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from partita.graph.errors import TypeMismatch
from partita.graph.node import Node
from partita.graph.numerics.resize import scaled_size
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType, Type

EXACT = 1 << 8
"""Factors that are fractions of integers up to this are multiplied without rounding, for any size."""


def is_rounded(node: Node) -> bool:
    """True for a resize by constant factors, of which one is no fraction of small integers."""
    if node.domain or node.op not in ops("resizing"):
        return False
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        return False
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return False
    factors = _factors(node)
    if not all(0 < factor < np.inf for factor in factors):
        return False
    return any(max(factor.as_integer_ratio()) > EXACT for factor in factors)


def resized_types(node: Node, inputs: Sequence[Type | None]) -> Sequence[Type | None]:
    """The type of the node's output; unknown sizes give unknown dimensions."""
    given = inputs[0] if inputs else None
    if not isinstance(given, TensorType) or given.shape is None:
        return (given,)
    rank, factors = len(given.shape), _factors(node)
    axes = [axis % rank for axis in node.attrs.get("axes") or range(rank)]
    if len(axes) != len(factors):
        raise TypeMismatch(f"{len(factors)} factors for {len(axes)} dimensions of {rank}")
    by = dict(zip(axes, factors, strict=True))
    shape = [scaled_size(size, by.get(d, 1.0)) if isinstance(size, int) else None for d, size in enumerate(given.shape)]
    return (attrs.evolve(given, shape=tuple(shape)),)


def _factors(node: Node) -> list[float]:
    """The factors of the sizes; empty if unknown. Resizes of opset 10 have no second input for regions."""
    entry = (node.inputs[2] if len(node.inputs) > 2 else node.inputs[1]) if len(node.inputs) > 1 else None
    if entry is None:
        return [float(np.float32(factor)) for factor in node.attrs.get("scales") or ()]
    value = entry.node.value
    return [] if value is None or value.dtype != np.float32 or value.ndim != 1 else value.tolist()
