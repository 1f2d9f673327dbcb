"""The metadata of an entry: its key, and when and why it was compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from partita.accelerators.cache.folder import Damaged
from partita.accelerators.cache.key import Key
from partita.accelerators.process.json_form import form_error


@attrs.frozen(slots=True)
class Metadata:
    """The metadata of an entry that do not depend on the device."""

    key: Key
    """The key."""
    model: str
    """The name of the model that it was compiled for first."""
    subgraph: str
    """The name of the subgraph when it was compiled."""
    names: tuple[str, ...]
    """The names of its ops then."""
    ops: tuple[str, ...]
    """The kinds of its ops."""
    created: float
    """Time of compilation, in seconds since 1970."""
    seconds: float
    """Compile time in seconds."""
    changed: tuple[str, ...]
    """The parts of the key that differed from the most similar entry."""
    because: str
    """The reason for its compilation, in words."""


_KEY = [field.name for field in attrs.fields(Key)]

_FORM = {
    "key": dict.fromkeys(_KEY, str),
    "model": str,
    "subgraph": str,
    "names": [str],
    "ops": [str],
    "made": float,
    "seconds": float,
    "changed": [str],
    "because": str,
}


def read_metadata(words: Mapping[str, Any]) -> Metadata:
    """The metadata in an entry's file; Damaged if they have another form."""
    error = form_error(words, _FORM)
    if error is not None:
        raise Damaged(f"its metadata cannot be read: {error}")
    key = Key(*(words["key"][name] for name in _KEY))
    model, subgraph, created, seconds, because = (words[part] for part in ("model", "subgraph", "made", "seconds", "because"))
    names, ops, changed = (tuple(words[part]) for part in ("names", "ops", "changed"))
    return Metadata(key, model, subgraph, names, ops, created, seconds, changed, because)
