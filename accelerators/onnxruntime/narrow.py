"""Element types that onnxruntime has, and that numpy has only through ml_dtypes."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from partita.graph.protos import DTYPE_NUMBERS
from partita.graph.readers.onnx.tensors import BITS, byte_size, unpacked
from partita.graph.types import TensorType, dtype_name, numpy_dtype
from partita.graph.writers.onnx.tensors import packed

_NATIVE = frozenset("?bhilqBHILQefdgFDGO")


def is_narrow(dtype: Any) -> bool:
    """True for an element type that is not numpy's own."""
    if dtype is None:
        return False
    numpy_kind = numpy_dtype(dtype) if isinstance(dtype, str) else dtype
    return numpy_kind.kind != "U" and (numpy_kind.char not in _NATIVE or numpy_kind.kind == "V")


def to_engine(value: np.ndarray[Any, Any]) -> Any:
    """Converts the array to onnxruntime's own value."""
    from onnxruntime import OrtValue

    if not is_narrow(value.dtype):
        return OrtValue.ortvalue_from_numpy(_contiguous(value))
    name = dtype_name(value.dtype)
    if name in BITS:
        ort_value = OrtValue.ortvalue_from_shape_and_type(list(value.shape), DTYPE_NUMBERS[name])
        data = packed(value, name)
        ctypes.memmove(ort_value.data_ptr(), data.ctypes.data, data.nbytes)
        return ort_value
    held = _contiguous(value).view(np.uint16 if value.dtype.itemsize == 2 else np.uint8)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(held, DTYPE_NUMBERS[name])


def _contiguous(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(value).reshape(value.shape)


def from_engine(value: Any, value_type: Any) -> Any:
    """Converts onnxruntime's value to an array; `value_type` is its type."""
    if not isinstance(value_type, TensorType) or not is_narrow(value_type.dtype):
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape))
    data = np.empty(byte_size(value_type.dtype, size), np.uint8)
    ctypes.memmove(data.ctypes.data, value.data_ptr(), data.nbytes)
    if value_type.dtype in BITS:
        return unpacked(data, BITS[value_type.dtype], size).view(numpy_dtype(value_type.dtype)).reshape(shape)
    return data.view(numpy_dtype(value_type.dtype)).reshape(shape)
