"""Arrays for weights, whose memory is returned to the system when they are freed.

numpy allocates arrays of up to 32 MB on the heap, which seldom shrinks: freed weights would still count as memory of the
process."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

LARGE = 1 << 18
"""Minimum bytes of an array with a memory mapping of its own."""

HUGE = 1 << 22
"""Minimum bytes of an array for which huge pages are requested, as numpy does."""


def new_array(shape: Sequence[int], dtype: np.dtype[Any] | type) -> np.ndarray[Any, Any]:
    """An uninitialized array in C order, aligned to a page if it is large."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    size = count * kind.itemsize
    if size < LARGE or not hasattr(mmap, "MAP_PRIVATE"):
        return np.empty(shape, kind)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8).view(kind).reshape(shape)


def has_own_memory(array: np.ndarray[Any, Any]) -> bool:
    """True if `new_array` mapped the array's memory. Such weights are freed once others are made from them."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    return isinstance(memory, memoryview) and isinstance(memory.obj, mmap.mmap)
