"""Files that are written aside, under a name of their own, before they take another file's place."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX, SUFFIX = ".partita-", ".part"
"""The beginning and the end of the names of files that are being written."""

_seen: set[str] = set()
"""The folders in which abandoned files were looked for."""


def no_file(path: str | os.PathLike[str]) -> str | None:
    """Why a file must not take the place of what is there, in words: it is a folder, or a device or a pipe, which whoever may
    write to `/dev` would lose. None where there is a file, or nothing."""
    if not os.path.exists(path) or os.path.isfile(path):
        return None
    return "it is a directory" if os.path.isdir(path) else "it is no file but a device or a pipe"


def open_aside(folder: str | os.PathLike[str], mode: int = 0o666) -> tuple[int, str]:
    """Make a new file in the folder, open for writing and reading: its descriptor and its path.

    Its mode is `mode` less the umask, as of any file that a program makes (`tempfile` would make one that only its
    owner may read). It is locked as long as it is open: what a process left that was ended is seen by that, and removed when
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
    """Lock a file that was just made; False where another process removed it before that."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # It is just being removed.
        return False
    except OSError:  # A file system without locks: nobody removes anything there.
        return True
    return os.path.exists(path)


def _remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Remove the files that no process writes any more, once for each folder."""
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
