"""Tests for half-precision and other floating types."""

from __future__ import annotations

from typing import Any

import numpy as np

_HALF_NAMES = frozenset({"float16", "bfloat16"})


def is_half(x: Any) -> bool:
    """True for an array of float16 or bfloat16."""
    return isinstance(x, (np.ndarray, np.generic)) and x.dtype.name in _HALF_NAMES


def is_float(dtype: np.dtype) -> bool:
    """True for every floating type, those of ml_dtypes included."""
    return bool(np.issubdtype(dtype, np.floating)) or dtype.name.startswith(("bfloat", "float"))
