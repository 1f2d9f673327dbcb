"""The cache of compiled subgraphs: its entries, why each was compiled, and how to clear it."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from partita.accelerators.store.folder import Damaged, default_folder
from partita.accelerators.store.key import EntryKey, read_metadata
from partita.accelerators.store.store import Store
from partita.graph.formatting import counted

__all__ = ["CacheEntry", "clear", "default_folder", "explain", "list_entries"]


@attrs.frozen(slots=True)
class CacheEntry:
    """One compiled subgraph in the cache."""

    name: str
    """The key in hexadecimal."""
    key: EntryKey
    """The parts of the key by their names."""
    model: str
    """The name of the model that it was compiled for first."""
    subgraph: str
    """The name of the subgraph when it was compiled."""
    ops: int
    """Number of ops."""
    bytes: int
    """Size of its code in bytes; weights are stored separately."""
    seconds: float
    """Compile time in seconds."""
    created: float
    """Time of compilation, in seconds since 1970."""
    used: float
    """Time of last use."""
    changed: tuple[str, ...]
    """The parts of the key that differed from the most similar entry when it was compiled: "body", "shapes", "weights",
    "target", "options", "versions"; empty for the first of its kind, or to replace a damaged one."""
    because: str
    """The reason for its compilation, in words."""

    def __str__(self) -> str:
        size = f"{counted(self.ops, 'op')}, {self.bytes:,} bytes, {self.seconds:.2f} s"
        of = f" of {self.model!r}" if self.model else ""
        return f"{self.name[:12]} {self.key.device}: {self.subgraph!r}{of} ({size})"


def list_entries(folder: str | os.PathLike[str] | None = None) -> list[CacheEntry]:
    """The entries, least recently used first; damaged ones are left out. Default: the user's own cache."""
    store, entries = _store(folder), []
    for name in store.names():
        try:
            words = store.meta(name)
            meta = read_metadata(words)
        except (Damaged, OSError):
            continue
        entries.append(
            CacheEntry(
                name, meta.key, meta.model, meta.subgraph, len(meta.names), words["bytes"], meta.seconds, meta.created,
                words["used"], meta.changed, meta.because,
            )
        )
    return entries


def explain(folder: str | os.PathLike[str] | None = None, name: str | None = None) -> str:
    """Why each entry was compiled, oldest first; `name` selects a model, a subgraph, or entries by a prefix of the key."""
    lines = []
    for entry in sorted(list_entries(folder), key=lambda entry: entry.created):
        if name is None or name in (entry.model, entry.subgraph) or entry.name.startswith(name):
            lines += [str(entry), f"    compiled because {entry.because}"]
    return "\n".join(lines) or "there are no such entries"


def clear(folder: str | os.PathLike[str] | None = None) -> int:
    """Clears the cache; returns the number of entries that it had."""
    return _store(folder).clear()


def _store(folder: str | os.PathLike[str] | None) -> Store:
    return Store(default_folder() if folder is None else Path(folder))
