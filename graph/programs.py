"""Look-up of programs on the PATH."""

from __future__ import annotations

import os
import shutil


def program_folders() -> str:
    """PATH without its empty and relative entries, which would find anybody's files in a folder of downloads.
    The system's default folders if nothing is left."""
    return os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep))) or os.defpath


def find_program(name: str) -> str | None:
    """The path of a program, or None."""
    return shutil.which(name, path=program_folders())
