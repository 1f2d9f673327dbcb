"""A conversation with a decoder: earlier tokens are kept, and each call passes only new ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from partita.accelerators.arrays.outputs import Outputs
from partita.accelerators.decoder.decoder import Decoder
from partita.accelerators.decoder.input_roles import Count
from partita.accelerators.decoder.kv_pairs import State, read_state, write_state
from partita.accelerators.decoder.step import StepSizes
from partita.accelerators.errors import InputError
from partita.accelerators.process.forking import Guard
from partita.graph.errors import did_you_mean
from partita.graph.inline import inline_calls
from partita.graph.node import Node
from partita.graph.types import Dim, TensorType, numpy_dtype

if TYPE_CHECKING:
    from partita.accelerators.runtime.compiled_model import CompiledModel

Array = np.ndarray[Any, Any]

ROOM = 1024
"""Initial capacity of a cache in positions, if `longest` is not given."""


@attrs.frozen(slots=True)
class TokenPiece:
    """Some tokens of a call, which are read together."""

    start: int
    """The index of the first of them."""
    count: int
    """Number of tokens."""
    again: int
    """Number of leading tokens that were read before."""
    is_whole: bool = False
    """True if the unmodified model reads them."""


class Session:
    """One conversation. `session(ids)` returns the model's outputs for the new tokens, after all earlier ones.

    Masks and positions are filled in if the model has such inputs; both may be given by name. A mask that hides tokens applies
    to all later calls, until another is given. A session is for one thread at a time; concurrent calls wait for each other."""

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
        """Number of tokens so far."""
        return self._state.length

    @property
    def notes(self) -> tuple[str, ...]:
        """The reasons why the cache is copied with every call; empty if new positions are appended to it in place."""
        hidden = () if self._state.mask is None else ("caches are copied: a mask hides tokens",)
        return (*self._decoder.notes, *hidden)

    def __call__(self, /, *args: Any, **named: Any) -> Outputs:
        """The outputs, except caches, for the new tokens: given by position, as one dictionary, or by keyword.

        A call that fails leaves the conversation unchanged."""
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
        """Discard all tokens."""
        with self._lock.lock:
            self._state = State({})

    def fork(self, rows: Sequence[int] | None = None) -> Session:
        """Another conversation that continues from here; with `rows`, of these sequences in this order, as in beam search."""
        with self._lock.lock:
            chosen = None if rows is None else self._chosen(rows)
            state = self._state.copied(self._decoder.roles.caches, chosen)
        return Session(self._decoder, self._longest, self._chunks, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, as keys and values, to a file that `load` reads."""
        with self._lock.lock:
            write_state(path, self._state, self._decoder.roles.caches)

    def load(self, path: str | os.PathLike[str]) -> Session:
        """Continue from the state in a file; returns the session itself."""
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
        """The indices of the sequences of a fork."""
        numbers = np.asarray(rows) if isinstance(rows, (Sequence, np.ndarray)) else np.zeros(0)
        count = self._state.batch or 0
        are_numbers = numbers.ndim == 1 and numbers.size > 0 and numbers.dtype.kind in "iu"
        if not are_numbers or not ((numbers >= 0) & (numbers < count)).all():
            cause = f"rows {numbers.tolist() if numbers.size else rows!r} are not among the {count} sequences of the conversation"
            raise InputError(cause, where=self._where, remedy="Name sequences that it has, by numbers from 0 on")
        chosen: list[int] = numbers.tolist()
        return chosen

    # -- inputs ------------------------------------------------------------------------------------------

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
        """The number of sequences, and the number of new tokens of each."""
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
        """The maximum number of tokens; None if there is no limit."""
        limits = [limit for limit in (self._longest, self._decoder.limit) if limit is not None]
        return min(limits, default=None)

    def _check_length(self, rows: int) -> None:
        most = self._most
        if most is not None and self._state.length + rows > most:
            is_asked = most == self._longest and most != self._decoder.room
            raise InputError(
                f"{self._state.length} tokens were read, and {rows} more exceed {most}",
                where=self._where,
                remedy="Begin with a larger `longest`, or reset()" if is_asked else "The model has no more positions; reset()",
            )

    def _mask(self, arrays: Mapping[Node, Array], wanted: tuple[int, int]) -> Array | None:
        """The mask of all tokens after this call, from the call's or an earlier mask; None if no token is hidden."""
        earlier, masks = self._state.mask, list[Array]()
        for node, array in arrays.items():
            if self._decoder.roles.filled.get(node) != "mask":
                continue
            if array.shape != wanted:
                cause = f"{node.name!r} has the shape {list(array.shape)}, and the conversation then {list(wanted)}"
                raise InputError(cause, where=self._where, remedy="Give a number for each token that was read, earlier ones too")
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
        """True if caches are copied in each call."""
        return self._decoder.copies or self._state.mask is not None

    def _check_stored(self, state: State, path: str | os.PathLike[str]) -> None:
        """Checks that a state fits the model's caches, and that there is an input for its mask."""
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
        """The capacity of the buffers: that of the longest conversation, else doubled until all positions fit."""
        most = self._most
        if self._longest is not None and most is not None:
            return most
        room = ROOM
        while room < self._state.length + rows:
            room *= 2
        return room if most is None else min(room, most)

    def _pieces(self, batch: int, rows: int) -> Iterator[TokenPiece]:
        """The pieces in which new tokens are read. A number of tokens without a step of its own is read by the model itself, if
        that accepts any number. Else a short remainder, which would be read one by one, is read together with preceding tokens,
        whose keys and values do not change."""
        decoder, start = self._decoder, 0
        if self._is_read_whole(batch, rows):
            yield TokenPiece(0, rows, 0, is_whole=True)
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
            yield TokenPiece(start - again, count + again, again)
            start += count

    def _is_read_whole(self, batch: int, rows: int) -> bool:
        """True if this many tokens are read by the model itself. The step for the next token is compiled first: it determines if
        caches are copied, and the number of positions."""
        if rows == 1 or rows in self._chunks or self._copies:
            return False
        self._decoder.step(StepSizes(batch, 1, self._room(rows)))
        self._check_length(rows)
        return not self._copies and self._decoder.reads_any_length(self._state)

    def _again(self, batch: int, start: int, left: int) -> int:
        """The number of tokens before the remainder that are read again with it; 0 if its tokens are read one by one."""
        count = min((chunk for chunk in self._chunks if chunk > left), default=0)
        if left < 2 or count > start + left or not count:
            return 0
        is_there = self._decoder.has_step(StepSizes(batch, count, self._room(left)))
        return count - left if is_there or 2 * left >= count else 0

    def _run(self, arrays: Mapping[Node, Array], piece: TokenPiece) -> tuple[list[Any], TokenPiece]:
        """The outputs for some of the new tokens, and the piece."""
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
        """The step for this many new tokens, and the capacity of its buffers; None twice if caches are copied."""
        while not self._copies:
            self._check_length(rows)
            room = self._room(rows)
            step = self._decoder.step(StepSizes(batch, rows, room))
            if step is not None:
                return step, room
        return None, None

    def _joined(self, pieces: Sequence[tuple[list[Any], TokenPiece]]) -> list[Any]:
        """The outputs of all pieces: those with a row per token are concatenated, others are those of the last piece."""
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
        """The inputs of a piece, except caches."""
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
    """The part of an input for some of the new tokens."""
    for axis, dim in enumerate(_dims(node)):
        if isinstance(dim, str) and symbols.get(dim) == "rows":
            return array[(slice(None),) * axis + (slice(start, start + count),)]
    return array


_LONGEST = 2**31 - 1
"""Maximum number of positions of a conversation."""


def opened(
    model: CompiledModel, decoder: Decoder | None, longest: int | None, chunks: Sequence[int]
) -> tuple[Decoder, Session]:
    """The decoder of the model, reused if there is one, and a new session of it."""
    where = f"model {model.graph.name!r}"
    if longest is not None and not (_is_count(longest) and longest <= _LONGEST):
        raise InputError(f"longest is a number of tokens, at most {_LONGEST:,}, not {longest!r:.80}", where=where)
    if not isinstance(chunks, Sequence) or not all(map(_is_count, chunks)) or 1 not in chunks:
        raise InputError(f"chunks are numbers of tokens, and 1 is among them, not {chunks!r}", where=where)
    sizes = sorted(set(chunks), reverse=True)
    if decoder is None:
        source, step = (inline_calls(model.graph), None) if model.origin is None else (model.origin.graph, model.origin.step)
        decoder = Decoder(model, source, step)
    return decoder, Session(decoder, None if longest is None else int(longest), sizes)


def _is_count(number: object) -> bool:
    """True for a positive integer."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and int(number) > 0
