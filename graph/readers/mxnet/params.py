"""MXNet's parameter files: a list of named arrays in MXNet's own binary form, or a NumPy .npz archive.

A declared size is checked against the bytes that are there before anything is allocated."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from partita.graph.errors import PartitaError, ReadError
from partita.graph.readers.arrays import ZIP, read_npz
from partita.graph.types import BY_MXNET_NUMBER, Array, dtype_name, numpy_dtype

__all__ = ["read_params"]

LIST_MAGIC = 0x112
"""The first eight bytes of a parameter file."""

V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
"""First words of an array, by version of the format. The first releases wrote the rank instead."""

MAX_RANK = 32
"""Maximum plausible rank: MXNet's own ops support far less."""

STORAGE = {-1: "undefined", 1: "row_sparse", 2: "csr"}
"""MXNet's numbers of storage types other than dense."""


def read_params(source: str | os.PathLike[str] | bytes | Mapping[str, Any]) -> dict[str, Array]:
    """The arrays by name, without MXNet's prefixes "arg:" and "aux:".

    `source` is the path of a ".params" or ".npz" file, its bytes, or a mapping from names to arrays."""
    if isinstance(source, Mapping):
        return _bare_names(((name, _as_array(name, value)) for name, value in source.items()), "params")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _from_bytes(memoryview(source).cast("B"), "params")
    if not isinstance(source, (str, os.PathLike)):
        raise ReadError(
            f"parameters cannot be read from a {type(source).__name__}",
            where="params",
            remedy="Give the path of a .params file, its bytes, or a mapping from names to arrays",
        )
    return _from_bytes(_mapped(Path(source)), str(source))


def _mapped(path: Path) -> memoryview:
    """The file's bytes, mapped into memory."""
    try:
        if not path.stat().st_size:
            raise ReadError("the file is empty", where=str(path), remedy="Give a file written by MXNet")
        return np.memmap(path, dtype=np.uint8, mode="r").data
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise ReadError(f"the parameter file cannot be opened: {said}", where=str(path)) from error


def _from_bytes(data: memoryview, where: str) -> dict[str, Array]:
    named = read_npz(data, where) if bytes(data[:4]) == ZIP else _Reader(data, where).arrays()
    return _bare_names(named, where)


def _as_array(name: Any, value: Any) -> Array:
    if not isinstance(name, str):
        raise ReadError(f"a parameter's name is text, not {name!r}", where="params")
    # An MXNet array, without importing MXNet here.
    value = value.asnumpy() if hasattr(value, "asnumpy") else value
    try:
        array = np.asarray(value)
        dtype_name(array.dtype)
    except (ValueError, PartitaError) as error:
        raise ReadError(f"the value is not an array of numbers: {error}", where=f"parameter {name!r}") from error
    if array.dtype.kind in "OSUT":
        raise ReadError(f"the value holds {array.dtype}, not numbers", where=f"parameter {name!r}")
    return array


def _bare_names(named: Iterator[tuple[str, Array]] | Any, where: str) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, array in named:
        bare = name[4:] if name.startswith(("arg:", "aux:")) else name
        if bare in arrays:
            raise ReadError(f"there are two parameters {bare!r}", where=where)
        arrays[bare] = array
    return arrays


class _Reader:
    """Reads MXNet's binary form sequentially."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.at = 0
        self.where = where

    def arrays(self) -> list[tuple[str, Array]]:
        """The named arrays; the file must end with the last name."""
        if len(self.data) < 16 or self.number("<Q") != LIST_MAGIC:
            self.fail(
                "this is not an MXNet parameter file", "A file written by nd.save begins with 0x112"
            )
        self.number("<Q")  # reserved
        arrays = [self.array(i) for i in range(self.count("arrays"))]
        names = [self.name(i) for i in range(self.count("names"))]
        if len(names) != len(arrays):
            missing = "has no names" if not names else f"has {len(names)} names"
            self.fail(f"the file {missing} for its {len(arrays)} arrays", "Save a mapping from names to arrays")
        if self.at != len(self.data):
            self.fail(f"{len(self.data) - self.at} bytes follow the last name", "The file is damaged")
        return list(zip(names, arrays, strict=True))

    def fail(self, cause: str, remedy: str | None = None) -> NoReturn:
        raise ReadError(f"{cause} (at byte {self.at} of {len(self.data)})", where=self.where, remedy=remedy)

    def take(self, size: int, what: str) -> memoryview:
        if size > len(self.data) - self.at:
            self.fail(f"the file ends inside {what}, which needs {size} bytes", "The file is cut off or damaged")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form), "a number"))[0])

    def count(self, what: str) -> int:
        """The number of items that follow.

        Each takes at least eight bytes, so a count that is too large is detected at once."""
        count = self.number("<Q")
        if count > (len(self.data) - self.at) // 8 + 1:
            self.fail(f"the file declares {count} {what}, more than its size can hold", "The file is damaged")
        return count

    def name(self, index: int) -> str:
        text = bytes(self.take(self.number("<Q"), f"name {index}"))
        try:
            return text.decode()
        except UnicodeDecodeError:
            self.fail(f"name {index} is not text", "The file is damaged")

    def array(self, index: int) -> Array:
        what = f"array {index}"
        magic = self.number("<I")
        if magic in (V2, V3):
            storage = self.number("<i")
            if storage != 0:
                self.fail(
                    f"{what} is stored as {STORAGE.get(storage, f'kind {storage}')}; only dense arrays are read",
                    "Save it after array.tostype('default')",
                )
        dims = self.dims(magic, what)
        if not dims and magic != V3:
            self.fail(f"{what} has no shape: it was saved before it was initialized", "Initialize the parameters first")
        self.take(8, what)  # the context: the kind and the number of the device it was on
        flag = self.number("<i")
        if flag not in BY_MXNET_NUMBER:
            self.fail(f"{what} has the unknown element type {flag}", "The file is damaged")
        dtype = numpy_dtype(BY_MXNET_NUMBER[flag])
        data = self.take(math.prod(dims) * dtype.itemsize, what)
        if BY_MXNET_NUMBER[flag] == "bool":  # any byte but 0 is true
            return np.frombuffer(data, np.uint8).reshape(dims) != 0
        # A copy: the bytes may be unaligned, and the file may change.
        return np.frombuffer(data, dtype).reshape(dims).copy()

    def dims(self, magic: int, what: str) -> tuple[int, ...]:
        modern = magic in (V1, V2, V3)
        rank = self.number("<i") if modern else magic
        if not 0 <= rank <= MAX_RANK:
            self.fail(f"{what} declares {rank} dimensions", "The file is damaged")
        form = f"<{rank}{'q' if modern else 'I'}"
        dims = struct.unpack(form, self.take(struct.calcsize(form), what))
        if any(d < 0 for d in dims) or math.prod(max(d, 1) for d in dims) >= 2**60:
            self.fail(f"{what} has the shape {dims}", "It was saved before it was initialized, or the file is damaged")
        return tuple(dims)
