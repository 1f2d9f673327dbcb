"""Entries on disk: a file of code for each subgraph, and separate weight files, both checked when they are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import ALIGNMENT, array_digests, byte_view, mapped
from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import NoFile, open_private, replacing, write_pieces
from partita.accelerators.process.background import hands
from partita.accelerators.process.exit_barrier import Pool
from partita.accelerators.process.forking import Guard
from partita.accelerators.store.folder import FOLDERS, Damaged, inner_folder, private_folder, unusable, used_now
from partita.accelerators.store.waiting import locked
from partita.graph.atomic_write import PREFIX
from partita.graph.types import Array, dtype_name, numpy_dtype

LIMIT = 4 << 30
"""Maximum size of the cache in bytes; least recently used entries are removed first."""

MAGIC = b"partita entry 3\n"
"""The first bytes of an entry's file. The digest of its metadata follows, then the metadata, and then the code."""

_HEAD = len(MAGIC) + 32 + 8
"""The number of bytes before the metadata: MAGIC, the digest of the metadata, and its length."""

LOCKS = 64
"""The number of lock files; two keys may share one."""

STALE = 3600.0
"""Seconds after which an unfinished file was left by a dead process."""

PORTION = 256
"""All files are scanned again after this fraction (1/256) of the limit was written."""

_unseen: dict[Path, int] = {}
"""The bytes that this process wrote to each folder since it last scanned all files there."""

_guard = Guard()


@attrs.frozen(slots=True, eq=False)
class Stored:
    """An entry as read from disk."""

    meta: Mapping[str, Any]
    """The metadata: the entry's key, and when and why it was made."""
    code: bytes
    """The code that the device exported."""
    weights: tuple[Array, ...]
    """Its weights, mapped from disk."""


