"""Lays arrays out in memory: contiguous, and at addresses that a device can take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from partita.graph.types import TensorType, Type, numpy_dtype

HOST = "host"
"""The memory of numpy arrays."""


def is_laid_out(array: np.ndarray[Any, Any], alignment: int) -> bool:
    """Is it C-contiguous, and its address a multiple of the alignment? A device that wants more than numpy allots shares memory
    with others, by DLPack or the like, which read-only arrays do not."""
    flags = array.flags
    if not flags.c_contiguous:
        return False
    if alignment <= 1 or (alignment <= ALLOCATED and array.base is None):
        return True
    if alignment > ALLOCATED and not flags.writeable:
        return False
    return not array.__array_interface__["data"][0] % alignment


ALLOCATED = 16
"""Memory that numpy allots itself begins at multiples of this, as malloc's does; to ask for an address costs a microsecond."""


def laid_out(value: Any, alignment: int) -> Any:
    """The value, copied if it is an array that the device cannot take as it is."""
    if not isinstance(value, np.ndarray) or is_laid_out(value, alignment):
        return value
    if alignment <= 1 or value.dtype.hasobject:
        return np.array(value, order="C")
    aligned = aligned_empty(value.shape, value.dtype, alignment)
    aligned[...] = value
    return aligned


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    """An array with no content yet, at an address that is a multiple of the alignment."""
    size = math.prod(shape) * dtype.itemsize
    return aligned_block(size, alignment)[:size].view(dtype).reshape(shape)


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    """An array of zeros at such an address. Memory of a large one that nothing is written to is not taken."""
    size = math.prod(shape) * dtype.itemsize
    return _aligned(np.zeros(size + alignment, np.uint8), size, alignment).view(dtype).reshape(shape)


def aligned_block(size: int, alignment: int) -> np.ndarray[Any, Any]:
    """At least so many bytes from an address that is a multiple of the alignment."""
    return _aligned(np.empty(size + alignment, np.uint8), size, alignment)


def _aligned(raw: np.ndarray[Any, Any], size: int, alignment: int) -> np.ndarray[Any, Any]:
    start = -raw.__array_interface__["data"][0] % alignment
    return raw[start : start + size]


def array_layout(kind: Type | None) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype and sizes of the arrays of a type, where they are known and take a fixed number of bytes."""
    if not isinstance(kind, TensorType) or not kind.is_static or kind.dtype == "string":
        return None
    return numpy_dtype(kind.dtype), tuple(int(d) for d in kind.shape or ())  # type: ignore[arg-type]
