"""TF32: float32 with ten bits behind the point, which is all that tensor cores look at."""

from __future__ import annotations

import numpy as np

from partita.graph.types import Array

_DROPPED = 13
"""The last bits of a float32, which TF32 lacks."""


def round_to_tf32(array: Array) -> Array:
    """The float32 array, a contiguous one, whose numbers are rounded where they stand: to the nearest, and those between two away
    from zero, as a GPU rounds them (cvt.rna). NaN and infinities stay."""
    bits = array.view(np.uint32)
    finite = bits & np.uint32(0x7F800000) != np.uint32(0x7F800000)
    np.add(bits, np.uint32(1 << (_DROPPED - 1)), out=bits, where=finite)
    np.bitwise_and(bits, np.uint32(2**32 - 2**_DROPPED), out=bits, where=finite)
    return array
