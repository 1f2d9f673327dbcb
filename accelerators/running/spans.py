"""The memory of several arrays, asked whether another array lies in it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Spans:
    """The bytes that arrays span, the gaps between their numbers among them. To ask takes the logarithm of how many they are."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        listed = [array for array in arrays if isinstance(array, np.ndarray) and array.size]
        spans = sorted(map(_span, listed))
        self._starts = [start for start, _ in spans]
        self._ends = list(accumulate([end for _, end in spans], max))
        """For each span, the last byte of it and of all that begin before it."""

    @property
    def overlap(self) -> bool:
        """True if two of the arrays may share memory."""
        return any(start < end for start, end in zip(self._starts[1:], self._ends))

    def may_share(self, array: Array) -> bool:
        """May the array share memory with one of them, as numpy's `may_share_memory` says it?"""
        if not array.size:
            return False
        start, end = _span(array)
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start


def _span(array: Array) -> tuple[int, int]:
    """The first byte of an array, and the one behind its last."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.forc:
        return start, start + array.nbytes
    reaches = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(reach, 0) for reach in reaches), start + sum(max(reach, 0) for reach in reaches) + array.itemsize
