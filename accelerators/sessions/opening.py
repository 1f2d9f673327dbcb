"""Opens sessions: the graph of a model is analysed once for all of its sessions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partita.accelerators.errors import InputError
from partita.accelerators.running.compiled_model import CompiledModel, Origin
from partita.accelerators.sessions.conversation import Session
from partita.accelerators.sessions.decoder import Decoder
from partita.graph.inline import inline_calls

LONGEST = 2**31 - 1
"""Maximum number of positions of a conversation."""


def opened(
    model: CompiledModel, decoder: Decoder | None, longest: int | None, chunks: Sequence[int]
) -> tuple[Decoder, Session]:
    """The decoder of the model, reused if there is one, and a new session of it."""
    where = f"model {model.graph.name!r}"
    if longest is not None and not (_is_count(longest) and longest <= LONGEST):
        raise InputError(f"longest is a number of tokens, at most {LONGEST:,}, not {longest!r:.80}", where=where)
    if not isinstance(chunks, Sequence) or not all(map(_is_count, chunks)) or 1 not in chunks:
        raise InputError(f"chunks are numbers of tokens, and 1 is among them, not {chunks!r}", where=where)
    sizes = sorted(set(chunks), reverse=True)
    if decoder is None:
        origin = model.origin or Origin(inline_calls(model.graph), None)
        decoder = Decoder(model, origin.graph, origin.step)
    return decoder, Session(decoder, None if longest is None else int(longest), sizes)


def _is_count(number: object) -> bool:
    """True for a positive integer."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and int(number) > 0
