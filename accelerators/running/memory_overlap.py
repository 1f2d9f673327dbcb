"""The memory spans of several arrays, for fast overlap checks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Spans:
    """The byte ranges of arrays, including gaps between their elements. A query takes logarithmic time."""

    def __init__(self, arrays: Iterable[Any]) -> None:
        listed = [array for array in arrays if isinstance(array, np.ndarray) and array.size]
        spans = sorted(map(_span, listed))
        self._starts = [start for start, _ in spans]
        self._ends = list(accumulate([end for _, end in spans], max))
        """For each span, the largest end of it and of all that begin before it."""

    @property
    def overlap(self) -> bool:
        """True if two of the arrays may share memory."""
        return any(start < end for start, end in zip(self._starts[1:], self._ends))

    def may_share(self, array: Array) -> bool:
        """True if the array may share memory with one of them, by the criterion of numpy's `may_share_memory`."""
        if not array.size:
            return False
        start, end = _span(array)
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start


def _span(array: Array) -> tuple[int, int]:
    """The address of an array's first byte, and of the byte after its last one."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.forc:
        return start, start + array.nbytes
    reaches = [(size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(reach, 0) for reach in reaches), start + sum(max(reach, 0) for reach in reaches) + array.itemsize
