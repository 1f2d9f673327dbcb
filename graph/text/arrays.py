"""Arrays in the text form: small ones as exact values, large ones as references, others as bytes."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np

from partita.graph.errors import WriteError
from partita.graph.text.digests import digest, raw_bytes
from partita.graph.text.words import quoted, quoted_bytes
from partita.graph.types import Array, TensorType, dtype_name, numpy_dtype

PACKED = 64
"""Arrays with more elements than this are written in base64 if references are not allowed."""


def array_type(array: Array) -> TensorType:
    """The type of a constant with this array."""
    return TensorType(dtype_name(array.dtype), array.shape)


def print_payload(array: Array, big: int | None) -> str:
    """The array's content without its type: a value, a list of values in C order, `#hash` or `base64 "..."`.

    With `big=None` no array is written as a reference."""
    if big is not None and array.size > big:
        return f"#{digest(array)}"
    name = dtype_name(array.dtype)
    if name != "string" and big is None and array.size > PACKED:
        return packed(array)
    items = _spelled(array, name)
    if items is None:
        return packed(array)
    return f"[{', '.join(items)}]" if array.ndim else items[0]


def packed(array: Array) -> str:
    """The array's bytes in base64."""
    return f'base64 "{base64.b64encode(raw_bytes(array)).decode()}"'


def _spelled(array: Array, name: str) -> list[str] | None:
    """Each element as a literal; None if literals would lose bits (the payload of a NaN)."""
    flat = array.reshape(-1)
    if name == "string":
        return [_spelled_string(item) for item in flat.tolist()]
    if name == "bool":
        return ["true" if item else "false" for item in flat.tolist()]
    if "int" in name:
        return [str(int(item)) for item in flat]
    if name.startswith("complex"):
        items = [f"({item.real!r}, {item.imag!r})" for item in flat.tolist()]
        numbers: list[Any] = [complex(float(repr(item.real)), float(repr(item.imag))) for item in flat.tolist()]
    else:
        items = [str(item) if name in ("float16", "float32") else repr(float(item)) for item in flat]
        numbers = list(map(float, items))
    return items if raw_bytes(from_numbers(name, numbers)) == raw_bytes(flat) else None


def _spelled_string(item: Any) -> str:
    if isinstance(item, bytes):
        return quoted_bytes(item)
    if isinstance(item, str):
        return quoted(item)
    raise WriteError(f"an array of strings holds {item!r:.60}", remedy="Make it of str (or bytes) alone")


def from_numbers(name: str, numbers: list[Any]) -> Array:
    """A flat array of that dtype. ValueError if a number does not fit."""
    dtype = numpy_dtype(name)
    if name == "string":
        array = np.empty(len(numbers), dtype)
        array[:] = numbers
        return array
    if "int" in name:
        wide = np.array(numbers, dtype=object)
        try:
            array = wide.astype(np.uint64 if name == "uint64" else np.int64).astype(dtype)
        except (OverflowError, ValueError):
            raise ValueError(f"a number that does not fit {name}") from None
        if any(int(a) != b for a, b in zip(array, numbers, strict=True)):
            raise ValueError(f"a number that does not fit {name}")
        return array
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        wide_type = np.complex128 if name.startswith("complex") else np.bool_ if name == "bool" else np.float64
        return np.array(numbers, dtype=wide_type).astype(dtype)


def from_base64(array_type: TensorType, text: str) -> Array:
    """The array with these bytes; ValueError if their number does not match the type."""
    dtype = numpy_dtype(array_type.dtype)
    if dtype.hasobject:
        raise ValueError("bytes for strings")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("text that is not base64") from None
    if len(data) != element_count(array_type) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes, which do not make {array_type}")
    if array_type.dtype == "bool" and data.strip(b"\x00\x01"):
        raise ValueError("a byte that is neither true nor false")
    little = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    return shaped(array_type, little)


def element_count(array_type: TensorType) -> int:
    """Number of elements of an array of this static type."""
    return math.prod(array_type.shape)  # type: ignore[arg-type]


def shaped(array_type: TensorType, flat: Array) -> Array:
    """The flat array in the type's shape."""
    return flat.reshape(array_type.shape)