class Store:
    """One cache folder, for any number of processes."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = private_folder(folder)
        """The path of the folder."""
        self.limit = limit
        """Maximum size in bytes."""
        self._entries = inner_folder(folder / "entries")
        self._weights = inner_folder(folder / "weights")
        self._locks = inner_folder(folder / "locks")

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """A lock for a key: one thread of one process at a time is inside.

        It is released when the process ends."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locked(self._locks / f"{int(key[:8], 16) % LOCKS:02}"))
            except OSError as error:
                raise unusable(self.folder, f"it cannot be written to: {error.strerror or error}") from None
            yield

    def read(self, key: str) -> Stored | None:
        """Reads the entry and marks it as most recently used. None if there is none; Damaged if it is incomplete or wrong."""
        path = self._entries / key
        try:
            meta, code = _opened(path)
            weights = read_weights(self._weights, meta["weights"])
            used_now(path)
        except FileNotFoundError:
            return None
        except (OSError, LookupError, TypeError, ValueError, OverflowError, MemoryError) as error:
            raise Damaged(str(error) or type(error).__name__) from None
        return Stored(meta, code, weights)

    def write(self, key: str, meta: Mapping[str, Any], code: bytes, weights: Sequence[Array]) -> None:
        """Adds the entry; removes least recently used ones if the limit is exceeded."""
        rows = write_weights(self._weights, weights)
        stated = {"weights": rows, "code": hashlib.sha256(code).hexdigest(), "size": len(code)}
        words = json.dumps({**meta, **stated}).encode()
        with replacing(self._entries / key, 0o600, lasting=False, follows=False) as file:
            file.write(MAGIC + hashlib.sha256(words).digest() + len(words).to_bytes(8, "little") + words)
            file.write(code)
        size = len(code) + sum(array.nbytes for array in weights)
        if _is_due(self.folder, size, self.limit):
            self.trim(keep={key, *(row[0] for row in rows)})

    def keep_weight(self, array: Array, digest: str) -> Array | None:
        """Writes a weight early, and maps it from disk; None if it stays in memory until the entry is written."""
        return keep_weight(self._weights, array, digest)

    def remove(self, key: str) -> None:
        """Removes the entry, but not its weights, which other entries may share."""
        (self._entries / key).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """The entries, least recently used first."""
        return [name for name, _ in self.versions()]

    def versions(self) -> list[tuple[str, tuple[int, int]]]:
        """The entries in the same order, each with a version that changes when it is rewritten."""
        return [(name, version) for _, _, name, version in _files(self._entries)]

    def meta(self, key: str) -> Mapping[str, Any]:
        """The metadata of an entry, with its "bytes" and the time when it was "used". Its code is not read."""
        path = self._entries / key
        with open_private(path) as file:
            state, words = os.fstat(file.fileno()), _words(file)
        return {**words, "used": state.st_mtime, "bytes": state.st_size}

    def trim(self, keep: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        """Removes least recently used files until the rest is within the limit, and files left by dead processes."""
        files = sorted([(*file, folder) for folder in (self._entries, self._weights) for file in _files(folder)])
        excess = sum(size for _, size, *_ in files) - self.limit
        for _, size, name, _, folder in files:
            if excess <= 0:
                break
            if name not in keep:
                (folder / name).unlink(missing_ok=True)
                excess -= size

    def clear(self) -> int:
        """Removes everything but unknown folders; returns the number of entries."""
        names = self.names()
        for folder in (self._entries, self._weights, *(self.folder / name for name in FOLDERS)):
            for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
                if path.is_symlink() or not path.is_dir():
                    path.unlink(missing_ok=True)
        return len(names)


def _is_due(folder: Path, size: int, limit: int) -> bool:
    """True if this process has written so much since its last scan of the folder that another is due."""
    with _guard.lock:
        due = _unseen.get(folder, limit) + size
        is_due = due > limit // PORTION
        _unseen[folder] = 0 if is_due else due
    return is_due


def _files(folder: Path) -> list[tuple[float, int, str, tuple[int, int]]]:
    """Time of use, size, name and version of all files, in this order."""
    entries = []
    with os.scandir(folder) as items:
        for item in items:
            with contextlib.suppress(FileNotFoundError):
                state = item.stat(follow_symlinks=False)
                if stat.S_ISDIR(state.st_mode):
                    continue
                if not item.name.startswith(PREFIX):
                    entries.append((state.st_mtime, state.st_size, item.name, (state.st_ino, state.st_size)))
                elif time.time() - state.st_mtime > STALE:
                    os.unlink(item.path)
    return sorted(entries)


def _opened(path: Path) -> tuple[dict[str, Any], bytes]:
    """The metadata and code of an entry; Damaged if a single bit was changed."""
    with open_private(path) as file:
        words = _words(file)
        if os.fstat(file.fileno()).st_size - file.tell() != words["size"]:
            raise Damaged("it is longer or shorter than it was written")
        code = file.read()
    if hashlib.sha256(code).hexdigest() != words["code"]:
        raise Damaged("the checksum of its code is wrong")
    return words, code


def _words(file: BinaryIO) -> dict[str, Any]:
    head, size = file.read(_HEAD), os.fstat(file.fileno()).st_size
    words = file.read(min(int.from_bytes(head[-8:], "little"), size))
    if head[: len(MAGIC)] != MAGIC or hashlib.sha256(words).digest() != head[len(MAGIC) : -8]:
        raise Damaged("its checksum is wrong")
    try:
        meta = json.loads(words)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"its metadata is not JSON that can be read: {error}") from None
    if not isinstance(meta, dict):
        raise Damaged("its metadata is not a dictionary")
    return meta


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
        with replacing(path, 0o600, lasting=False, follows=False) as file:
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
    raise Damaged(f"{name!r:.80} is not a name of a file of weights")


def _array(files: Mapping[str, Array], name: str, offset: int, dtype: str, shape: Sequence[int]) -> Array:
    kind = numpy_dtype(dtype)
    if min(offset, *shape, 0) < 0:
        raise Damaged(f"an array of sizes {list(shape)!r:.80} at {offset} is nowhere in a file")
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if not size:
        return np.empty(shape, kind)
    array = files[name][offset : offset + size].view(kind).reshape(shape)
    return mapped(array, name) if size >= LARGE else array


_maps: WeakValueDictionary[str, Array] = WeakValueDictionary()
"""The mapped files, by path."""
_written: dict[str, tuple[int, int, int]] = {}
"""The files that this process wrote and has not read for an entry yet, with their state then: such a file needs no check."""
_maps_guard = Guard()


def _mapped(path: Path) -> Array:
    """Maps the file; changes to the mapping stay in this process. A damaged file is removed."""
    state = path.lstat()
    fresh = _written.pop(str(path), None) == _state(state)
    with _maps_guard.lock:
        known = _maps.get(str(path))
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
    with _maps_guard.lock:
        return _maps.setdefault(str(path), array)


def _state(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_ino, state.st_size, state.st_mtime_ns
