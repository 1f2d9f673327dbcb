"""Calibrates the integer range of each value from the elements seen on given inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from partita.graph.types import Array

Range = tuple[float, float]
"""The smallest and largest representable value; zero is between them."""

Seen = Callable[[], Iterable[Mapping[str, Array]]]
"""Yields the values by name, once for each input."""

METHODS = ("minmax", "percentile", "entropy")
"""`minmax` covers every element that was seen, `percentile` all but one in ten thousand, and `entropy` the range that preserves
the distribution best, as in TensorRT."""

PERCENT = 99.99

BINS = 2048
"""Number of histogram bins of magnitudes."""

LEVELS = 128
"""Number of magnitudes of a signed byte."""

STRIDE = 16
"""Step in bins between thresholds that are tried."""

ROOM = 1.25
"""The factor by which the range of the calibration inputs is widened, since other inputs would be clipped to it."""


def calibrated(seen: Seen, method: str) -> dict[str, Range]:
    """The range of each value. The values are read once, or twice if their distribution is needed."""
    widest: dict[str, Range] = {}
    for values in seen():
        for name, array in values.items():
            low, high = widest.get(name, (0.0, 0.0))
            finite = array[np.isfinite(array)]
            if finite.size:
                widest[name] = min(low, float(finite.min())), max(high, float(finite.max()))
            else:
                widest.setdefault(name, (low, high))
    if method == "minmax":
        return {name: (low * ROOM, high * ROOM) for name, (low, high) in widest.items()}
    counts = {name: np.zeros(BINS, np.int64) for name in widest}
    for values in seen():
        for name, array in values.items():
            sizes = np.abs(array[np.isfinite(array)].astype(np.float64))
            counts[name] += np.histogram(sizes, BINS, (0.0, _size(widest[name]) or 1.0))[0]
    threshold = _by_percentile if method == "percentile" else _by_entropy
    return {name: _within(bounds, threshold(counts[name]) / BINS) for name, bounds in widest.items()}


def _size(bounds: Range) -> float:
    return max(-bounds[0], bounds[1])


def _within(bounds: Range, part: float) -> Range:
    """The range clipped to a fraction of its magnitude on either side."""
    most = _size(bounds) * part
    return max(bounds[0], -most), min(bounds[1], most)


def _by_percentile(counts: Array) -> int:
    """The number of bins that hold PERCENT of the elements."""
    total = np.cumsum(counts)
    return int(np.searchsorted(total, total[-1] * PERCENT / 100)) + 1


def _by_entropy(counts: Array) -> int:
    """The number of bins whose distribution loses least if rounded to as many levels as a byte has: the minimum Kullback-Leibler
    divergence."""
    best, least = BINS, np.inf
    for pieces in range(LEVELS, BINS + 1, STRIDE):
        kept = counts[:pieces].astype(np.float64)
        rounded = _in_levels(kept)
        kept[-1] += counts[pieces:].sum()
        shared = rounded > 0
        if not shared.any() or kept[~shared].sum() > 0.5 * kept.sum():
            continue
        p, q = kept / kept.sum(), rounded / rounded.sum()
        lost = float((p[shared] * np.log(p[shared] / q[shared])).sum()) + float(p[~shared].sum())
        if lost < least:
            best, least = pieces, lost
    return best


def _in_levels(counts: Array) -> Array:
    """The counts after rounding to levels: each level's count is spread over its non-empty bins."""
    level = np.arange(len(counts)) * LEVELS // len(counts)
    some = counts > 0
    total, pieces = np.bincount(level, counts, LEVELS), np.bincount(level, some, LEVELS)
    return np.where(some, (total / np.maximum(pieces, 1))[level], 0.0)
