"""The state of a file at some moment. Few imports: a model from a file runs before most of Partita is loaded."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileState(NamedTuple):
    """Identity of a file and of its version."""

    path: str
    """Absolute path."""
    device: int
    """Device number."""
    number: int
    """Inode number."""
    size: int
    """Size in bytes."""
    written: int
    """Time of the last change, in nanoseconds."""


def file_state(path: str) -> FileState | None:
    """The state of the file at this path; None if there is no such file."""
    try:
        return _state(path, os.stat(path))
    except (OSError, ValueError):
        return None


def open_state(path: str, number: int) -> FileState:
    """The state of an open file, by its descriptor, even if another file is at the path by now."""
    return _state(path, os.fstat(number))


def _state(path: str, seen: os.stat_result) -> FileState:
    return FileState(os.path.abspath(path), seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
