"""Arrays by name, with a few words, through a pipe: a line of JSON, followed by the bytes of the arrays.

Text is in the line itself. Both sides are processes of one machine, with one byte order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from partita.accelerators.errors import NotSupported
from partita.graph.types import numpy_dtype

Array = np.ndarray[Any, Any]

Frame = list[bytes | memoryview]
"""Pieces that are written one after another."""


def frame_of(words: Mapping[str, Any], arrays: Mapping[str, Array]) -> Frame:
    """One frame; only arrays of numbers, booleans and text can be sent."""
    for name, value in arrays.items():
        if not isinstance(value, (np.ndarray, np.generic)):
            cause = f"a {type(value).__name__} cannot be sent to another process"
            raise NotSupported(cause, where=f"value {name!r}", remedy="Use executor='serial'")
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    described = [
        [name, array.dtype.name, list(np.shape(arrays[name])), array.reshape(-1).tolist() if array.dtype.hasobject else None]
        for name, array in plain.items()
    ]
    line = json.dumps({**words, "arrays": described}).encode() + b"\n"
    return [line, *(array.reshape(-1).view(np.uint8).data for array in plain.values() if not array.dtype.hasobject)]


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The next frame; None if the other side has ended, even in the middle of a frame."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    words = json.loads(line)
    arrays = {}
    for name, dtype, shape, text in words.pop("arrays"):
        if text is not None:
            arrays[name] = np.array(text, object).reshape(shape)
            continue
        array = np.empty(shape, numpy_dtype(dtype))
        content = array.reshape(-1).view(np.uint8)
        read = 0
        while read < content.size:
            count = stream.readinto(content[read:].data)  # type: ignore[attr-defined]
            if not count:
                return None
            read += count
        arrays[name] = array
    return words, arrays
