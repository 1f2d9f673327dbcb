"""A session is opened: what its model is compiled from is looked at once, for all its sessions."""

from __future__ import annotations

from collections.abc import Sequence

from accelerators.errors import InputError
from accelerators.running.compiled_model import CompiledModel, Origin
from accelerators.sessions.conversation import Session
from accelerators.sessions.decoder import Decoder
from graph.inline import inline_calls


def opened(
    model: CompiledModel, decoder: Decoder | None, longest: int | None, chunks: Sequence[int]
) -> tuple[Decoder, Session]:
    """The decoder of the model, which may be known, and a new session of it."""
    where = f"model {model.graph.name!r}"
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int) or longest < 1):
        raise InputError(f"longest is a number of tokens, not {longest!r}", where=where)
    sizes = sorted(set(chunks), reverse=True)
    if not all(isinstance(size, int) and size > 0 for size in sizes) or 1 not in sizes:
        raise InputError(f"chunks are numbers of tokens, and 1 is among them, not {chunks!r}", where=where)
    if decoder is None:
        origin = model.origin or Origin(inline_calls(model.graph), None)
        decoder = Decoder(model, origin.graph, origin.step)
    return decoder, Session(decoder, longest, sizes)
