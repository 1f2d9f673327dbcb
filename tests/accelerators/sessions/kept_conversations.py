"""Drawn conversations with small decoders whose steps the reference runs: the words that are said, the sizes of the steps and of
the caches, and messages.

`python -m tests.accelerators.sessions.kept_conversations` writes the file that `test_kept_conversations.py` compares with."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
import numpy as np

import partita as pt
from benchmarks.models.exports import SMALL, SMALL_LLAMA, gpt2, llama
from partita.accelerators.arrays.outputs import Outputs
from partita.accelerators.decoder import conversation
from partita.accelerators.decoder.conversation import Session, opened
from partita.accelerators.decoder.decoder import Decoder, decoder_roles
from partita.accelerators.decoder.input_roles import TooLong
from partita.accelerators.decoder.step import StepSizes, step_graph
from tests.accelerators.sessions.test_sessions import _Kept, with_buffers, with_flat_heads
from tests.kept import write_kept

KEPT = Path(__file__).with_name("kept_conversations.txt")

DECODERS: dict[str, Callable[[], pt.Graph]] = {
    "grows": lambda: llama(attrs.evolve(SMALL_LLAMA, layers=1, style="op")),
    "table": lambda: gpt2(attrs.evolve(SMALL, layers=1, style="op", longest=14, position_ids=False)),
    "last": lambda: _Kept(attrs.evolve(SMALL_LLAMA, layers=1, position_ids=False)).graph("last"),
    "buffers": lambda: with_buffers(12),
    "ring": lambda: with_buffers(4, mode="circular"),
    "flat": with_flat_heads,
}

COUNTS = {"grows": 36, "table": 20, "last": 14, "buffers": 30, "ring": 20, "flat": 20}
SUBJECTS = [f"{kind} {number}" for kind, count in COUNTS.items() for number in range(count)]

MOST = 9
"""Positions that the attention of a limited device supports."""


@cache
def graph_of(kind: str) -> pt.Graph:
    return pt.apply_pass(DECODERS[kind](), "InferShape")


@cache
def model_of(kind: str) -> pt.CompiledModel:
    return pt.compile(graph_of(kind), "reference")


@cache
def decoder_of(kind: str, way: str) -> Decoder:
    """A decoder that appends in place, or copies its caches."""
    compiled: dict[pt.Graph, pt.CompiledModel] = {}

    def anew(graph: pt.Graph) -> pt.CompiledModel:
        if graph not in compiled:
            compiled[graph] = pt.compile(graph, "reference")
        return compiled[graph]

    return Decoder(model_of(kind), graph_of(kind), None if way == "copies" else anew)


@cache
def step_of(kind: str, sizes: StepSizes) -> pt.Graph:
    roles = decoder_roles(graph_of(kind))
    assert roles is not None
    return step_graph(roles, sizes)


def inputs_of(rng: random.Random, kind: str, batch: int, length: int) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, sometimes ones that it does not take."""
    rows = rng.choice((1, 1, 2, 3, 4, 5, 7))
    ids = np.array([[rng.randrange(SMALL.words) for _ in range(rows)] for _ in range(batch)])
    named: dict[str, Any] = {}
    chance = rng.random()
    if kind == "grows" and chance < 0.1:
        named["position_ids"] = np.arange(length, length + rows)[None].repeat(batch, 0) + rng.choice((0, 0, 1))
    elif kind == "grows" and chance < 0.15:
        named["position_ids"] = np.zeros((batch, rows + 1), np.int64)
    elif kind in ("grows", "table", "last") and chance < 0.3:
        mask = np.ones((batch, length + rows + (rng.random() < 0.2)), np.int64)
        mask[:, : rng.choice((0, 1, 2))] = 0
        named["attention_mask"] = mask
    elif chance < 0.35:
        named[rng.choice(("input_id", "nothing", "past", "write_indices"))] = ids
    elif chance < 0.38:
        ids = ids[:, :0]
    elif chance < 0.4:
        return [], named
    elif chance < 0.42:
        return [ids, ids], named
    elif chance < 0.47:
        return [], {("input_ids" if kind in ("grows", "table", "last") else "ids"): ids}
    elif chance < 0.5:
        return [{("input_ids" if kind in ("grows", "table", "last") else "ids"): ids}], named
    return [ids], named


def words(outputs: Any) -> str:
    """The most likely word after each token."""
    return " ".join(str(np.argmax(output, -1).tolist()) for output in outputs)


def said(call: Callable[..., Any], *args: Any, **named: Any) -> str:
    """The result of a call, or the error."""
    try:
        result = call(*args, **named)
        return words(result) if isinstance(result, Outputs) else str(result)
    except pt.PartitaError as error:
        return f"{type(error).__name__}: {error}"


def state_of(session: Session) -> str:
    state = session._state
    shapes = sorted({(array.shape, int(np.any(array, axis=(0, 1, 3)).sum())) for array in state.arrays.values()})
    hidden = None if state.mask is None else (state.mask.shape, int(state.mask.sum()))
    return f"{session.length} {state.batch} {shapes} {hidden} {session.notes}"


