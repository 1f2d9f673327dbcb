"""Where the cache is: by default in the user's cache folder, private to the user, since code is loaded from it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from accelerators.errors import AcceleratorError

OFF = frozenset(("", "0", "FALSE", "NO", "OFF"))
"""Values of CACHE_DIR that switch the cache off."""


def default_folder() -> Path:
    """$XDG_CACHE_HOME/partita, or ~/.cache/partita."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "partita"


def chosen_folder(setting: Any) -> Path | None:
    """The folder that a CACHE_DIR means: None is the default one; False, "" and "off" none at all."""
    if setting is None or setting is True:
        return default_folder()
    if not isinstance(setting, (str, os.PathLike)) or str(setting).upper() in OFF:
        return None
    return Path(setting)


def private_folder(folder: Path) -> Path:
    """The folder, made if it is not there; an error if others could put code into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = os.stat(folder)
    except OSError as error:
        raise _unusable(folder, f"it cannot be made: {error.strerror or error}") from None
    if state.st_uid != os.getuid():
        raise _unusable(folder, f"it belongs to another user (number {state.st_uid})")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(folder, "others may write to it, and code is loaded from it", f"chmod 700 {folder}")
    return folder


def _unusable(folder: Path, cause: str, remedy: str | None = None) -> AcceleratorError:
    other = 'Name another with CACHE_DIR, or switch it off: CACHE_DIR="off"'
    return AcceleratorError(cause, where=f"cache folder {str(folder)!r}", remedy=remedy or other)
