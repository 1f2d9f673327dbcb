"""Arrays for weights, whose memory goes back to the system as soon as nobody holds them.

numpy takes arrays of up to 32 MB from the heap, which seldom shrinks: weights that were freed there still count among what a
process holds."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

LARGE = 1 << 18
"""Arrays of so many bytes have memory of their own."""

HUGE = 1 << 22
"""Arrays of so many bytes ask for huge pages, as numpy's do."""


def new_array(shape: Sequence[int], dtype: np.dtype[Any] | type) -> np.ndarray[Any, Any]:
    """An array to fill, in C order, from the start of a page if it is large."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    size = count * kind.itemsize
    if size < LARGE or not hasattr(mmap, "MAP_PRIVATE"):
        return np.empty(shape, kind)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # A system without huge pages says no.
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8).view(kind).reshape(shape)


def has_own_memory(array: np.ndarray[Any, Any]) -> bool:
    """Does the array lie in memory that `new_array` took for it? Such weights go once others are made of them."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        memory = memory.base
    return isinstance(memory, memoryview) and isinstance(memory.obj, mmap.mmap)
