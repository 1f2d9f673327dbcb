"""Weights in the type that a kernel stores them in.

A large constant of the user's that becomes narrow keeps its array until its kernel's layout is made of it: its node alone says
the narrow type. So there is no third copy between the user's weights and the kernels'."""

from __future__ import annotations

import numpy as np

from graph.new_array import new_array
from graph.types import Array, dtype_name, numpy_dtype

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
