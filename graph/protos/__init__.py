"""ONNX's messages, for the reader and the writer: here types, beside it the notes that bring a graph back, and captured names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.graph.errors import ReadError
from partita.graph.types import Dim, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

DTYPE_NUMBERS: dict[str, int] = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
    "uint4": 21,
    "int4": 22,
    "float4_e2m1fn": 23,
    "float8_e8m0fnu": 24,
    "uint2": 25,
    "int2": 26,
    "float6_e2m3fn": 27,
    "float6_e3m2fn": 28,
}
"""ONNX's number of each element type."""

DTYPE_NAMES = {number: name for name, number in DTYPE_NUMBERS.items()}
"""The element type of each of ONNX's numbers."""

FIRST_IR = {
    "sparse": 8, "optional": 8,
    "float8_e4m3fn": 9, "float8_e4m3fnuz": 9, "float8_e5m2": 9, "float8_e5m2fnuz": 9,
    "uint4": 10, "int4": 10, "float4_e2m1fn": 11, "float8_e8m0fnu": 12, "uint2": 13, "int2": 13,
    "float6_e2m3fn": 14, "float6_e3m2fn": 14,
}
"""The first IR version that has this element type or kind of type, if it is not in the oldest one that we write."""


class TypeReader:
    """Reads TypeProtos; equal ones give one object, and known symbols are replaced by their sizes."""

    def __init__(self, symbols: Mapping[str, int] | None = None) -> None:
        self.symbols = dict(symbols or {})
        self._made: dict[bytes, Type | None] = {}

    def read(self, proto: Any, where: str) -> Type | None:
        """The type; None if it is not set."""
        key = proto.SerializeToString()
        if key not in self._made:
            self._made[key] = self._read(proto, where)
        return self._made[key]

    def forget(self) -> None:
        """Clears the cache after the symbols have changed."""
        self._made.clear()

    def _read(self, proto: Any, where: str) -> Type | None:
        kind = proto.WhichOneof("value")
        if kind is None:
            return None
        value = getattr(proto, kind)
        if kind in ("tensor_type", "sparse_tensor_type"):
            if not value.elem_type:
                return None
            type_class = SparseTensorType if kind == "sparse_tensor_type" else TensorType
            return type_class(dtype_of(value.elem_type, where), self._shape(value))
        if kind == "sequence_type":
            return SequenceType(self._read(value.elem_type, where))
        if kind == "optional_type":
            return OptionalType(self._read(value.elem_type, where))
        if kind == "map_type":
            return MapType(dtype_of(value.key_type, where), self._read(value.value_type, where))
        raise ReadError(f"a value of {kind} is nothing that Partita can hold", where=where)

    def _shape(self, value: Any) -> tuple[Dim, ...] | None:
        if not value.HasField("shape"):
            return None
        return tuple([self._dim(dim) for dim in value.shape.dim])

    def _dim(self, dim: Any) -> Dim:
        if dim.HasField("dim_value"):
            return dim.dim_value if dim.dim_value >= 0 else None
        symbol = dim.dim_param
        return self.symbols.get(symbol, symbol) or None if symbol else None


def dtype_of(number: int, where: str) -> str:
    """The element type with this number in ONNX."""
    name = DTYPE_NAMES.get(number)
    if name is None:
        raise ReadError(f"there is no element type {number}", where=where)
    return name


def write_type(proto: Any, value_type: Type | None) -> None:
    """Fills a TypeProto; an unknown type leaves it empty."""
    if isinstance(value_type, (TensorType, SparseTensorType)):
        value = proto.tensor_type if isinstance(value_type, TensorType) else proto.sparse_tensor_type
        value.elem_type = DTYPE_NUMBERS[value_type.dtype]
        if value_type.shape is not None:
            _write_shape(value.shape, value_type.shape)
    elif isinstance(value_type, SequenceType):
        proto.sequence_type.SetInParent()
        write_type(proto.sequence_type.elem_type, value_type.element)
    elif isinstance(value_type, OptionalType):
        proto.optional_type.SetInParent()
        write_type(proto.optional_type.elem_type, value_type.element)
    elif isinstance(value_type, MapType):
        proto.map_type.key_type = DTYPE_NUMBERS[value_type.key]
        write_type(proto.map_type.value_type, value_type.value)


def _write_shape(proto: Any, shape: tuple[Dim, ...]) -> None:
    proto.SetInParent()
    for size in shape:
        dim = proto.dim.add()
        if isinstance(size, str):
            dim.dim_param = size
        elif size is not None:
            dim.dim_value = size


def first_ir(value_type: Type | None) -> int:
    """The first IR version that can express this type."""
    if isinstance(value_type, TensorType):
        return FIRST_IR.get(value_type.dtype, 1)
    if isinstance(value_type, SparseTensorType):
        return max(FIRST_IR["sparse"], FIRST_IR.get(value_type.dtype, 1))
    if isinstance(value_type, OptionalType):
        return max(FIRST_IR["optional"], first_ir(value_type.element))
    if isinstance(value_type, SequenceType):
        return first_ir(value_type.element)
    return first_ir(value_type.value) if isinstance(value_type, MapType) else 1
