"""TF32: float32 with a mantissa of ten bits, which is all that tensor cores read."""

from __future__ import annotations

import numpy as np

from partita.graph.types import Array

_DROPPED = 13
"""The low bits of a float32 that TF32 lacks."""


def round_to_tf32(array: Array) -> Array:
    """Rounds a contiguous float32 array in place: to nearest, ties away from zero, as a GPU does (cvt.rna). NaN and infinities
    are unchanged."""
    bits = array.view(np.uint32)
    finite = bits & np.uint32(0x7F800000) != np.uint32(0x7F800000)
    np.add(bits, np.uint32(1 << (_DROPPED - 1)), out=bits, where=finite)
    np.bitwise_and(bits, np.uint32(2**32 - 2**_DROPPED), out=bits, where=finite)
    return array
