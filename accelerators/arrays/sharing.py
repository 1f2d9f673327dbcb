"""Shares equal weights: they are held once for all compiled subgraphs, and all sizes of a subgraph, that read them."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from partita.accelerators.arrays.layout import aligned_empty, laid_out
from partita.accelerators.process.background import hands
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.process.forking import Guard
from partita.graph.mapped_arrays import LARGE, new_array
from partita.graph.types import Array

ALIGNMENT = 64
"""Alignment of each array in bytes."""

_held: WeakValueDictionary[tuple[str, str, tuple[int, ...]], Array] = WeakValueDictionary()
_final: WeakValueDictionary[int, Array] = WeakValueDictionary()
"""The arrays that are shared already, by identity."""

_digests: dict[int, str] = {}
"""The digests of shared arrays, by identity, so that writers of such an array need not read it again."""

_guard = Guard()

Keeper = Callable[[Array, str], "Array | None"]
"""Returns an array of the same content in other memory, by its digest; None if it has no room for it."""

_keeper: ContextVar[Keeper | None] = ContextVar("keeper", default=None)


@contextmanager
def kept_by(keeper: Keeper) -> Iterator[None]:
    """A context in which the keeper places new arrays of `held_once`."""
    token = _keeper.set(keeper)
    try:
        yield
    finally:
        _keeper.reset(token)


def held_once(array: Array, *, is_ours: bool = False) -> Array:
    """An aligned array of the same content: one that is held already, a copy, or this one if it `is_ours`: nobody else uses it.

    It is freed with its last holder, and nobody may write to it. A user, however, may write to a graph's constants."""
    if _final.get(id(array)) is array:
        return array
    key = (array_digest(array), array.dtype.str, array.shape)
    with _guard.lock:
        known = _held.get(key)
    if known is not None:
        return known
    keeper = _keeper.get()
    own = None if keeper is None else keeper(array, key[0])
    if own is None:
        own = laid_out(array, ALIGNMENT) if is_ours and array.flags.writeable else _copied(array)
    with _guard.lock:
        return _kept(_held.setdefault(key, own), key[0])


def mapped(array: Array, digest: str | None = None) -> Array:
    """Registers an aligned array mapped from a file, with its digest if known, so that `held_once` need not read it again."""
    with _guard.lock:
        if digest is None:
            return _kept(array, "")
        return _kept(_held.setdefault((digest, array.dtype.str, array.shape), array), digest)


def _kept(array: Array, digest: str) -> Array:
    """Registers the array as final. Called with the lock held; the digest is dropped with the array."""
    if id(array) not in _final:
        _final[id(array)] = array
        if digest:
            _digests[id(array)] = digest
            weakref.finalize(array, _digests.pop, id(array), None).atexit = False
    return array


def is_fixed(array: Array) -> bool:
    """True if no numpy array that it is a view of is writable. That holds for arrays read from a file."""
    memory: object = array
    while isinstance(memory, np.ndarray):
        if memory.flags.writeable:
            return False
        memory = memory.base
    return memory is None


def _copied(array: Array) -> Array:
    """A writable copy: devices require writable memory, even if they do not write to it."""
    copied = new_weight(array.shape, array.dtype)
    copied[...] = array
    return copied


def new_weight(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array to fill, in memory that `held_once` need not copy: the first write to a page costs as much as copying it."""
    size = math.prod(shape) * dtype.itemsize
    return new_array(shape, dtype) if size >= LARGE else aligned_empty(shape, dtype, ALIGNMENT)


Known = dict[tuple[int, int, int], tuple["weakref.ref[Array]", str]]
"""Digests by owner of the memory, address and size, as long as the owner lives."""

_known: ContextVar[Known | None] = ContextVar("known", default=None)


@contextmanager
def each_read_once() -> Iterator[None]:
    """A context in which `array_digests` reads read-only memory once, for any number of shapes."""
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def array_digests(arrays: Sequence[Array]) -> list[str]:
    """The digest of each array, computed in parallel."""
    known = _known.get()
    with Pool(hands()) as pool:
        return list(pool.map(lambda array: _digest(array, known), arrays))


def _digest(array: Array, known: Known | None) -> str:
    if known is None or not array.flags.c_contiguous or not is_fixed(array):
        return array_digest(array)
    owner = array
    while owner.base is not None:
        owner = owner.base
    key = id(owner), array.__array_interface__["data"][0], array.nbytes
    reference, digest = known.get(key, (None, ""))
    if reference is None or reference() is not owner:
        digest = array_digest(array)
        known[key] = weakref.ref(owner), digest
    return digest


def array_digest(array: Array) -> str:
    """The SHA-256 of its elements in C order; cached for shared arrays."""
    if _final.get(id(array)) is array and (known := _digests.get(id(array))):
        return known
    return hashlib.sha256(byte_view(array)).hexdigest()


def byte_view(array: Array) -> memoryview:
    """The elements in C order as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
