"""ONNX's messages, for the reader and the writer: here types, beside it the notes that bring a graph back, and captured names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.graph.errors import ReadError
from partita.graph.types import (
    BY_NUMBER,
    ELEMENT_TYPES,
    Dim,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    Type,
)

FIRST_IR = {"sparse": 8, "optional": 8}
"""The first IR version that has this kind of type."""


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
    name = BY_NUMBER.get(number)
    if name is None:
        raise ReadError(f"there is no element type {number}", where=where)
    return name


def write_type(proto: Any, value_type: Type | None) -> None:
    """Fills a TypeProto; an unknown type leaves it empty."""
    if isinstance(value_type, (TensorType, SparseTensorType)):
        value = proto.tensor_type if isinstance(value_type, TensorType) else proto.sparse_tensor_type
        value.elem_type = ELEMENT_TYPES[value_type.dtype].number
        if value_type.shape is not None:
            _write_shape(value.shape, value_type.shape)
    elif isinstance(value_type, SequenceType):
        proto.sequence_type.SetInParent()
        write_type(proto.sequence_type.elem_type, value_type.element)
    elif isinstance(value_type, OptionalType):
        proto.optional_type.SetInParent()
        write_type(proto.optional_type.elem_type, value_type.element)
    elif isinstance(value_type, MapType):
        proto.map_type.key_type = ELEMENT_TYPES[value_type.key].number
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
        return ELEMENT_TYPES[value_type.dtype].first_ir
    if isinstance(value_type, SparseTensorType):
        return max(FIRST_IR["sparse"], ELEMENT_TYPES[value_type.dtype].first_ir)
    if isinstance(value_type, OptionalType):
        return max(FIRST_IR["optional"], first_ir(value_type.element))
    if isinstance(value_type, SequenceType):
        return first_ir(value_type.element)
    return first_ir(value_type.value) if isinstance(value_type, MapType) else 1
