"""The weights of the entries. Each large array has a file named by its content, so that entries share it; the small arrays of an
entry are one file."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from partita.accelerators.arrays.sharing import ALIGNMENT, array_digests, byte_view, mapped
from partita.accelerators.cache.folder import Damaged, used_now
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import NoFile, open_private, replacing, write_pieces
from partita.accelerators.process.background import hands
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.process.forking import Guard
from partita.graph.types import Array, dtype_name, numpy_dtype

LARGE = 1 << 16
"""Size in bytes from which an array has its own file."""

Row = tuple[str, int, str, Sequence[int]]
"""The position of an array: its file, the offset in it, dtype and shape."""


def write_weights(folder: Path, arrays: Sequence[Array]) -> list[Row]:
    """Writes missing arrays; returns the position of each."""
    digests = iter(array_digests([array for array in arrays if array.nbytes >= LARGE]))
    small, rows = bytearray(), []
    for array in arrays:
        name = next(digests) if array.nbytes >= LARGE else ""
        if name:
            _write(folder / name, byte_view(array))
        rows.append([name, 0 if name else len(small), dtype_name(array.dtype), array.shape])
        if not name:
            small += bytes(byte_view(array))
            small += bytes(-len(small) % ALIGNMENT)
    together = hashlib.sha256(small).hexdigest()
    if small:
        _write(folder / together, small)
    return [(name or together, offset, dtype, shape) for name, offset, dtype, shape in rows]


def keep_weight(folder: Path, array: Array, digest: str) -> Array | None:
    """The array, mapped from its own file, which is written if missing; None if it is small, or the file cannot be written."""
    if array.nbytes < LARGE:
        return None
    path = folder / digest
    try:
        _write(path, byte_view(array))
        written = _written.get(str(path))
        content = _mapped(path)
        if written is not None:  # the entry reads it once more
            _written[str(path)] = written
    except (AcceleratorError, Damaged, OSError):
        return None
    return content.view(array.dtype).reshape(array.shape)


def _write(path: Path, data: Any) -> None:
    if not path.exists():
        with replacing(path, 0o600, lasting=False) as file:
            write_pieces(file, data)
        _written[str(path)] = _state(path.stat())


def read_weights(folder: Path, rows: Sequence[Row]) -> tuple[Array, ...]:
    """The arrays, mapped from disk; each file is mapped and checked once per process. Damaged if one is not as written."""
    names = list(dict.fromkeys(_checked(name) for name, _, _, shape in rows if 0 not in shape))  # empty arrays have no file
    with Pool(hands()) as pool:
        files = dict(zip(names, pool.map(lambda name: _mapped(folder / name), names), strict=True))
    return tuple([_array(files, *row) for row in rows])


def _checked(name: object) -> str:
    """Checks that `write_weights` may give the name: a forged entry may name any file, which would be removed as damaged."""
    if isinstance(name, str) and re.fullmatch("[0-9a-f]{64}", name):
        return name
    raise Damaged(f"{name!r:.80} is no name of a file of weights")


def _array(files: Mapping[str, Array], name: str, offset: int, dtype: str, shape: Sequence[int]) -> Array:
    kind = numpy_dtype(dtype)
    if min(offset, *shape, 0) < 0:
        raise Damaged(f"an array of sizes {list(shape)!r:.80} at {offset} is nowhere in a file")
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if not size:
        return np.empty(shape, kind)
    array = files[name][offset : offset + size].view(kind).reshape(shape)
    return mapped(array, name) if size >= LARGE else array


_files: WeakValueDictionary[str, Array] = WeakValueDictionary()
_written: dict[str, tuple[int, int, int]] = {}
"""The files that this process wrote and has not read for an entry yet, with their state then: such a file needs no check."""
_guard = Guard()


def _mapped(path: Path) -> Array:
    """Maps the file; changes to the mapping stay in this process. A damaged file is removed."""
    state = path.lstat()
    fresh = _written.pop(str(path), None) == _state(state)
    with _guard.lock:
        known = _files.get(str(path))
    if known is not None or not fresh:  # else its modification time identifies the written file
        used_now(path)
    if known is not None:
        return known
    try:
        with open_private(path) as file:
            # reading through a mapping would add to the process's resident memory
            whole = fresh or hashlib.file_digest(file, "sha256").hexdigest() == path.name
            array = np.memmap(file, np.uint8, "c").view(np.ndarray) if state.st_size else np.empty(0, np.uint8)
    except NoFile:
        path.unlink()
        raise
    if not whole:
        path.unlink(missing_ok=True)
        raise Damaged("the checksum of its weights is wrong")
    with _guard.lock:
        return _files.setdefault(str(path), array)


def _state(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns
