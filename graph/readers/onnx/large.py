"""Large tensors of a file, read directly into separate arrays: protobuf would copy each of them twice, page by page.

The file is scanned in protobuf's wire format down to the initializers of the main graph. Files with unusual contents
(several graphs in one model, groups, a tensor with two data fields, a length that does not fit) are
parsed by protobuf as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import BinaryIO

import attrs
import numpy as np

from partita.graph.types import Array

LARGE = 1 << 16
"""Tensors of more bytes than this are read separately."""

WORTH = 1 << 20
"""Minimum bytes of a file that is read in parts."""

_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


@attrs.frozen(slots=True, eq=False)
class Parts:
    """A model's file in two parts."""

    rest: bytes
    """The serialized model without the data of its large tensors."""
    data: Mapping[int, Array]
    """The bytes of each large tensor, by its index among the initializers of the main graph."""


def read_parts(file: BinaryIO) -> Parts | None:
    """The model in the file, in parts; None, with the file rewound, if it has to be parsed as a whole."""
    data: dict[int, Array] = {}
    with contextlib.suppress(_NotSimple):
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        rest = _ProtoWalk(file, data).model(size) if size >= WORTH else b""
        if data:
            return Parts(rest, data)
    file.seek(0)
    return None


class _NotSimple(Exception):
    """The file is damaged, or written in an unusual way."""


class _ProtoWalk:
    """One scan of a file. Each method reads the message at the position, and returns its bytes without large tensors."""

    def __init__(self, file: BinaryIO, data: dict[int, Array]) -> None:
        self.file = file
        self.data = data
        self.position = 0
        self.initializers = 0

    def model(self, size: int) -> bytes:
        rest: list[bytes] = []
        graphs = 0
        while self.position < size:
            tag = self.varint()
            if tag == _tag(_MODEL_GRAPH):
                graphs += 1
                rest += _message(tag, self.graph(self.inner(size)))
            else:
                rest += self.field(tag, size)
        if graphs > 1:
            raise _NotSimple
        return b"".join(rest)

    def graph(self, end: int) -> bytes:
        rest: list[bytes] = []
        while self.position < end:
            tag = self.varint()
            if tag == _tag(_GRAPH_INITIALIZER):
                rest += _message(tag, self.tensor(self.inner(end)))
                self.initializers += 1
            else:
                rest += self.field(tag, end)
        return b"".join(rest)

    def tensor(self, end: int) -> bytes:
        rest: list[bytes] = []
        while self.position < end:
            tag = self.varint()
            if tag == _tag(_TENSOR_RAW_DATA) and self.initializers in self.data:
                raise _NotSimple
            if tag == _tag(_TENSOR_RAW_DATA) and end - self.position > LARGE:
                stop = self.inner(end)
                self.data[self.initializers] = self.array(stop - self.position)
            else:
                rest += self.field(tag, end)
        return b"".join(rest)

    def array(self, size: int) -> Array:
        array = np.empty(size, np.uint8)
        if self.file.readinto(array.data) != size:  # type: ignore[attr-defined]
            raise _NotSimple
        self.position += size
        array.flags.writeable = False
        return array

    def field(self, tag: int, end: int) -> tuple[bytes, ...]:
        """The bytes of a field, with its tag."""
        kind = tag & 7
        if kind == _LENGTH:
            size = self.inner(end) - self.position
            return _varint(tag), _varint(size), self.take(size, end)
        if kind == _VARINT:
            return _varint(tag), _varint(self.varint())
        if kind in (_FIXED64, _FIXED32):
            return _varint(tag), self.take(8 if kind == _FIXED64 else 4, end)
        raise _NotSimple

    def inner(self, end: int) -> int:
        """End of the message, string or array whose length is at the position."""
        stop = self.varint() + self.position
        if stop > end:
            raise _NotSimple
        return stop

    def take(self, size: int, end: int) -> bytes:
        taken = self.file.read(size)
        if len(taken) != size or self.position + size > end:
            raise _NotSimple
        self.position += size
        return taken

    def varint(self) -> int:
        number = shift = 0
        while shift < 64:
            byte = self.file.read(1)
            if not byte:
                raise _NotSimple
            self.position += 1
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return number
            shift += 7
        raise _NotSimple


def _tag(field: int) -> int:
    return field << 3 | _LENGTH


def _message(tag: int, content: bytes) -> tuple[bytes, ...]:
    return _varint(tag), _varint(len(content)), content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
