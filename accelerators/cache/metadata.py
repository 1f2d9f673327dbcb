"""The metadata of an entry: the key that it was compiled for, when, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from partita.accelerators.cache.damage import Damaged
from partita.accelerators.cache.key import Key
from partita.accelerators.process.json_form import form_error


@attrs.frozen(slots=True)
class Metadata:
    """The metadata of an entry that are the same for each device."""

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
    """When it was compiled, in seconds since 1970."""
    seconds: float
    """The seconds that compiling it took."""
    changed: tuple[str, ...]
    """The parts of the key that differed from those of the entry most like it."""
    because: str
    """Why it was compiled, in words."""


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
    """The metadata as an entry's file holds them; Damaged if they have another form."""
    error = form_error(words, _FORM)
    if error is not None:
        raise Damaged(f"its metadata cannot be read: {error}")
    key = Key(*(words["key"][name] for name in _KEY))
    model, subgraph, created, seconds, because = (words[part] for part in ("model", "subgraph", "made", "seconds", "because"))
    names, ops, changed = (tuple(words[part]) for part in ("names", "ops", "changed"))
    return Metadata(key, model, subgraph, names, ops, created, seconds, changed, because)
