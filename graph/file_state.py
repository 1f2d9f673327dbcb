"""A file as it was at some moment. This imports little, since a model of a file answers before most of Partita is there."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileState(NamedTuple):
    """What tells a file from another, and from itself at another time."""

    path: str
    """The whole path."""
    device: int
    """The number of the file system,"""
    number: int
    """and that of the file in it."""
    size: int
    """The bytes that it holds."""
    written: int
    """When it was last written, in nanoseconds."""


def file_state(path: str) -> FileState | None:
    """The state of the file at this path; None where there is none."""
    try:
        return _state(path, os.stat(path))
    except (OSError, ValueError):
        return None


def open_state(path: str, number: int) -> FileState:
    """The state of an open file, by its number, though another may be at the path by now."""
    return _state(path, os.fstat(number))


def _state(path: str, seen: os.stat_result) -> FileState:
    return FileState(os.path.abspath(path), seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
