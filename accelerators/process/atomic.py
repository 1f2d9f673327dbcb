"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from partita.accelerators.errors import AcceleratorError
from partita.graph.atomic_write import no_file, open_aside


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a temporary file, then renames it. Unpaired surrogates, which UTF-8 cannot encode, are escaped as in JSON."""
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))


@contextmanager
def replacing(
    path: str | os.PathLike[str], mode: int = 0o666, lasting: bool = True, follows: bool = True
) -> Iterator[BinaryIO]:
    """A file to write to, and to read again. If the block succeeds, it replaces the path; otherwise nothing changes.
    With `follows` the target of a link is replaced, otherwise the link itself.

    Unless it is `lasting`, the file may be lost in a power failure, and is written faster."""
    target = _target(path, follows)
    try:
        number, aside = open_aside(target.parent, mode)
        try:
            with os.fdopen(number, "w+b") as file:
                yield file
                file.flush()
                if lasting:
                    os.fsync(number)
                os.replace(aside, target)  # the lock that marks it as unfinished is held until it is closed
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(aside)
            raise
    except OSError as error:
        raise AcceleratorError(f"the file cannot be written: {error.strerror or error}", where=str(target)) from None


PIECE = 1 << 17
"""Number of bytes per write.

For larger writes the system looks for contiguous memory: writing 9 MB at once took up to ten times as long."""


def write_pieces(file: BinaryIO, data: bytes | bytearray | memoryview) -> None:
    """Writes bytes of any length."""
    view = memoryview(data)
    for start in range(0, len(view), PIECE):
        file.write(view[start : start + PIECE])


def _target(path: str | os.PathLike[str], follows: bool) -> Path:
    """The path to replace. A device or a pipe is refused, because a file would replace it."""
    name = os.fsdecode(path)
    why = "it has no name" if not name else "its name contains a null character" if "\0" in name else None
    target = Path(name if why else os.path.realpath(name) if follows else os.path.abspath(name))
    why = why or no_file(target)
    if why is not None:
        where = repr(name) if "\0" in name else name
        raise AcceleratorError(f"the file cannot be written: {why}", where=where, remedy="Name a file")
    return target


class NoFile(OSError):
    """The path is a pipe, a device or a folder instead of a file."""


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """The file, open for reading. Raises NoFile if it is something else: opening a pipe like a file blocks until somebody
    writes to it, possibly forever."""
    return _opened(os.open(path, _FLAGS), may_be_anybodys=True)


def open_private(path: str | os.PathLike[str]) -> BufferedReader:
    """The file, open for reading. Raises NoFile also for a link, and for a file that others own or may write to. The check is on
    the opened file, since whoever may write to the folder could replace the file at any time."""
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
    why = "it is not a file" if not stat.S_ISREG(state.st_mode) else None
    if why is None and not may_be_anybodys and others_may_write(state):
        why = "others may write to it"
    if why is None:
        return os.fdopen(number, "rb")
    os.close(number)
    raise NoFile(why)
