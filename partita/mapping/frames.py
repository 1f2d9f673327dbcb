"""Arrays by name, and a few words about them, through a pipe: a line of JSON, and the bytes of the arrays after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from graph.types import numpy_dtype

Array = np.ndarray[Any, Any]


def write_frame(stream: BinaryIO, words: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write one frame; only numbers and truth values travel."""
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    shapes = [[name, array.dtype.name, list(np.shape(arrays[name]))] for name, array in plain.items()]
    stream.write(json.dumps({**words, "arrays": shapes}).encode() + b"\n")
    for array in plain.values():
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, Array]] | None:
    """The next frame; None where the other side has ended, in the middle of one too."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    words = json.loads(line)
    arrays = {}
    for name, dtype, shape in words.pop("arrays"):
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
