"""From the numbers that values take on given inputs to the range that their integers cover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from partita.graph.types import Array

Range = tuple[float, float]
"""The least and the largest number that is told apart; zero lies between them."""

Seen = Callable[[], Iterable[Mapping[str, Array]]]
"""The values by name, once for each of the inputs that are given."""

METHODS = ("minmax", "percentile", "entropy")
"""`minmax` covers every number that was seen, `percentile` all but one in ten thousand, and `entropy` what keeps most of the
distribution, as TensorRT chooses it."""

PERCENT = 99.99

BINS = 2048
"""Pieces that the sizes of a value's numbers are counted in."""

LEVELS = 128
"""Sizes that a byte with a sign can tell apart."""

STRIDE = 16
"""Thresholds are tried at every so manieth piece."""

ROOM = 1.25
"""The factor by which the range of the calibration inputs is widened: numbers of others beyond it would be cut off."""


def calibrated(seen: Seen, method: str = "minmax") -> dict[str, Range]:
    """The range of each value. The values are looked at once, or twice where their distribution counts."""
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
    """The range up to a part of its size, on either side."""
    most = _size(bounds) * part
    return max(bounds[0], -most), min(bounds[1], most)


def _by_percentile(counts: Array) -> int:
    """The pieces that hold all but few of the numbers."""
    total = np.cumsum(counts)
    return int(np.searchsorted(total, total[-1] * PERCENT / 100)) + 1


def _by_entropy(counts: Array) -> int:
    """The pieces whose distribution loses least when it is told apart in as many levels as a byte has: the least divergence of
    Kullback and Leibler."""
    best, least = BINS, np.inf
    for pieces in range(LEVELS, BINS + 1, STRIDE):
        kept = counts[:pieces].astype(np.float64)
        rounded = _in_levels(kept)
        kept[-1] += counts[pieces:].sum()
        shared = (kept > 0) & (rounded > 0)
        if not shared.any() or kept[~shared].sum() > 0.5 * kept.sum():
            continue
        p, q = kept / kept.sum(), rounded / rounded.sum()
        lost = float((p[shared] * np.log(p[shared] / q[shared])).sum()) + float(p[~shared].sum())
        if lost < least:
            best, least = pieces, lost
    return best


def _in_levels(counts: Array) -> Array:
    """The counts as they look after rounding to levels: each level's numbers spread over those of its pieces that have any."""
    level = np.arange(len(counts)) * LEVELS // len(counts)
    some = counts > 0
    total, pieces = np.bincount(level, counts, LEVELS), np.bincount(level, some, LEVELS)
    return np.where(some, (total / np.maximum(pieces, 1))[level], 0.0)
