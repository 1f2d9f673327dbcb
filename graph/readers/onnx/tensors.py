"""Converts TensorProtos to arrays: sizes are checked against the data before anything is allocated."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.graph.errors import ReadError
from partita.graph.protos import dtype_of
from partita.graph.readers.onnx.source import utf8
from partita.graph.sparse import SparseTensor
from partita.graph.types import PACKED, Array, numpy_dtype

DENSE_LIMIT = 64 << 20
"""Maximum bytes of a sparse tensor that is made dense."""

_EXTERNAL = 1


def read_tensor(proto: Any, folder: str | None, where: str, raw: Array | None = None) -> Array:
    """The array, read-only if it is a view of the file's bytes; `raw` is its raw data if that was read separately."""
    dtype = dtype_of(proto.data_type, where)
    shape = tuple(proto.dims)
    size = checked_size(shape, where)
    if proto.HasField("segment"):
        raise ReadError("tensors in segments are not supported", where=where)
    if dtype == "string":
        return _strings(proto, shape, size, where, raw)
    wanted = byte_size(dtype, size)
    if proto.data_location == _EXTERNAL:
        return _from_bytes(map_external(proto, folder, wanted, where), dtype, shape, size)
    if raw is None and proto.HasField("raw_data"):
        raw = np.frombuffer(proto.raw_data, np.uint8)
    if raw is not None:
        if len(raw) != wanted:
            raise _mismatch(dtype, shape, wanted, f"{len(raw)} bytes", where)
        return _from_bytes(raw, dtype, shape, size)
    return _from_field(proto, dtype, shape, size, where)


def read_sparse(proto: Any, folder: str | None, where: str) -> SparseTensor:
    """A sparse tensor, with its indices checked."""
    values = read_tensor(proto.values, folder, where)
    indices = read_tensor(proto.indices, folder, where)
    shape = tuple(proto.dims)
    size = checked_size(shape, where)
    fits = values.ndim == 1 and indices.dtype == np.int64 and len(indices) == len(values)
    if not fits or indices.ndim not in (1, 2) or (indices.ndim == 2 and indices.shape[1] != len(shape)):
        raise ReadError("the values and indices of a sparse tensor do not match", where=where)
    ends = np.asarray([size] if indices.ndim == 1 else shape)
    if indices.size and (indices.min() < 0 or (indices.reshape(len(values), -1) >= ends).any()):
        raise ReadError("an index of a sparse tensor is out of range", where=where)
    return SparseTensor(values, indices, shape)


def read_dense(proto: Any, folder: str | None, where: str) -> Array:
    """A sparse tensor as a dense array; a large one is an error, since its size is only declared."""
    sparse = read_sparse(proto, folder, where)
    taken = math.prod(sparse.shape) * sparse.values.dtype.itemsize
    if taken > DENSE_LIMIT:
        raise ReadError(
            f"a sparse tensor would take {taken} bytes as a dense one; the limit is {DENSE_LIMIT}", where=where
        )
    return sparse.dense()


def checked_size(shape: tuple[int, ...], where: str) -> int:
    """The number of elements of a tensor of this shape, checked for plausibility."""
    if any(dim < 0 for dim in shape):
        raise ReadError(f"a tensor declares the impossible shape {list(shape)}", where=where)
    if len(shape) > 64:
        raise ReadError(f"a tensor declares {len(shape)} dimensions; numpy has 64 at most", where=where)
    size = math.prod(shape)
    if size == 0 and math.prod(dim or 1 for dim in shape) >= 1 << 58:
        raise ReadError(f"a tensor declares the impossible shape {list(shape)}", where=where)
    return size


def byte_size(dtype: str, size: int) -> int:
    """Bytes of `size` elements in a file."""
    if dtype in PACKED:
        return (size * PACKED[dtype] + 7) // 8
    return size * numpy_dtype(dtype).itemsize


def _mismatch(dtype: str, shape: tuple[int, ...], wanted: int, held: str, where: str) -> ReadError:
    return ReadError(f"a tensor {dtype}{list(shape)} takes {wanted} bytes, and the file holds {held}", where=where)


def _from_bytes(data: Array, dtype: str, shape: tuple[int, ...], size: int) -> Array:
    """A view of these bytes, whose number must be exact, as an array; a copy if they need conversion."""
    if dtype in PACKED:
        return unpacked(data, PACKED[dtype], size).view(numpy_dtype(dtype)).reshape(shape)
    if dtype == "bool" and size and data.max() > 1:
        return (data != 0).reshape(shape)
    return data.view(numpy_dtype(dtype)).reshape(shape)


def unpacked(data: Array, bits: int, size: int) -> Array:
    """One byte per element of a stream of narrow elements, the lowest bits first."""
    if bits == 6:
        stream = np.unpackbits(data, bitorder="little")[: size * 6].reshape(size, 6)
        return np.packbits(stream, axis=1, bitorder="little").reshape(size)
    per_byte = 8 // bits
    numbers = np.empty(len(data) * per_byte, np.uint8)
    for i in range(per_byte):
        numbers[i::per_byte] = (data >> (bits * i)) & ((1 << bits) - 1)
    return numbers[:size]


