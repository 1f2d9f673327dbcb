"""Files that are read without waiting for anybody."""

from __future__ import annotations

import os
import stat
from io import BufferedReader


class NoFile(OSError):
    """A pipe, a device or a folder is where a file is asked for."""


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """The file, open for reading. NoFile if something else is in its place: whoever opens a pipe as a file waits until somebody
    writes to it, and so perhaps for ever."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    raise NoFile("it is no file")
