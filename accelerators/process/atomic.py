"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from partita.accelerators.errors import AcceleratorError
from partita.graph.aside import no_file, open_aside


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file aside, then rename it."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, and to read again. If the block ends well it takes the path's place; otherwise nothing happened.
    A link stays, and what it leads to is replaced.

    A file that need not be `lasting` may be lost when the power fails, and is written faster."""
    target = _target(path)
    try:
        number, aside = open_aside(target.parent, mode)
        try:
            with os.fdopen(number, "w+b") as file:
                yield file
                file.flush()
                if lasting:
                    os.fsync(number)
                os.replace(aside, target)  # The lock that shows that it is being written lasts until it is closed.
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(aside)
            raise
    except OSError as error:
        raise AcceleratorError(f"the file cannot be written: {error.strerror or error}", where=str(target)) from None


PIECE = 1 << 17
"""The number of bytes that are written at a time.

For larger pieces the system looks for memory that lies together: to write 9 MB at once took it up to ten times as long."""


def write_pieces(file: BinaryIO, data: bytes | bytearray | memoryview) -> None:
    """Write bytes, however many they are."""
    view = memoryview(data)
    for start in range(0, len(view), PIECE):
        file.write(view[start : start + PIECE])


def _target(path: str | os.PathLike[str]) -> Path:
    """The path that is replaced in the end. A device or a pipe is refused, because a file would replace it."""
    name = os.fsdecode(path)
    why = "it has no name" if not name else "there is a zero in its name" if "\0" in name else None
    target = Path(name if why else os.path.realpath(name))
    why = why or no_file(target)
    if why is not None:
        where = repr(name) if "\0" in name else name
        raise AcceleratorError(f"the file cannot be written: {why}", where=where, remedy="Name a file")
    return target
