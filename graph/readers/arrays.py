"""NumPy's own files, .npy and .npz, from untrusted sources. Nothing is unpickled, and no more memory allocated than they hold."""

from __future__ import annotations

import ast
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np

from partita.graph.errors import PartitaError, ReadError
from partita.graph.types import Array, dtype_name, numpy_dtype

NUMBERS = "biufV"
"""The kinds of numeric element types; "V" is how NumPy writes bfloat16."""

ZIP = b"PK\x03\x04"
"""First bytes of an archive."""

UNPACKED = 200 << 20
"""An archive's arrays may take this many bytes plus four times the archive's size: a small file must not fill the
memory."""

_MAGIC = b"\x93NUMPY"
_LONGEST = 10_000
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, NotImplementedError, RuntimeError,
    ValueError, LookupError, OverflowError,
)
"""Errors of the zip module for archives that are damaged, or compressed in an unknown way."""


def read_npz(data: bytes | memoryview, where: str, kinds: str = NUMBERS) -> Iterator[tuple[str, Array]]:
    """The arrays of an archive by name."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > UNPACKED + 4 * len(data):
                remedy = "Save it with numpy.savez, which does not compress"
                raise ReadError(f"its arrays would take {size:,} bytes, for a file of {len(data):,}", where=where, remedy=remedy)
            for member in members:
                yield member.filename.removesuffix(".npy"), read_npy(
                    archive.read(member), f"{where}, array {member.filename!r}", kinds
                )
    except PartitaError:
        raise
    except _DAMAGE as error:
        raise ReadError(f"the archive is damaged: {error}", where=where) from error


def read_npy(content: bytes | memoryview, where: str, kinds: str = NUMBERS) -> Array:
    """The array of a .npy file, in this machine's byte order."""
    dtype, fortran, shape, start = _header(content, where)
    if dtype.kind not in kinds or dtype.hasobject or dtype.names is not None:
        raise ReadError(f"the array holds {dtype}, not numbers", where=where)
    dtype = numpy_dtype("bfloat16") if dtype.kind == "V" and dtype.itemsize == 2 else dtype
    if dtype.kind in NUMBERS:
        _require_known(dtype, where)
    count = math.prod(shape)
    if dtype.itemsize * count > len(content) - start or dtype.itemsize == 0:
        cause = f"the array is damaged: {dtype}{list(shape)} takes {dtype.itemsize * count:,} bytes, and there are"
        raise ReadError(f"{cause} {len(content) - start:,}", where=where)
    try:
        flat: Array = np.frombuffer(content, dtype, count=count, offset=start)
        return flat.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))
    except (ValueError, TypeError) as error:
        raise ReadError(f"the array is damaged: {error}", where=where) from error


def _require_known(dtype: np.dtype[Any], where: str) -> None:
    try:
        dtype_name(dtype)
    except PartitaError as error:
        raise ReadError(f"the array holds {dtype}: {error.cause}", where=where) from error


def _header(content: bytes | memoryview, where: str) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    """Element type, order, shape, and offset of the data."""
    head = bytes(content[: 12 + _LONGEST])
    if head[:6] != _MAGIC or len(head) < 12 or head[6] not in (1, 2, 3):
        raise ReadError("the array is damaged: it does not begin as NumPy's files do", where=where)
    size, start = (struct.unpack_from("<H", head, 8)[0], 10) if head[6] == 1 else (struct.unpack_from("<I", head, 8)[0], 12)
    try:
        if size > _LONGEST or start + size > len(content):
            raise ValueError(f"its header takes {size:,} bytes")
        words = ast.literal_eval(head[start : start + size].decode("utf-8" if head[6] == 3 else "latin1").strip())
        shape, fortran, described = words["shape"], words["fortran_order"], words["descr"]
        if not isinstance(described, str):
            raise ValueError(f"its element type is {described!r:.60}")
        if not (isinstance(shape, tuple) and all(type(n) is int and 0 <= n < 1 << 62 for n in shape)):
            raise ValueError(f"its sizes are {shape!r:.60}")
        if not isinstance(fortran, bool):
            raise ValueError(f"its order is {fortran!r:.60}")
        return np.dtype(described), fortran, shape, start + size
    except (ValueError, SyntaxError, TypeError, LookupError, MemoryError, RecursionError) as error:
        raise ReadError(f"the array is damaged: {error}", where=where) from error
