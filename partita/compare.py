"""The distance of a model's outputs from those that are expected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from graph.graph import Graph

TINY = 1e-30
"""Probabilities below this are taken for this when logarithms are compared."""


@attrs.frozen(slots=True)
class Difference:
    """The comparison of one output."""

    output: str
    """The output's name."""
    worst: float
    """The largest |a - b|, over the largest |b|; infinite where one has NaN, an infinity or a size that the other has not."""
    where: tuple[int, ...]
    """The position of the largest error in the output."""
    logarithms: bool
    """Were logarithms compared? A final softmax hides what went wrong before it."""


def compare(graph: Graph, ours: Sequence[Any], expected: Sequence[Any]) -> list[Difference]:
    """The outputs of a graph, one by one."""
    differences = []
    for name, entry, a, b in zip(graph.output_names, graph.outputs, ours, expected, strict=True):
        logarithms = entry.node.op == "Softmax"
        worst, where = _worst(a, b, logarithms)
        differences.append(Difference(name, worst, where, logarithms))
    return differences


def _worst(a: Any, b: Any, logarithms: bool) -> tuple[float, tuple[int, ...]]:
    if not isinstance(b, np.ndarray) or not isinstance(a, np.ndarray):
        return (0.0 if _equal(a, b) else np.inf), ()
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf, ()
    if b.dtype.kind not in "fc" and "float" not in b.dtype.name:
        unequal = np.argwhere(a != b)
        return (1.0, tuple(map(int, unequal[0]))) if len(unequal) else (0.0, ())
    if not b.size:
        return 0.0, ()
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    if logarithms:
        a, b = np.log(np.maximum(a, TINY)), np.log(np.maximum(b, TINY))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    position = np.unravel_index(int(apart.argmax()), apart.shape)
    return float(apart[position]) / (scale or 1.0), tuple(map(int, position))


def _equal(a: Any, b: Any) -> bool:
    """Sequences, optionals and maps: element by element."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _worst(a, b, False)[0] < 1e-3
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)
