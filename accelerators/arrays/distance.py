"""How far two answers are from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.graph.types import Array

MASK = 1000.0
"""Numbers below minus this are a mask where all others are as many times nearer to zero: they stand for minus infinity."""


def distance(answer: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest error of any output: |a - b| over the largest |b|, masks apart; infinite where a number is one in only one."""
    return max((array_distance(np.asarray(a), np.asarray(b)) for a, b in zip(answer, wanted, strict=True)), default=0.0)


def array_distance(array: Array, wanted: Array) -> float:
    """The same of one output."""
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
    """What the error of each number is held against: the largest finite one. The numbers of a mask are held against the largest
    of the mask, and the others against the largest of the others, which the mask would hide otherwise. Linear."""
    finite = np.isfinite(wanted)
    sizes = np.where(finite, np.abs(wanted), 0.0)
    masked = finite & (wanted <= -MASK)
    others = float(sizes.max(initial=0.0, where=~masked))
    is_mask = others > 0 and float(sizes.min(initial=np.inf, where=masked)) >= MASK * others
    whole = float(sizes.max(initial=0.0)) or 1.0
    return np.where(masked, whole, others) if is_mask else np.full(wanted.shape, whole)
