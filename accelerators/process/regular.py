"""Files that are read without waiting for anybody."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader


class NoFile(OSError):
    """A pipe, a device or a folder is where a file is asked for."""


def open_regular(path: str | os.PathLike[str], follow: bool = True) -> BufferedReader:
    """The file, open for reading. NoFile if something else is in its place: whoever opens a pipe as a file waits until somebody
    writes to it, and so perhaps for ever. Without `follow` a symbolic link is no file either."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    except OSError as error:
        if follow or error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
        raise NoFile("it is a link") from None
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise NoFile("it is no file")
