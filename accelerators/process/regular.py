"""Opens files without ever blocking."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader


class NoFile(OSError):
    """The path is a pipe, a device or a folder instead of a file."""


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """The file, open for reading. Raises NoFile if it is something else: opening a pipe like a file blocks until somebody
    writes to it, possibly forever."""
    return _opened(os.open(path, _FLAGS), may_be_anybodys=True)


def open_private(path: str | os.PathLike[str]) -> BufferedReader:
    """The same for a file that is no link, belongs to this user or to root, and that others may not write to. The check is on the
    opened file: with write access to the folder, somebody could replace it at any time."""
    try:
        number = os.open(path, _FLAGS | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
        raise NoFile("it is a link") from None
    return _opened(number, may_be_anybodys=False)


def others_may_write(state: os.stat_result) -> bool:
    """True unless only this user and root may write to the file."""
    return state.st_uid not in (0, os.getuid()) or bool(state.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def _opened(number: int, may_be_anybodys: bool) -> BufferedReader:
    state = os.fstat(number)
    why = "it is no file" if not stat.S_ISREG(state.st_mode) else None
    if why is None and not may_be_anybodys and others_may_write(state):
        why = "others may write to it"
    if why is None:
        return os.fdopen(number, "rb")
    os.close(number)
    raise NoFile(why)
