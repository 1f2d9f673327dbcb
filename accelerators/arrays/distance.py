"""How far two answers are from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph.types import Array


def distance(answer: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest error of any output: |a - b| over the largest |b|; infinite where a number is one in only one of both."""
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
    worst = float(np.where(np.isnan(apart), np.inf, apart).max())
    sizes = np.abs(b[np.isfinite(b)])
    return worst / (float(sizes.max(initial=0.0)) or 1.0)
