"""Content hashes of arrays, each computed once, and the living arrays by hash."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.graph.nested import graphs_in
from partita.graph.sparse import SparseTensor
from partita.graph.types import Array, dtype_name

if TYPE_CHECKING:
    from partita.graph.graph import Graph

DIGITS = 20
"""Number of hexadecimal digits of the SHA-256 sum in a reference."""


class _Reference(weakref.ref[Array]):
    """A weak reference to an array whose hash is known."""

    __slots__ = ("key", "text")

    key: int
    text: str


_digest_of: dict[int, _Reference] = {}
_arrays_of: dict[str, dict[int, _Reference]] = {}


def digest(array: Array) -> str:
    """The array's hash over dtype, shape and content. Cached (weakly): arrays in a graph never change."""
    known = _digest_of.get(id(array))
    if known is not None and known() is array:
        return known.text
    reference = _Reference(array, _forget)
    reference.key, reference.text = id(array), _computed(array)
    _digest_of[reference.key] = reference
    _arrays_of.setdefault(reference.text, {})[reference.key] = reference
    return reference.text


def _forget(
    gone: _Reference, digest_of: dict[int, _Reference] = _digest_of, arrays_of: dict[str, dict[int, _Reference]] = _arrays_of
) -> None:
    """Drops the hash of an array that was freed. It reads no global names, which are cleared before other modules'
    arrays when the process ends."""
    if digest_of.get(gone.key) is gone:
        del digest_of[gone.key]
    same = arrays_of.get(gone.text, {})
    if same.get(gone.key) is gone:
        del same[gone.key]
        if not same:
            del arrays_of[gone.text]


def remembered(sought: str) -> Array | None:
    """A living array with this hash, if it was hashed before in this process."""
    return next((array for ref in _arrays_of.get(sought, {}).values() if (array := ref()) is not None), None)


def arrays_in(graph: Graph) -> Iterator[Array]:
    """All arrays of the graph and its bodies: constants, and arrays in attributes."""
    for inner in graphs_in(graph):
        for node in inner.nodes:
            if node.value is not None:
                yield node.value
            waiting: list[Any] = list(node.attrs.values())
            while waiting:
                value = waiting.pop()
                if isinstance(value, np.ndarray):
                    yield value
                elif isinstance(value, (list, tuple)):
                    waiting.extend(value)
                elif isinstance(value, SparseTensor):
                    waiting += (value.values, value.indices)


def raw_bytes(array: Array) -> bytes:
    """The elements in order, little endian."""
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes()


def _computed(array: Array) -> str:
    name = dtype_name(array.dtype)
    total = hashlib.sha256(f"{name}{array.shape}".encode())
    if name == "string":
        for item in array.ravel().tolist():
            data = item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogatepass")
            total.update(f"{len(data)}:".encode() + data)
    else:
        total.update(raw_bytes(array))
    return total.hexdigest()[:DIGITS]
