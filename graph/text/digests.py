"""Content hashes of arrays, each computed once, and the arrays that they stand for while those live."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from graph.graph import Graph
from graph.nested import graphs_in
from graph.sparse import SparseTensor
from graph.types import Array, dtype_name

DIGITS = 20
"""How many hexadecimal digits of the SHA-256 sum a reference shows."""

_digest_of: dict[int, tuple[weakref.ref[Array], str]] = {}
_arrays_of: dict[str, dict[int, weakref.ref[Array]]] = {}


def digest(array: Array) -> str:
    """The array's hash over dtype, shape and content. Remembered (weakly): arrays in a graph never change."""
    key = id(array)
    known = _digest_of.get(key)
    if known is not None and known[0]() is array:
        return known[1]
    text = _computed(array)

    def forget(_: weakref.ref[Array]) -> None:
        entry = _digest_of.get(key)
        if entry is not None and entry[0] is reference:
            del _digest_of[key]
        same = _arrays_of.get(text, {})
        if same.get(key) is reference:
            del same[key]
            if not same:
                del _arrays_of[text]

    reference = weakref.ref(array, forget)
    _digest_of[key] = (reference, text)
    _arrays_of.setdefault(text, {})[key] = reference
    return text


def remembered(sought: str) -> Array | None:
    """A living array whose hash was asked for before in this process."""
    return next((array for ref in _arrays_of.get(sought, {}).values() if (array := ref()) is not None), None)


def arrays_in(graph: Graph) -> Iterator[Array]:
    """Every array of the graph and its bodies: constants, and those among attributes."""
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