def _from_field(proto: Any, dtype: str, shape: tuple[int, ...], size: int, where: str) -> Array:
    """The array of a tensor whose elements are in a typed field."""
    field = _field(dtype)
    data = getattr(proto, field)
    pairs = 2 if dtype.startswith("complex") else 1
    packed = dtype in PACKED and PACKED[dtype] != 6
    held = byte_size(dtype, size) if packed else size * pairs
    if len(data) != held:
        raise ReadError(
            f"a tensor {dtype}{list(shape)} takes {held} numbers in {field}, and there are {len(data)}", where=where
        )
    if packed:
        return _from_bytes(np.array(data, np.int32).astype(np.uint8), dtype, shape, size)
    if field != "int32_data":
        base = {"float_data": np.float32, "double_data": np.float64, "int64_data": np.int64, "uint64_data": np.uint64}
        raw = np.array(data, base[field])
        return raw.view(numpy_dtype(dtype)).reshape(shape) if pairs == 2 else raw.astype(numpy_dtype(dtype)).reshape(shape)
    numbers = np.array(data, np.int32)
    if dtype == "bool":
        return (numbers != 0).reshape(shape)
    target = numpy_dtype(dtype)
    if target.kind in "iu":
        return numbers.astype(target).reshape(shape)
    if dtype in PACKED:
        numbers &= 0x3F
    return numbers.astype(np.uint16 if target.itemsize == 2 else np.uint8).view(target).reshape(shape)


def _field(dtype: str) -> str:
    if dtype in ("float32", "complex64"):
        return "float_data"
    if dtype in ("float64", "complex128"):
        return "double_data"
    if dtype in ("uint32", "uint64"):
        return "uint64_data"
    return "int64_data" if dtype == "int64" else "int32_data"


def _strings(proto: Any, shape: tuple[int, ...], size: int, where: str, raw: Array | None) -> Array:
    if raw is not None or proto.HasField("raw_data") or proto.data_location == _EXTERNAL:
        raise ReadError("strings cannot be stored as raw or external data", where=where)
    if len(proto.string_data) != size:
        raise ReadError(f"a tensor string{list(shape)} holds {len(proto.string_data)} strings", where=where)
    strings = np.empty(size, object)
    strings[:] = [text(item) for item in proto.string_data]
    return strings.reshape(shape)


def text(data: bytes) -> str | bytes:
    """The decoded string, or the bytes if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


Place = str | Mapping[str, Array] | None
"""Location of external data: a folder of files, bytes in memory by location, or None."""


def map_external(proto: Any, folder: Place, wanted: int, where: str) -> Array:
    """The bytes of a tensor, mapped read-only from a file, or a slice of bytes in memory."""
    entries = {utf8(item.key, where): utf8(item.value, where) for item in proto.external_data}
    offset = _number(entries, "offset", 0, where)
    length = _number(entries, "length", wanted, where)
    if length != wanted:
        raise ReadError(f"the external data of a tensor has {length} bytes, but the tensor takes {wanted}", where=where)
    end = offset + wanted
    if isinstance(folder, Mapping):
        return _in_memory(folder, entries.get("location", ""), offset, end, where)
    path = _inside(entries.get("location", ""), folder, where)
    size = os.stat(path).st_size
    if end > size:
        raise ReadError(
            f"external data should end at byte {end} of {entries['location']!r}, which has {size}",
            where=where,
            remedy="The file is cut short, or belongs to another model",
        )
    if not wanted:
        return np.zeros(0, np.uint8)
    try:
        return np.memmap(path, np.uint8, "r", offset, (wanted,)).view(np.ndarray)
    except (OSError, ValueError, OverflowError) as error:
        raise ReadError(f"external data {entries['location']!r} cannot be mapped: {error}", where=where) from None


def _in_memory(given: Mapping[str, Any], location: str, offset: int, end: int, where: str) -> Array:
    data = given.get(location)
    if isinstance(data, (bytes, bytearray, memoryview)):
        data = np.frombuffer(data, np.uint8)
    if data is None or end > data.size:
        raise ReadError(f"external data should end at byte {end} of {location!r}, which is missing or shorter", where=where)
    return data[offset:end]


def _inside(location: str, folder: str | None, where: str) -> str:
    """The path of a regular file, checked to be inside the folder after links are resolved."""
    if folder is None:
        raise ReadError(
            f"the model keeps data in the file {location!r}, whose folder is unknown",
            where=where,
            remedy="Load the model by its path, or give base_dir=",
        )
    remedy = "A model may only name files inside its own folder; move the data there"
    if not location or "\0" in location or os.path.isabs(location) or location.startswith(("\\", "//")):
        raise ReadError(f"external data lies at {location!r}, which is not a relative path", where=where, remedy=remedy)
    home = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(home, location))
    if os.path.commonpath([home, path]) != home:
        raise ReadError(f"external data {location!r} lies outside the model's folder", where=where, remedy=remedy)
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        raise ReadError(f"there is no file {location!r} with external data", where=where) from None
    if not regular:
        raise ReadError(f"external data {location!r} is not a regular file", where=where, remedy=remedy)
    return path


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    given = entries.get(key)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 20):
        raise ReadError(f"the {key} of external data is {given!r:.60}", where=where)
    return int(given)
