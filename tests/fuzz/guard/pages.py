"""Arrays between two pages that nobody may touch: an element outside ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from partita.graph.types import Array

PAGE = mmap.PAGESIZE

_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

FILL = 0xA5
"""What memory holds that nobody has written to."""


class Guarded:
    """Memory for one array, at the beginning of its pages or at their end."""

    def __init__(self, nbytes: int, at_end: bool, alignment: int) -> None:
        pages = max(1, -(-nbytes // PAGE))
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        start = int(whole.ctypes.data)
        whole[:] = FILL
        for page in (start, start + (pages + 1) * PAGE):
            if _LIBC.mprotect(page, PAGE, _NONE):
                raise OSError(ctypes.get_errno(), "mprotect")
        room = pages * PAGE
        offset = PAGE + ((room - nbytes) // alignment * alignment if at_end else 0)
        self.bytes = whole[offset : offset + nbytes]
        """The array's memory."""

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """The block as an array."""
        return self.bytes.view(dtype).reshape(shape)


def guarded_copy(array: Array, at_end: bool, alignment: int = 4) -> Array:
    """The array between two such pages, as near to one of them as the alignment lets it."""
    result = Guarded(array.nbytes, at_end, alignment).array(array.dtype, array.shape)
    result[...] = array
    return result
