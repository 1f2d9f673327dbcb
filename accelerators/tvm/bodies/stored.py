"""Weights in the type in which a kernel stores them.

A large constant that is narrowed keeps its array at first; only its node has the narrow type. The user's arrays stay as they are
until the kernels' layouts are made of them, so that there is no third copy between the user's weights and the kernels'. Arrays
that the compiler made are converted one by one, each freed at once, so that they never all exist in both types."""

from __future__ import annotations

import numpy as np

from partita.graph.mapped_arrays import new_array
from partita.graph.types import Array, dtype_name, numpy_dtype

LATER = 1 << 16
"""Constants of at least this many bytes are converted when their kernel's layout is made."""


def as_stored(array: Array, dtype: str) -> Array:
    """The array in that element type; unchanged if it has that type.

    Finite values beyond float16 become its largest; infinities stay."""
    if dtype == dtype_name(array.dtype):
        return array
    if dtype == "float16":
        limit = float(np.finfo(np.float16).max)
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    stored = new_array(array.shape, numpy_dtype(dtype))
    stored[...] = array
    return stored
