"""The reasons why a cache cannot be appended to in place."""

from __future__ import annotations

from partita.graph.errors import PartitaError


class Unfit(PartitaError):
    """The decoder has a form that is not recognised; its session copies caches."""


class TooLong(Unfit):
    """The decoder's attention cannot be computed for this many positions: a table in it has fewer."""
