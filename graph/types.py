"""Types of values: tensor, sequence, optional, map; or None before inference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

import attrs
import numpy as np

from partita.graph.errors import TypeMismatch

Array = np.ndarray[Any, Any]
"""An array of any element type and shape."""

Dim = int | str | None
"""A dimension: a size, a symbol, or None if it is unknown."""

@attrs.frozen(slots=True)
class ElementType:
    """A row of `ELEMENT_TYPES`."""

    name: str
    """Its name here, in numpy, `ml_dtypes`, torch and TVM."""
    number: int
    """Its number in ONNX."""
    kind: Literal["float", "int", "uint", "bool", "complex", "string"]
    """Its kind of arithmetic."""
    bits: int = 0
    """Bits of an element. In files, elements narrower than a byte are packed; numpy's arrays have a byte for each."""
    short: str = ""
    """Its name in the text of kernels, if they compute with it, and as a PRECISION."""
    onnx: str = ""
    """Its name in ONNX's schemas, if it is another."""
    mxnet: int | None = None
    """Its number in MXNet and NNVM, if they have it."""
    first_ir: int = 1
    """The first of ONNX's IR versions that has it."""
    is_extension: bool = False
    """True if numpy has it by `ml_dtypes` only."""


ELEMENT_TYPES = {
    row.name: row
    for row in (
        ElementType("float32", 1, "float", 32, "f32", onnx="float", mxnet=0),
        ElementType("uint8", 2, "uint", 8, "u8", mxnet=3),
        ElementType("int8", 3, "int", 8, "i8", mxnet=5),
        ElementType("uint16", 4, "uint", 16, "u16", mxnet=9),
        ElementType("int16", 5, "int", 16, "i16", mxnet=8),
        ElementType("int32", 6, "int", 32, "i32", mxnet=4),
        ElementType("int64", 7, "int", 64, "i64", mxnet=6),
        ElementType("string", 8, "string"),
        ElementType("bool", 9, "bool", 8, "bool", mxnet=7),
        ElementType("float16", 10, "float", 16, "f16", mxnet=2),
        ElementType("float64", 11, "float", 64, "f64", onnx="double", mxnet=1),
        ElementType("uint32", 12, "uint", 32, "u32", mxnet=10),
        ElementType("uint64", 13, "uint", 64, "u64", mxnet=11),
        ElementType("complex64", 14, "complex", 64),
        ElementType("complex128", 15, "complex", 128),
        ElementType("bfloat16", 16, "float", 16, "bf16", mxnet=12, is_extension=True),
        ElementType("float8_e4m3fn", 17, "float", 8, onnx="float8e4m3fn", first_ir=9, is_extension=True),
        ElementType("float8_e4m3fnuz", 18, "float", 8, onnx="float8e4m3fnuz", first_ir=9, is_extension=True),
        ElementType("float8_e5m2", 19, "float", 8, onnx="float8e5m2", first_ir=9, is_extension=True),
        ElementType("float8_e5m2fnuz", 20, "float", 8, onnx="float8e5m2fnuz", first_ir=9, is_extension=True),
        ElementType("uint4", 21, "uint", 4, first_ir=10, is_extension=True),
        ElementType("int4", 22, "int", 4, first_ir=10, is_extension=True),
        ElementType("float4_e2m1fn", 23, "float", 4, onnx="float4e2m1", first_ir=11, is_extension=True),
        ElementType("float8_e8m0fnu", 24, "float", 8, onnx="float8e8m0", first_ir=12, is_extension=True),
        ElementType("uint2", 25, "uint", 2, first_ir=13, is_extension=True),
        ElementType("int2", 26, "int", 2, first_ir=13, is_extension=True),
        ElementType("float6_e2m3fn", 27, "float", 6, onnx="float6e2m3", first_ir=14, is_extension=True),
        ElementType("float6_e3m2fn", 28, "float", 6, onnx="float6e3m2", first_ir=14, is_extension=True),
    )
}
"""The element types that a tensor may have, by name."""

BY_NUMBER = {row.number: row.name for row in ELEMENT_TYPES.values()}
"""The element type of each of ONNX's numbers."""

BY_ONNX_NAME = {row.onnx or row.name: row.name for row in ELEMENT_TYPES.values()}
"""The element types by their names in ONNX's schemas."""

BY_MXNET_NUMBER = {row.mxnet: row.name for row in ELEMENT_TYPES.values() if row.mxnet is not None}
"""The element type of each of MXNet's numbers."""

BY_SHORT_NAME = {row.short: row.name for row in ELEMENT_TYPES.values() if row.short}
"""The element type that a PRECISION names, or the text of a kernel."""

PACKED = {row.name: row.bits for row in ELEMENT_TYPES.values() if 0 < row.bits < 8}
"""Bits of the element types narrower than a byte."""

HALVES = frozenset(row.name for row in ELEMENT_TYPES.values() if row.kind == "float" and row.bits == 16)
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
    if isinstance(dtype, str) and dtype in ELEMENT_TYPES:
        return dtype
    if isinstance(dtype, np.dtype):
        return _name_of(dtype)
    if dtype is str or dtype is object or dtype == "str":
        return "string"
    try:
        return _name_of(np.dtype(dtype))
    except TypeError:
        raise TypeMismatch(f"{dtype!r} is not a dtype", remedy=f"Use one of {', '.join(sorted(ELEMENT_TYPES))}") from None


@lru_cache(256)
def _name_of(numpy_dtype: np.dtype[Any]) -> str:
    name = "string" if numpy_dtype.kind in "OSUT" else numpy_dtype.name
    if name not in ELEMENT_TYPES:
        raise TypeMismatch(f"no ONNX tensor can hold {name}", remedy=f"Use one of {', '.join(sorted(ELEMENT_TYPES))}")
    return name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of that name (strings are object arrays); narrow floats and integers come from ml_dtypes. TypeError
    for any other name, even one that numpy would parse."""
    if name not in ELEMENT_TYPES:
        raise TypeError(f"there is no element type {name!r:.80}")
    if name == "string":
        return np.dtype(object)
    if ELEMENT_TYPES[name].is_extension:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


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
