"""Do two engines compute the same?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOLERANCE = 1e-4
"""The largest error that counts as equal."""


def error(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """The largest difference over all outputs, as a part of the largest value; before a final softmax, if there is one."""
    if len(ours) != len(theirs) or any(a.shape != b.shape for a, b in zip(ours, theirs)):
        return float("inf")
    return max(map(_one, ours, theirs), default=0.0)


def _one(ours: np.ndarray, theirs: np.ndarray) -> float:
    a, b = (array if array.dtype.kind == "f" else array.astype(np.float64) for array in (ours, theirs))
    if not a.size:
        return 0.0
    if _is_softmax(a) and _is_softmax(b):
        a, b = np.log(a, dtype=np.float64), np.log(b, dtype=np.float64)
    largest = max(abs(float(b.max())), abs(float(b.min())))
    apart = np.subtract(a, b)
    difference = float(np.abs(apart, out=apart).max())
    if largest and np.isfinite(difference):
        return difference / largest
    return difference if largest == 0 else float("inf")


def _is_softmax(a: np.ndarray) -> bool:
    """Positive numbers that add up to one in every row: their logarithms are what went in, but for a constant."""
    return bool(a.min() > 0) and np.allclose(a.reshape(len(a), -1).sum(1, dtype=np.float64), 1, atol=1e-3)
