"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from partita.accelerators.errors import AcceleratorError
from partita.graph.atomic_write import no_file, open_aside


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a temporary file, then renames it."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, and to read again. If the block succeeds, it replaces the path; otherwise nothing changes.
    A link is kept, and its target is replaced.

    A file that need not be `lasting` may be lost on a power failure, and is written faster."""
    target = _target(path)
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


def _target(path: str | os.PathLike[str]) -> Path:
    """The path to replace. A device or a pipe is refused, because a file would replace it."""
    name = os.fsdecode(path)
    why = "it has no name" if not name else "there is a zero in its name" if "\0" in name else None
    target = Path(name if why else os.path.realpath(name))
    why = why or no_file(target)
    if why is not None:
        where = repr(name) if "\0" in name else name
        raise AcceleratorError(f"the file cannot be written: {why}", where=where, remedy="Name a file")
    return target
