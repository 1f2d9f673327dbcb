"""Types of values: tensor, sequence, optional, map; or None before inference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import attrs
import numpy as np

from partita.graph.errors import TypeMismatch

Array = np.ndarray[Any, Any]
"""An array of any element type and shape."""

Dim = int | str | None
"""A dimension: a size, a symbol, or None if it is unknown."""

HALVES = frozenset(("float16", "bfloat16"))
"""The 16-bit float types."""


def _shape(value: Any) -> tuple[Dim, ...] | None:
    if value is None:
        return None
    if isinstance(value, (int, str)) or not isinstance(value, Iterable):
        remedy = f"Write ({value!r},)" if isinstance(value, (int, str)) else 'Write (1, 3, "N")'
        raise TypeMismatch(f"a shape is a sequence of dimensions, not {value!r:.80}", remedy=remedy)
    return tuple(map(_dim, value))


def require_shapes(shapes: Any) -> None:
    """Raises an error unless these are shapes by name."""
    if not isinstance(shapes, Mapping):
        raise TypeMismatch(
            f"shapes are given by the inputs' names, not as {type(shapes).__name__}", remedy='Write {"x": (1, 3, 224, 224)}'
        )


def _dim(value: Any) -> Dim:
    if value is None or value == "?":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if value < 0:
            raise TypeMismatch(
                f"a dimension cannot be {value}", remedy="Use a string for a symbolic dimension, None for an unknown one"
            )
        if value >= 1 << 63:
            raise TypeMismatch(f"a dimension cannot be {float(value):.3g}", remedy="The largest is 2**63 - 1")
        return int(value)
    raise TypeMismatch(f"a dimension is an integer, a string or None, not {value!r}")


def dtype_name(dtype: Any) -> str:
    """Partita's name of a dtype: numpy's (including ml_dtypes), and "string"."""
    if isinstance(dtype, str) and dtype in DTYPE_NAMES:
        return dtype
    if isinstance(dtype, np.dtype):
        return _name_of(dtype)
    if dtype is str or dtype is object or dtype == "str":
        return "string"
    try:
        return _name_of(np.dtype(dtype))
    except TypeError:
        raise TypeMismatch(f"{dtype!r} is not a dtype", remedy=f"Use one of {', '.join(sorted(DTYPE_NAMES))}") from None


@lru_cache(256)
def _name_of(numpy_dtype: np.dtype[Any]) -> str:
    name = "string" if numpy_dtype.kind in "OSUT" else numpy_dtype.name
    if name not in DTYPE_NAMES:
        raise TypeMismatch(f"no ONNX tensor can hold {name}", remedy=f"Use one of {', '.join(sorted(DTYPE_NAMES))}")
    return name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of that name (strings are object arrays); narrow floats and integers come from ml_dtypes. TypeError
    for any other name, even one that numpy would parse."""
    if name not in DTYPE_NAMES:
        raise TypeError(f"there is no element type {name!r:.80}")
    if name == "string":
        return np.dtype(object)
    if name in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


_ML_DTYPES = frozenset(
    "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn "
    "float6_e2m3fn float6_e3m2fn int4 uint4 int2 uint2".split()
)
DTYPE_NAMES = _ML_DTYPES | frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 string".split()
)
"""The element types that a tensor may have."""


@attrs.frozen(slots=True, cache_hash=False)
class TensorType:
    """A dense tensor: its element type and, if known, its shape."""

    dtype: str = attrs.field(converter=dtype_name)
    """Element type by numpy's name, or "string"."""
    shape: tuple[Dim, ...] | None = attrs.field(default=None, converter=_shape)
    """Sizes; a string is a symbolic dimension, None an unknown one. A shape of None means unknown rank."""

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None."""
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """True if all sizes are integers."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def nbytes(self) -> int | None:
        """Bytes of such an array in memory; None if a size is not static, or for strings."""
        if self.shape is None or self.dtype == "string":
            return None
        sizes = [d for d in self.shape if isinstance(d, int)]
        return math.prod(sizes) * numpy_dtype(self.dtype).itemsize if len(sizes) == len(self.shape) else None

    def __str__(self) -> str:
        if self.shape is None:
            return self.dtype
        return f"{self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"


@attrs.frozen(slots=True)
class SparseTensorType:
    """A sparse tensor, as declared by some ONNX ops."""

    dtype: str = attrs.field(converter=dtype_name)
    """Element type."""
    shape: tuple[Dim, ...] | None = attrs.field(default=None, converter=_shape)
    """Shape of the dense tensor."""

    def __str__(self) -> str:
        return f"sparse({TensorType(self.dtype, self.shape)})"


@attrs.frozen(slots=True)
class SequenceType:
    """A sequence of values of one type."""

    element: Type | None = None
    """The type of each element."""

    def __str__(self) -> str:
        return f"sequence({'?' if self.element is None else self.element})"


@attrs.frozen(slots=True)
class OptionalType:
    """A value that may be absent."""

    element: Type | None = None
    """The type of the value, if present."""

    def __str__(self) -> str:
        return f"optional({'?' if self.element is None else self.element})"


@attrs.frozen(slots=True)
class MapType:
    """A map from a key to a value, as the classifiers of ai.onnx.ml return it."""

    key: str = attrs.field(converter=dtype_name)
    """The keys' element type."""
    value: Type | None = None
    """The values' type."""

    def __str__(self) -> str:
        return f"map({self.key}, {'?' if self.value is None else self.value})"


Type = TensorType | SparseTensorType | SequenceType | OptionalType | MapType
"""The type of a value."""
