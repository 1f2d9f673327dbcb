"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from accelerators.errors import AcceleratorError

PREFIX = ".partita-"
"""What the names of files begin with that are being written."""


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write aside, then rename."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """A file to write to, and to read again. If the block ends well it takes the path's place; otherwise nothing happened.

    What need not be `lasting` may be lost when the power fails, and is written faster."""
    target = Path(path)
    aside = target.with_name(f"{PREFIX}{secrets.token_hex(6)}.part")
    try:
        number = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
        try:
            with os.fdopen(number, "w+b") as file:
                yield file
                file.flush()
                if lasting:
                    os.fsync(number)
            os.replace(aside, target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise AcceleratorError(f"the file cannot be written: {error.strerror or error}", where=str(target)) from None
