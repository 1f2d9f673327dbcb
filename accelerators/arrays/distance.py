"""The error between two lists of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.graph.types import Array

MASK = 1000.0
"""Elements below minus this count as a mask (minus infinity) if all others are smaller by this factor."""


def distance(answer: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest error of any output: |a - b| over the largest |b|, masks aside; infinite if an element is NaN in only one."""
    return max((array_distance(np.asarray(a), np.asarray(b)) for a, b in zip(answer, wanted, strict=True)), default=0.0)


def array_distance(array: Array, wanted: Array) -> float:
    """The error of one output."""
    if array.shape != wanted.shape:
        return np.inf
    if not wanted.size:
        return 0.0
    if wanted.dtype.kind not in "fiub" and "float" not in wanted.dtype.name:
        return 0.0 if np.array_equal(array, wanted) else np.inf
    a, b = array.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(a - b))
    return float((np.where(np.isnan(apart), np.inf, apart) / scales(b)).max())


def scales(wanted: Array) -> Array:
    """The scale of each element's error: the largest finite element. Elements of a mask are scaled by the largest of the mask,
    and the others by the largest of the others, which the mask would hide otherwise. Linear."""
    finite = np.isfinite(wanted)
    sizes = np.where(finite, np.abs(wanted), 0.0)
    masked = finite & (wanted <= -MASK)
    others = float(sizes.max(initial=0.0, where=~masked))
    is_mask = others > 0 and float(sizes.min(initial=np.inf, where=masked)) >= MASK * others
    whole = float(sizes.max(initial=0.0)) or 1.0
    return np.where(masked, whole, others) if is_mask else np.full(wanted.shape, whole)
