"""The error between two lists of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.graph.types import Array

MASK = 1000.0
"""Elements of at most -MASK are taken for a mask (in place of -inf) if each is at least MASK times as large as all others."""


def distance(answer: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest error of any output, max|a - b| / max|b|, masks scaled apart; infinity if only one side has a NaN."""
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
    """The divisor of each element's error: the largest finite magnitude. In an output with a mask, the elements of the mask are
    divided by the mask's largest and the others by their own largest, so that the mask hides no error. Linear."""
    finite = np.isfinite(wanted)
    sizes = np.where(finite, np.abs(wanted), 0.0)
    masked = finite & (wanted <= -MASK)
    others = float(sizes.max(initial=0.0, where=~masked))
    is_mask = others > 0 and float(sizes.min(initial=np.inf, where=masked)) >= MASK * others
    largest = float(sizes.max(initial=0.0)) or 1.0
    return np.where(masked, largest, others) if is_mask else np.full(wanted.shape, largest)
