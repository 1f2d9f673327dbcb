"""Files that are written aside, under a name of their own, before they take another file's place."""

from __future__ import annotations

import os
import secrets

PREFIX = ".partita-"
"""The beginning of the names of files that are being written."""


def no_file(path: str | os.PathLike[str]) -> str | None:
    """Why a file must not take the place of what is there, in words: it is a folder, or a device or a pipe, which whoever may
    write to `/dev` would lose. None where there is a file, or nothing."""
    if not os.path.exists(path) or os.path.isfile(path):
        return None
    return "it is a directory" if os.path.isdir(path) else "it is no file but a device or a pipe"


def open_aside(folder: str | os.PathLike[str], mode: int = 0o666) -> tuple[int, str]:
    """Make a new file in the folder, open for writing and reading: its descriptor and its path.

    Its mode is `mode` less the umask, as of any file that a program makes (`tempfile` would make one that only its
    owner may read)."""
    path = os.path.join(folder, f"{PREFIX}{secrets.token_hex(6)}.part")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode), path
