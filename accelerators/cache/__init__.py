"""The cache of compiled subgraphs: what is in it, why each was compiled, and how to empty it."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from partita.accelerators.cache.damage import Damaged
from partita.accelerators.cache.folder import default_folder
from partita.accelerators.cache.key import Key
from partita.accelerators.cache.metadata import read_metadata
from partita.accelerators.cache.store import Store
from partita.graph.words import counted

__all__ = ["CacheEntry", "clear", "default_folder", "explain", "list_entries"]


@attrs.frozen(slots=True)
class CacheEntry:
    """One compiled subgraph in the cache."""

    name: str
    """The key as hexadecimal digits."""
    key: Key
    """The parts of the key by their names."""
    model: str
    """The name of the model that it was compiled for first."""
    subgraph: str
    """The name of the subgraph when it was compiled."""
    ops: int
    """How many ops it has."""
    bytes: int
    """The bytes of its code; weights are stored apart."""
    seconds: float
    """The seconds that compiling it took."""
    created: float
    """When it was compiled, in seconds since 1970."""
    used: float
    """When it was last used."""
    changed: tuple[str, ...]
    """The parts of the key that differ from those of the entry most like it at the time it was compiled: "body", "shapes",
    "weights", "target", "options", "versions"; none for the first of its kind, or one that was damaged."""
    because: str
    """Why it was compiled, in words."""

    def __str__(self) -> str:
        size = f"{counted(self.ops, 'op')}, {self.bytes:,} bytes, {self.seconds:.2f} s"
        of = f" of {self.model!r}" if self.model else ""
        return f"{self.name[:12]} {self.key.device}: {self.subgraph!r}{of} ({size})"


def list_entries(folder: str | os.PathLike[str] | None = None) -> list[CacheEntry]:
    """The entries, the one used last at the end; damaged ones are left out. Default: the user's own cache."""
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
    """Why each entry was compiled, oldest first; `name` chooses a model, a subgraph, or an entry by how its key begins."""
    lines = []
    for entry in sorted(list_entries(folder), key=lambda entry: entry.created):
        if name is None or name in (entry.model, entry.subgraph) or entry.name.startswith(name):
            lines += [str(entry), f"    compiled because {entry.because}"]
    return "\n".join(lines) or "there are no such entries"


def clear(folder: str | os.PathLike[str] | None = None) -> int:
    """Empty the cache; -> how many entries there were."""
    return _store(folder).clear()


def _store(folder: str | os.PathLike[str] | None) -> Store:
    return Store(default_folder() if folder is None else Path(folder))
