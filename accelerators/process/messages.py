"""Messages between two processes: length-prefixed JSON over a socket. They also carry errors and configurations."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from partita.accelerators import errors
from partita.accelerators.errors import AcceleratorError
from partita.graph import errors as graph_errors
from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words, in_words

_LENGTH = struct.Struct("<Q")

LONGEST = 86_400.0
"""Maximum seconds of a single wait."""

_LARGEST = 1 << 30
"""Maximum bytes of a message; arrays lie beside it."""


class Garbled(Exception):
    """The other process wrote something that is not a message."""


def send(stream: socket.socket, message: Any) -> None:
    """Writes one message; TypeError or ValueError, before anything is written, if it cannot be JSON."""
    body = json.dumps(message, default=_number).encode()
    stream.sendall(_LENGTH.pack(len(body)) + body)


def _number(value: Any) -> Any:
    """Converts a numpy scalar to a Python number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds {type(value).__name__}, which cannot be handed to another process")


def receive(stream: socket.socket, seconds: float | None = None, ended: int | None = None) -> Any:
    """Reads one message; TimeoutError if it is late, EOFError if the other process is gone, Garbled if it is none.

    `ended` is a file that becomes readable when the other process has ended, though a child of it may still hold its
    end of the stream."""
    until = None if seconds is None else time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size, until, ended))
    if length > _LARGEST:
        raise Garbled(f"it announced {length} bytes")
    try:
        return json.loads(_exactly(stream, length, until, ended))
    except (ValueError, RecursionError) as error:
        raise Garbled(f"it wrote what is not JSON: {error_in_words(error):.200}") from error


def _exactly(stream: socket.socket, size: int, until: float | None, ended: int | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(stream, until, ended)
        more = stream.recv(min(size - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


def _wait(stream: socket.socket, until: float | None, ended: int | None) -> None:
    """Returns when the stream is readable, or closed."""
    poll = select.poll()
    for file in (stream, ended):
        if file is not None:
            poll.register(file, select.POLLIN)
    ready: list[tuple[int, int]] = []
    while not ready:
        left = None if until is None else until - time.monotonic()
        if left is not None and left < 0:
            raise TimeoutError
        ready = poll.poll(None if left is None else min(left, LONGEST) * 1000)
    if stream.fileno() not in dict(ready):
        raise EOFError


def error_told(error: BaseException) -> dict[str, Any]:
    """Encodes the error as a message."""
    kind = type(error).__name__
    if isinstance(error, PartitaError):
        words = [None if part is None else in_words(part) for part in (error.cause, error.where, error.remedy)]
        return {"kind": kind, **dict(zip(("cause", "where", "remedy"), words, strict=True))}
    return {"kind": "AcceleratorError", "cause": error_in_words(error), "where": None, "remedy": None}


def error_in(answer: Any, where: str) -> PartitaError | None:
    """The error that a process answers with, if it does; Garbled if it is neither an error nor an answer."""
    if isinstance(answer, dict) and "answer" in answer:
        return None
    try:
        return error_of(answer["error"], where)
    except (KeyError, TypeError, AttributeError):
        raise Garbled("it wrote neither an answer nor an error") from None


def error_of(described: Mapping[str, Any], where: str) -> PartitaError:
    """Decodes an error, with this place if it has none; one of a plugin's own classes becomes an AcceleratorError."""
    kind: Any = getattr(errors, described["kind"], None) or getattr(graph_errors, described["kind"], None)
    simple = isinstance(kind, type) and issubclass(kind, PartitaError) and kind.__init__ is PartitaError.__init__
    error_type: type[PartitaError] = kind if simple else AcceleratorError
    return error_type(described["cause"], where=described["where"] or where, remedy=described["remedy"])


def config_told(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Encodes a configuration as JSON; a value that is not plain is an error."""
    return {name: _plain(value, name, where) for name, value in config.items()}


def config_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Decodes a configuration."""
    return {name: _valued(value) for name, value in described.items()}


def _plain(value: Any, name: str, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, PurePath):
        return {"path": str(value)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_plain(item, name, where) for item in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _plain(item, name, where) for key, item in value.items()}}
    raise errors.BadConfig(
        f"{name} is {type(value).__name__}, which cannot be handed to another process",
        where=where,
        remedy=f"Leave out {name} or ISOLATE; numbers, words, paths, lists and dictionaries of them can be handed over",
    )


def _valued(described: Any) -> Any:
    if not isinstance(described, dict):
        return described
    ((kind, value),) = described.items()
    if kind == "path":
        from pathlib import Path

        return Path(value)
    if kind == "mapping":
        return {key: _valued(item) for key, item in value.items()}
    items = [_valued(item) for item in value]
    return tuple(items) if kind == "tuple" else items
