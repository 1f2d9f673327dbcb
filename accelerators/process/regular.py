"""Files that are read without waiting for anybody."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader


class NoFile(OSError):
    """A pipe, a device or a folder is where a file is asked for."""


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """The file, open for reading. NoFile if something else is in its place: whoever opens a pipe as a file waits until somebody
    writes to it, and so perhaps for ever."""
    return _opened(os.open(path, _FLAGS), may_be_anybodys=True)


def open_private(path: str | os.PathLike[str]) -> BufferedReader:
    """The same of a file that is no link, belongs to this user or to root, and that others may not write to. The opened file is
    looked at: whoever may rename the folder could put another in its place at any time."""
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
