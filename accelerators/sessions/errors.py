"""Why a cache cannot be appended to in place."""

from __future__ import annotations

from partita.graph.errors import PartitaError


class Unfit(PartitaError):
    """The decoder is written in a way that is not recognised; its session copies."""


class TooLong(Unfit):
    """The decoder's attention cannot be computed for so many positions: a table in it has fewer."""
