"""Messages between this process and the one that infers types: one letter, and some bytes. Nothing is pickled."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO

INFER, CONVERT, ANSWER, ABORT = b"I", b"V", b"A", b"X"
"""Messages of the parent: a model for type inference, one to convert to another opset, the types of a hidden
node's outputs, or that these are unknown.
"""

READY, RESULT, COMPLAINT, FAILURE, QUESTION = b"B", b"R", b"C", b"F", b"Q"
"""Messages of the child: ready, the model with types, an error of ONNX's strict inference, any other error, or
a question with the types of a hidden node's inputs.
"""

_HEAD = struct.Struct("<cQ")
_SIZE = struct.Struct("<q")


def send(stream: BinaryIO, kind: bytes, *parts: bytes | None) -> None:
    """Writes one message; a part may be absent."""
    body = b"".join(_SIZE.pack(-1) if part is None else _SIZE.pack(len(part)) + part for part in parts)
    stream.write(_HEAD.pack(kind, len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, Sequence[bytes | None]]:
    """Reads one message; EOFError if the other process is gone."""
    kind, length = _HEAD.unpack(_exactly(stream, _HEAD.size))
    body = _exactly(stream, length)
    parts: list[bytes | None] = []
    at = 0
    while at < length:
        (size,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size
        parts.append(None if size < 0 else body[at : at + size])
        at += max(size, 0)
    return kind, parts


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
