"""Memory layout of arrays: contiguous, and aligned for a device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from partita.graph.types import TensorType, Type, numpy_dtype

HOST = "host"
"""The memory of numpy arrays."""


def is_laid_out(array: np.ndarray[Any, Any], alignment: int) -> bool:
    """True if the array is C-contiguous and aligned. A device with a larger alignment than numpy's exchanges memory through
    DLPack or the like, which rejects read-only arrays."""
    flags = array.flags
    if not flags.c_contiguous:
        return False
    if alignment <= 1 or (alignment <= ALLOCATED and array.base is None):
        return True
    if alignment > ALLOCATED and not flags.writeable:
        return False
    return not array.__array_interface__["data"][0] % alignment


ALLOCATED = 16
"""numpy's own allocations are multiples of this, as malloc's are. Reading an address takes a microsecond."""


def laid_out(value: Any, alignment: int) -> Any:
    """The value, copied if it is an array that the device cannot read in place."""
    if not isinstance(value, np.ndarray) or is_laid_out(value, alignment):
        return value
    if alignment <= 1 or value.dtype.hasobject:
        return np.array(value, order="C")
    aligned = aligned_empty(value.shape, value.dtype, alignment)
    aligned[...] = value
    return aligned


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    """An uninitialized array at an aligned address."""
    size = math.prod(shape) * dtype.itemsize
    return aligned_block(size, alignment)[:size].view(dtype).reshape(shape)


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any], alignment: int) -> np.ndarray[Any, Any]:
    """An array of zeros at an aligned address. Pages of a large one take no memory until they are written to."""
    size = math.prod(shape) * dtype.itemsize
    return _aligned(np.zeros(size + alignment, np.uint8), size, alignment).view(dtype).reshape(shape)


def aligned_block(size: int, alignment: int) -> np.ndarray[Any, Any]:
    """At least `size` bytes at an aligned address."""
    return _aligned(np.empty(size + alignment, np.uint8), size, alignment)


def _aligned(raw: np.ndarray[Any, Any], size: int, alignment: int) -> np.ndarray[Any, Any]:
    start = -raw.__array_interface__["data"][0] % alignment
    return raw[start : start + size]


def array_layout(kind: Type | None) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype and sizes of the arrays of a type, if they are static and of fixed size in bytes."""
    if not isinstance(kind, TensorType) or not kind.is_static or kind.dtype == "string":
        return None
    return numpy_dtype(kind.dtype), tuple(int(d) for d in kind.shape or ())  # type: ignore[arg-type]


def array_ids(values: Iterable[Any]) -> set[int]:
    """The identities of these arrays, including those inside sequences."""
    ids: set[int] = set()
    for value in values:
        ids |= array_ids(value) if isinstance(value, list) else {id(value)}
    return ids


def owned(values: Sequence[Any], foreign: set[int], out: Sequence[Any] | None = None) -> list[Any]:
    """The values in memory that nothing else uses: in `out` if it fits, else in place if they own their memory, else copied.

    `foreign` are the identities of arrays that have another owner. Each returned array is added, so that no two of the
    values are the same array."""
    targets = out if out is not None else (None,) * len(values)
    return [_owned(value, target, foreign) for value, target in zip(values, targets, strict=True)]


def _owned(value: Any, target: np.ndarray[Any, Any] | None, foreign: set[int]) -> Any:
    if isinstance(value, list):
        return [_owned(item, None, foreign) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    if target is not None and target.shape == value.shape and target.dtype == value.dtype:
        np.copyto(target, value)
        return target
    fresh = value.flags.owndata and value.flags.c_contiguous and id(value) not in foreign
    array = value if fresh else np.array(value, order="C")
    foreign.add(id(array))
    return array
