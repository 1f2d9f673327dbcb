"""Weights in the type that a kernel stores them in.

A large constant that becomes narrow keeps its array at first: its node alone says the narrow type. The user's arrays stay so
until their kernels' layouts are made of them, so that there is no third copy between the user's weights and the kernels'. Those
that the compiler made are converted one by one once nothing else holds them: they are never all there in both types."""

from __future__ import annotations

import numpy as np

from partita.graph.new_array import new_array
from partita.graph.types import Array, dtype_name, numpy_dtype

LATER = 1 << 16
"""Constants of so many bytes are converted when their kernel's layout is made of them."""


def as_stored(array: Array, dtype: str) -> Array:
    """The array in that element type; itself where it has it already.

    What is too large for float16 becomes its largest number; infinities stay."""
    if dtype == dtype_name(array.dtype):
        return array
    if dtype == "float16":
        limit = float(np.finfo(np.float16).max)
        array = np.where(np.isfinite(array), np.clip(array, -limit, limit), array)
    stored = new_array(array.shape, numpy_dtype(dtype))
    stored[...] = array
    return stored