def talk(rng: random.Random, kind: str) -> Iterator[str]:
    """A conversation: calls, forks, files and beginnings."""
    way = rng.choice(("appends", "appends", "copies", "is limited"))
    decoder = decoder_of(kind, "appends" if way == "is limited" else way)
    chunks = rng.choice(((1,), (4, 1), (4, 1), (5, 2, 1)))
    longest = rng.choice((None, None, 8, 12, 13))
    is_any = rng.random() < 0.4

    def step(roles: Any, sizes: StepSizes) -> pt.Graph:
        if way == "is limited" and sizes.room > MOST:
            raise TooLong("the buffers are too long")
        return step_of(kind, sizes)

    tried: list[str] = []
    original = Decoder.step

    def recorded(self: Decoder, sizes: StepSizes) -> Any:
        found = original(self, sizes)
        tried.append(f"{sizes.batch}x{sizes.rows} of {sizes.room}{'' if found else ' not'}")
        return found

    with (
        mock.patch("partita.accelerators.decoder.decoder.step_graph", step),
        mock.patch("partita.accelerators.decoder.decoder.most_positions", lambda roles, sizes: MOST),
        mock.patch.object(pt.CompiledModel, "is_for_any_size", is_any),
        mock.patch.object(conversation, "ROOM", 8), mock.patch.object(Decoder, "step", recorded),
        mock.patch.object(decoder, "_steps", {}), mock.patch.object(decoder, "_prompts", {}),
        mock.patch.object(decoder, "limit", None), mock.patch.object(decoder, "notes", list(decoder.notes)),
        tempfile.TemporaryDirectory() as folder,
    ):
        session = Session(decoder, longest, chunks)
        yield f"{way} {chunks} {longest} {is_any} {decoder.room} {decoder.output_names} {state_of(session)}"
        batch = rng.choice((1, 1, 1, 2)) if way == "copies" else 1
        yield said(begun, rng, kind, decoder)
        for _ in range(rng.randint(4, 7)):
            chance = rng.random()
            if chance < 0.7:
                given, named = inputs_of(rng, kind, batch + (rng.random() < 0.03), session.length)
                tried.clear()
                text = said(session, *given, **named)
                shapes = [value.shape for value in given if not isinstance(value, dict)]
                yield f"{shapes} {[*named]}: {text}; {', '.join(tried)}"
            elif chance < 0.85:
                rows = rng.choice((None, [0], [0, 0], [batch - 1], [batch], [-1], [], [], [0.5], [[0]], "x", np.array([0])))
                try:
                    session = session.fork(rows)  # type: ignore[arg-type]
                except pt.PartitaError as error:
                    yield f"{error}"
                else:
                    batch = batch if rows is None else len(rows)
            elif chance < 0.9:
                session.reset()
            else:
                path = os.path.join(folder, "said")
                session.save(path)
                with np.load(path) as stored:
                    yield str(sorted((name, array.dtype.str, array.shape) for name, array in stored.items()))
                other = Session(decoder, longest, chunks)
                other.load(path)
                yield str(other.length)
                session = other
                yield from damaged(rng, Path(path), Session(decoder, longest, chunks))
            yield state_of(session)


def begun(rng: random.Random, kind: str, decoder: Decoder) -> str:
    """The limits of a session that is opened."""
    longest = rng.choice((None, 1, 0, -1, 2**31 - 1, 2**31, True, 2.5, "8", np.int64(7), 13))
    chunks = rng.choice(((1,), [4, 1, 4], (4, 2), (), (0, 1), (True, 1), "1", 1, (1, 2.5), (1, np.int32(8))))
    found, session = opened(model_of(kind), decoder, longest, chunks)  # type: ignore[arg-type]
    return f"{longest!r} {chunks!r} {found is decoder} {session._longest!r} {session._chunks}"


def damaged(rng: random.Random, path: Path, session: Session) -> Iterator[str]:
    """Messages about a file of which one entry is another."""
    with np.load(path) as stored:
        arrays = dict(stored)
    name = rng.choice(sorted(arrays))
    array = arrays.pop(name)
    chance = rng.random()
    if chance < 0.6 and array.dtype == bool:
        arrays[name] = array[:, 1:]
    elif chance < 0.6:
        twice = np.concatenate([array, array], axis=rng.randrange(array.ndim)) if array.ndim else array * 2
        arrays[name] = rng.choice((
            array.astype("f8"), array + 1, array[None], array[..., None], array.reshape(-1), -array, twice,
        ))
    elif chance < 0.8:
        sizes = [abs(int(arrays.get(entry, 1))) for entry in ("partita.batch", "partita.length")]
        arrays["partita.mask"] = np.ones(sizes, bool)
    np.savez(path.with_suffix(".npz"), **arrays)
    error = said(session.load, path.with_suffix(".npz"))
    yield f"{'' if 'object' in error else error} {state_of(session)}".replace(str(path.parent), "")


def lines(subject: str) -> list[str]:
    """The lines of the file for a subject."""
    kind = subject.rpartition(" ")[0]
    return [f"{subject} | {line!r}" for line in talk(random.Random(f"conversation {subject}"), kind)]


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
