"""Writes arrays as TensorProtos."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from partita.graph.types import ELEMENT_TYPES, PACKED, Array, dtype_name

EXTERNAL_FROM = 1024
"""Arrays of fewer bytes are always stored in the model itself."""


class ExternalFile(Protocol):
    """A separate file for large arrays."""

    location: str
    """Its name in the model."""

    def add(self, array: Array) -> tuple[int, int]:
        """Appends the array; returns its offset and length."""


def write_tensor(proto: Any, array: Array, name: str = "", aside: ExternalFile | None = None) -> None:
    """Fills a TensorProto; with `aside` a large array goes there."""
    dtype = dtype_name(array.dtype)
    proto.data_type = ELEMENT_TYPES[dtype].number
    proto.dims.extend(array.shape)
    if name:
        proto.name = name
    if dtype == "string":
        proto.string_data.extend([_bytes(item) for item in array.reshape(-1)])
    elif aside is not None and array.nbytes >= EXTERNAL_FROM:
        _refer(proto, aside, packed(array, dtype))
    else:
        proto.raw_data = packed(array, dtype).tobytes()


def packed(array: Array, dtype: str) -> Array:
    """The array as stored in a file: elements narrower than a byte are packed, the first in the lowest bits."""
    if dtype not in PACKED:
        return array
    bits = PACKED[dtype]
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    stream = np.unpackbits(flat[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(stream.reshape(-1), bitorder="little")


def _refer(proto: Any, aside: ExternalFile, data: Array) -> None:
    offset, length = aside.add(data)
    proto.data_location = 1
    for key, value in (("location", aside.location), ("offset", str(offset)), ("length", str(length))):
        item = proto.external_data.add()
        item.key, item.value = key, value


def _bytes(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()
