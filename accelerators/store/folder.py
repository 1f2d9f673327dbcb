"""The folder of the cache: by default in the user's cache folder, and private to the user, because code is loaded from
it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import warnings
from pathlib import Path
from typing import Any

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.interface.cache_words import OFF, ON
from partita.accelerators.interface.keys import cache_folder
from partita.accelerators.process.atomic import open_private, replacing


def default_folder() -> Path:
    """$XDG_CACHE_HOME/partita, or ~/.cache/partita."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else _expanded("~/.cache")) / "partita"


def chosen_folder(setting: Any) -> Path | None:
    """The folder of a CACHE_DIR value: None, True and "on" mean the default one; False, "" and "off" none at all."""
    setting = cache_folder(setting)
    if setting is not None and str(setting).upper() not in ON:
        return None if str(setting).upper() in OFF else _expanded(setting)
    try:
        return default_folder()
    except AcceleratorError as error:
        warnings.warn(f"nothing is cached: {error}", stacklevel=2)
        return None


def lasting(setting: Any, home: str) -> Any:
    """The same CACHE_DIR as an absolute path, for later use, when the working directory may no longer be `home`."""
    if isinstance(setting, (str, os.PathLike)) and str(setting).upper() not in ON | OFF:
        return os.path.join(home, os.path.expanduser(setting))
    return setting


def private_folder(folder: Path) -> Path:
    """The folder, created if missing; an error if others could put code into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = os.stat(folder)
    except (OSError, ValueError) as error:
        raise unusable(folder, f"it cannot be made: {getattr(error, 'strerror', None) or error}") from None
    if state.st_uid != os.getuid():
        raise unusable(folder, f"it belongs to another user (number {state.st_uid})")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise unusable(folder, "others may write to it, and code is loaded from it", f"chmod 700 {folder}")
    return folder


def inner_folder(folder: Path) -> Path:
    """The same for a folder inside the cache, which must not be a link."""
    refuse_link(folder)
    return private_folder(folder)


def refuse_link(folder: Path) -> None:
    """Raises if a folder inside the cache is a link, since files elsewhere would be removed."""
    if folder.is_symlink():
        raise unusable(folder, "it is a link", "Remove the link; CACHE_DIR names another place for the whole cache")


def used_now(path: Path) -> None:
    """Records the time of use; ignored if the cache is read-only."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _expanded(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        remedy = "Set HOME or XDG_CACHE_HOME, or name a folder with CACHE_DIR"
        raise AcceleratorError("the user has no home folder", where=f"cache folder {str(path)!r}", remedy=remedy) from None


def unusable(folder: Path, cause: str, remedy: str | None = None) -> AcceleratorError:
    """The error for a folder that cannot be used, or not at the moment."""
    other = 'Name another with CACHE_DIR, or switch it off: CACHE_DIR="off"'
    return AcceleratorError(cause, where=f"cache folder {str(folder)!r}", remedy=remedy or other)


class Damaged(Exception):
    """The content differs from what was written."""


FOLDERS = ("findings", "costs", "auto")
"""The subfolders of the cache with small files, each with a digest of its content: a damaged one counts as missing."""


def read_kept(path: Path) -> bytes | None:
    """The content of a file in a subfolder of the cache; None if it is missing or damaged."""
    try:
        private_folder(path.parents[1])
        refuse_link(path.parent)
        with open_private(path) as file:
            data = file.read()
    except (OSError, AcceleratorError):
        return None
    return data[64:] if hashlib.sha256(data[64:]).hexdigest().encode() == data[:64] else None


def keep(path: Path, data: bytes) -> None:
    """Writes a file of such a subfolder; nothing happens if it cannot be written."""
    with contextlib.suppress(AcceleratorError, OSError):
        private_folder(path.parents[1])
        inner_folder(path.parent)
        with replacing(path, 0o600, lasting=False, follows=False) as file:
            file.write(hashlib.sha256(data).hexdigest().encode() + data)
