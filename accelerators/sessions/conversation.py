"""A conversation with a decoder: what it was told is kept, and each call says only what is new."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import InputError
from partita.accelerators.process.forking import Guard
from partita.accelerators.running.compiled_model import CompiledModel
from partita.accelerators.running.outputs import Outputs
from partita.accelerators.sessions.decoder import Decoder
from partita.accelerators.sessions.roles import Count
from partita.accelerators.sessions.state import State, read_state, write_state
from partita.accelerators.sessions.step import StepSizes
from partita.graph.errors import did_you_mean
from partita.graph.node import Node
from partita.graph.types import Dim, TensorType, numpy_dtype

Array = np.ndarray[Any, Any]

ROOM = 1024
"""Positions that a cache begins with room for, where no longest conversation is stated."""


@attrs.frozen(slots=True)
class Piece:
    """Some of the tokens of a call, which are read together."""

    start: int
    """The first of them."""
    count: int
    """How many they are."""
    again: int
    """How many of them, from the first on, were read before."""
    is_whole: bool = False
    """True if the model as it is reads them."""


class Session:
    """One conversation. `session(ids)` gives the model's outputs for the new tokens, after all earlier ones.

    Masks and positions are filled in where the model asks for them; both may be given by name. A mask that hides tokens holds
    for all later calls, until another is given. A session is for one thread at a time; calls from several wait for each other."""

    def __init__(self, decoder: Decoder, longest: int | None, chunks: Sequence[int], state: State | None = None) -> None:
        self._decoder = decoder
        self._longest = decoder.room if longest is None or decoder.room is not None else longest
        self._chunks = tuple(chunks)
        self._state = State({}) if state is None else state
        self._lock = Guard()
        self._names = {name: i for i, name in enumerate(decoder.output_names)}
        self._where = f"session of model {decoder.roles.graph.name!r}"

    @property
    def length(self) -> int:
        """How many tokens were said so far."""
        return self._state.length

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the cache is copied with every call; empty where what is new is appended to it."""
        hidden = () if self._state.mask is None else ("caches are copied: a mask hides tokens",)
        return (*self._decoder.notes, *hidden)

    def __call__(self, /, *args: Any, **named: Any) -> Outputs:
        """The outputs, caches apart, for the new tokens: given by position, as one dictionary, or by keyword.

        A call that fails leaves the conversation as it was."""
        with self._lock.lock:
            arrays = self._arrays(args, named)
            batch, rows = self._counts(arrays)
            self._check_length(rows)
            if self._state.batch not in (None, batch):
                cause = f"{batch} sequences were given, and the conversation has {self._state.batch}"
                raise InputError(cause, where=self._where, remedy="reset() begins anew; fork(rows=[...]) chooses sequences")
            mask = self._mask(arrays, (batch, self._state.length + rows))
            before = attrs.evolve(self._state, arrays=dict(self._state.arrays))
            try:
                self._state.mask = mask
                if before.batch is None:
                    self._decoder.begin(self._state, batch)
                pieces = [self._run(arrays, piece) for piece in self._pieces(batch, rows)]
            except BaseException as error:
                self._state = before
                if isinstance(error, MemoryError):
                    cause = f"there is no memory for {self._room(rows)} tokens: {error}"
                    raise InputError(cause, where=self._where, remedy="Give a smaller `longest`") from None
                raise
        return Outputs(self._joined(pieces), self._names)

    def reset(self) -> None:
        """Forget what was said."""
        with self._lock.lock:
            self._state = State({})

    def fork(self, rows: Sequence[int] | None = None) -> Session:
        """Another conversation that goes on from here, of these sequences in this order if any are named, as beams do."""
        with self._lock.lock:
            chosen = None if rows is None else self._chosen(rows)
            state = self._state.copied(self._decoder.roles.caches, chosen)
        return Session(self._decoder, self._longest, self._chunks, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was said, as keys and values, to a file that `load` reads."""
        with self._lock.lock:
            write_state(path, self._state, self._decoder.roles.caches)

    def load(self, path: str | os.PathLike[str]) -> Session:
        """Go on from what a file holds; the session itself is returned."""
        kinds = {cache.past.name: cache.past.output_types[0] for cache in self._decoder.roles.caches}
        wanted = {
            name: (numpy_dtype(kind.dtype), len(kind.shape or ())) for name, kind in kinds.items() if isinstance(kind, TensorType)
        }
        state = read_state(path, wanted)
        self._check_stored(state, path)
        with self._lock.lock:
            self._state = state
        return self

    def _chosen(self, rows: Sequence[int]) -> list[int]:
        """The numbers of sequences that a fork is to have."""
        numbers = np.asarray(rows) if isinstance(rows, (Sequence, np.ndarray)) else np.zeros(0)
        count = self._state.batch or 0
        are_numbers = numbers.ndim == 1 and numbers.size > 0 and numbers.dtype.kind in "iu"
        if not are_numbers or not ((numbers >= 0) & (numbers < count)).all():
            cause = f"rows {numbers.tolist() if numbers.size else rows!r} are not among the {count} sequences of the conversation"
            raise InputError(cause, where=self._where, remedy="Name sequences that it has, by numbers from 0 on")
        chosen: list[int] = numbers.tolist()
        return chosen

    # -- what comes in -----------------------------------------------------------------------------------

    def _arrays(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[Node, Array]:
        roles = self._decoder.roles
        listed = list(args)
        if len(listed) == 1 and isinstance(listed[0], Mapping):
            named, listed = {**listed[0], **named}, []
        if len(listed) > len(roles.asked):
            cause = f"{len(listed)} inputs were given, and it takes {', '.join(node.name for node in roles.asked)}"
            raise InputError(cause, where=self._where)
        by_name = {node.name: node for node in (*roles.asked, *roles.filled)}
        given = {**{node.name: value for node, value in zip(roles.asked, listed)}, **named}
        for name in given:
            if name not in by_name:
                raise InputError(
                    f"there is no input {name!r} for the caller", where=self._where,
                    remedy=did_you_mean(name, by_name) or f"It takes {', '.join(by_name)}; the session keeps the caches",
                )
        missing = [node.name for node in roles.asked if node.name not in given]
        if missing:
            raise InputError(f"input {missing[0]!r} is missing", where=self._where, remedy="Give it by position or by name")
        return {by_name[name]: array for name, array in self._decoder.checker.some(given).items()}

    def _counts(self, arrays: Mapping[Node, Array]) -> tuple[int, int]:
        """How many sequences, and how many new tokens of each."""
        roles = self._decoder.roles
        counts: dict[Count, int] = {}
        for node, array in arrays.items():
            for dim, size in zip(_dims(node), array.shape):
                count = roles.symbols.get(dim) if isinstance(dim, str) else None
                if count is not None and counts.setdefault(count, size) != size:
                    cause = f"dimension {dim!r} is {size}, and that of another input {counts[count]}"
                    raise InputError(cause, where=f"{self._where}, input {node.name!r}")
        counts |= roles.fixed
        batch, new = counts.get("batch", 1), counts.get("rows", 1)
        if batch < 1 or new < 1:
            raise InputError("there is no new token", where=self._where, remedy="Give one at least")
        return batch, new

    @property
    def _most(self) -> int | None:
        """How many tokens there may be; None where nothing says so."""
        limits = [limit for limit in (self._longest, self._decoder.limit) if limit is not None]
        return min(limits, default=None)

    def _check_length(self, rows: int) -> None:
        most = self._most
        if most is not None and self._state.length + rows > most:
            is_asked = most == self._longest and most != self._decoder.room
            raise InputError(
                f"{self._state.length} tokens were said, and {rows} more are longer than {most}",
                where=self._where,
                remedy="Begin with a larger `longest`, or reset()" if is_asked else "The model has no more positions; reset()",
            )

    def _mask(self, arrays: Mapping[Node, Array], wanted: tuple[int, int]) -> Array | None:
        """Which of all tokens count once these are said, as a mask says that is given now or was before; None where all do."""
        earlier, masks = self._state.mask, list[Array]()
        for node, array in arrays.items():
            if self._decoder.roles.filled.get(node) != "mask":
                continue
            if array.shape != wanted:
                cause = f"{node.name!r} has the shape {list(array.shape)}, and the conversation then {list(wanted)}"
                raise InputError(cause, where=self._where, remedy="Give a number for each token that was said, earlier ones too")
            masks.append(array != 0)
        if not masks and earlier is not None:
            masks.append(np.concatenate([earlier, np.ones((wanted[0], wanted[1] - earlier.shape[1]), bool)], axis=1))
        if not masks or masks[0].all():
            return None
        kept = {cache.keeps for cache in self._decoder.roles.caches}
        if len(kept) > 1 and self._state.length > min(self._decoder.roles.windows):
            cause = "a mask hides tokens, and some caches hold the last positions alone: the model has one mask for all caches"
            raise InputError(cause, where=self._where, remedy="Begin a session for each sequence")
        return masks[0]

    @property
    def _copies(self) -> bool:
        """Are caches copied in each call?"""
        return self._decoder.copies or self._state.mask is not None

    def _check_stored(self, state: State, path: str | os.PathLike[str]) -> None:
        """A state fits the model's caches, and its mask an input."""
        if state.mask is not None and "mask" not in self._decoder.roles.filled.values():
            cause = "the file says which tokens count, and the model has no mask"
            raise InputError(cause, where=os.fspath(path))  # type: ignore[arg-type]
        for cache in self._decoder.roles.caches if state.arrays else ():
            kind, array = cache.past.output_types[0], state.arrays[cache.past.name]
            assert isinstance(kind, TensorType)
            wanted = list(kind.shape or ())
            if cache.grows:
                wanted[cache.axis] = cache.held(state.length)
            is_wrong = any(isinstance(dim, int) and dim != size for dim, size in zip(wanted, array.shape))
            if is_wrong or array.shape[0] != state.batch:
                cause = f"the cache {cache.past.name!r} in the file has the shape {list(array.shape)}, and the model's is {kind}"
                raise InputError(cause, where=os.fspath(path))  # type: ignore[arg-type]

    # -- running -----------------------------------------------------------------------------------------

    def _room(self, rows: int) -> int:
        """Positions of the buffers: as many as the longest conversation has, else doubled until all fit."""
        most = self._most
        if self._longest is not None and most is not None:
            return most
        room = ROOM
        while room < self._state.length + rows:
            room *= 2
        return room if most is None else min(room, most)

    def _pieces(self, batch: int, rows: int) -> Iterator[Piece]:
        """The pieces in which new tokens are read. A number of them that no step is made for is read by the model as it is, if
        that takes any number. Else few that are left over, and would go one by one, are read together with tokens before them,
        whose keys and values come out as they were."""
        decoder, start = self._decoder, 0
        if self._is_read_whole(batch, rows):
            yield Piece(0, rows, 0, is_whole=True)
            return
        while start < rows:
            left = rows - start
            whole = StepSizes(batch, left, self._room(left))
            if left == 1 or self._copies or decoder.has_step(whole) or (not start and decoder.token_axes() is None):
                count = left
            else:
                count = next((chunk for chunk in self._chunks if chunk <= left), left)
            again = self._again(batch, start, left) if count == 1 else 0
            count = left if again else count
            yield Piece(start - again, count + again, again)
            start += count

    def _is_read_whole(self, batch: int, rows: int) -> bool:
        """Are so many tokens read by the model as it is? The step for the next token is compiled first: by it is known whether
        caches are copied, and how many positions there are."""
        if rows == 1 or rows in self._chunks or self._copies:
            return False
        self._decoder.step(StepSizes(batch, 1, self._room(rows)))
        self._check_length(rows)
        return not self._copies and self._decoder.reads_any_length(self._state)

    def _again(self, batch: int, start: int, left: int) -> int:
        """How many tokens before those that are left over are read again with them; 0 where these go one by one."""
        count = min((chunk for chunk in self._chunks if chunk > left), default=0)
        if left < 2 or count > start + left or not count:
            return 0
        is_there = self._decoder.has_step(StepSizes(batch, count, self._room(left)))
        return count - left if is_there or 2 * left >= count else 0

    def _run(self, arrays: Mapping[Node, Array], piece: Piece) -> tuple[list[Any], Piece]:
        """The outputs for some of the new tokens, and which these are."""
        decoder, state = self._decoder, self._state
        assert state.batch is not None
        state.length -= piece.again
        step, room = (None, self._room(piece.count)) if piece.is_whole else self._step(state.batch, piece.count)
        given = self._given(arrays, piece.start, piece.count, step is None)
        if step is None or room is None:
            return decoder.copy(state, piece.count, given, room), piece
        decoder.make_room(state, room)
        return decoder.append(step, state, piece.count, given), piece

    def _step(self, batch: int, rows: int) -> tuple[CompiledModel | None, int | None]:
        """The step for so many new tokens, and the room of its buffers; None twice where caches are copied."""
        while not self._copies:
            self._check_length(rows)
            room = self._room(rows)
            step = self._decoder.step(StepSizes(batch, rows, room))
            if step is not None:
                return step, room
        return None, None

    def _joined(self, pieces: Sequence[tuple[list[Any], Piece]]) -> list[Any]:
        """The outputs of all pieces: one that has a row for each new token with all of them, another as it was last."""
        if len(pieces) == 1:
            return pieces[0][0]
        joined = []
        for number, axis in enumerate(self._decoder.token_axes() or ()):
            parts = [(outputs[number], piece) for outputs, piece in pieces]
            if axis is None:
                joined.append(parts[-1][0])
            else:
                before = (slice(None),) * axis
                joined.append(np.concatenate([part[(*before, slice(piece.again, None))] for part, piece in parts], axis=axis))
        return joined

    def _given(self, arrays: Mapping[Node, Array], start: int, count: int, masks: bool) -> dict[str, Array]:
        """The inputs other than caches, for a piece."""
        roles, state = self._decoder.roles, self._state
        assert state.batch is not None
        given = {}
        for node in (*roles.asked, *roles.filled):
            is_mask = roles.filled.get(node) == "mask"
            if is_mask and not masks:
                continue
            if node in arrays:
                wanted = roles.masked(state.length) + count
                piece = arrays[node][:, -wanted:] if is_mask else _piece(arrays[node], node, roles.symbols, start, count)
                given[node.name] = piece
            else:
                given[node.name] = roles.value(node, state.batch, count, state.length, state.mask)
        return given


def _dims(node: Node) -> tuple[Dim, ...]:
    kind = node.output_types[0]
    return kind.shape or () if isinstance(kind, TensorType) else ()


def _piece(array: Array, node: Node, symbols: Mapping[str, Count], start: int, count: int) -> Array:
    """The part of an input that belongs to some of the new tokens."""
    for axis, dim in enumerate(_dims(node)):
        if isinstance(dim, str) and symbols.get(dim) == "rows":
            return array[(slice(None),) * axis + (slice(start, start + count),)]
    return array
