"""Files that are written under a temporary name before they replace another file."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX, SUFFIX = ".partita-", ".part"
"""Prefix and suffix of the names of files that are being written."""

_seen: set[str] = set()
"""The folders that were searched for abandoned files."""


def no_file(path: str | os.PathLike[str]) -> str | None:
    """The reason why a file must not replace what is at this path: a folder, or a device or pipe, which a user who may write to
    `/dev` would lose. None for a regular file, or if the path is free."""
    if not os.path.exists(path) or os.path.isfile(path):
        return None
    return "it is a directory" if os.path.isdir(path) else "it is not a file but a device or a pipe"


def open_aside(folder: str | os.PathLike[str], mode: int = 0o666) -> tuple[int, str]:
    """Creates a file in the folder, open for reading and writing, and returns its descriptor and path.

    Its mode is `mode` less the umask, as of any file that a program makes (`tempfile` would make one that only its
    owner may read). It is locked while it is open: an unlocked one was abandoned by a process that ended, and is removed when
    another file is first written to the folder."""
    _remove_abandoned(folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(folder, f"{PREFIX}{secrets.token_hex(6)}{SUFFIX}")
        number = os.open(path, flags, mode)
        if _is_locked(number, path):
            return number, path
        os.close(number)


def _is_locked(number: int, path: str) -> bool:
    """Locks a new file; False if another process has removed it before."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # It is just being removed.
        return False
    except OSError:  # A file system without locks: nothing is removed there.
        return True
    return os.path.exists(path)


def _remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Removes files that no process writes any more, once per folder."""
    key = os.path.realpath(folder)
    if fcntl is None or key in _seen:
        return
    _seen.add(key)
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(PREFIX) and name.endswith(SUFFIX):
                _remove_unlocked(os.path.join(folder, name))


def _remove_unlocked(path: str) -> None:
    with suppress(OSError):
        number = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(number)
