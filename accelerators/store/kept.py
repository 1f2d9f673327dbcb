"""Small files of the cache, each with a digest of its content: a damaged one counts as missing."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.atomic import open_private, replacing
from partita.accelerators.store.folder import inner_folder, private_folder, refuse_link

FOLDERS = ("findings", "costs", "auto")
"""The subfolders of the cache with such files."""


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
    """Writes such a file; nothing happens if it cannot be written."""
    with contextlib.suppress(AcceleratorError, OSError):
        private_folder(path.parents[1])
        inner_folder(path.parent)
        with replacing(path, 0o600, lasting=False, follows=False) as file:
            file.write(hashlib.sha256(data).hexdigest().encode() + data)
