"""External data: mapped into memory, and only from files inside the model's own folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.graph.errors import ReadError
from partita.graph.readers.onnx.source import utf8
from partita.graph.types import Array

Place = str | Mapping[str, Array] | None
"""Location of external data: a folder of files, bytes in memory by location, or None."""


def map_external(proto: Any, folder: Place, wanted: int, where: str) -> Array:
    """The bytes of a tensor, mapped read-only from a file, or a slice of bytes in memory."""
    entries = {utf8(item.key, where): utf8(item.value, where) for item in proto.external_data}
    offset = _number(entries, "offset", 0, where)
    length = _number(entries, "length", wanted, where)
    if length != wanted:
        raise ReadError(f"external data of {length} bytes is given for a tensor that takes {wanted}", where=where)
    end = offset + wanted
    if isinstance(folder, Mapping):
        return _at_hand(folder, entries.get("location", ""), offset, end, where)
    path = _inside(entries.get("location", ""), folder, where)
    size = os.stat(path).st_size
    if end > size:
        raise ReadError(
            f"external data is to end at byte {end} of {entries['location']!r}, which has {size}",
            where=where,
            remedy="The file is cut short, or belongs to another model",
        )
    if not wanted:
        return np.zeros(0, np.uint8)
    try:
        return np.memmap(path, np.uint8, "r", offset, (wanted,)).view(np.ndarray)
    except (OSError, ValueError, OverflowError) as error:
        raise ReadError(f"external data {entries['location']!r} cannot be mapped: {error}", where=where) from None


def _at_hand(given: Mapping[str, Array], location: str, offset: int, end: int, where: str) -> Array:
    if location not in given or end > given[location].size:
        raise ReadError(f"external data is to end at byte {end} of {location!r}, which is not at hand", where=where)
    return given[location][offset:end]


def _inside(location: str, folder: str | None, where: str) -> str:
    """The path of a regular file, checked to be inside the folder after links are resolved."""
    if folder is None:
        raise ReadError(
            f"the model keeps data in the file {location!r}, and its folder is not known",
            where=where,
            remedy="Load the model by its path, or give base_dir=",
        )
    remedy = "A model may only name files inside its own folder; move the data there"
    if not location or "\0" in location or os.path.isabs(location) or location.startswith(("\\", "//")):
        raise ReadError(f"external data lies at {location!r}, which is no relative path", where=where, remedy=remedy)
    home = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(home, location))
    if os.path.commonpath([home, path]) != home:
        raise ReadError(f"external data {location!r} lies outside the model's folder", where=where, remedy=remedy)
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        raise ReadError(f"there is no file {location!r} with external data", where=where) from None
    if not regular:
        raise ReadError(f"external data {location!r} is no regular file", where=where, remedy=remedy)
    return path


def _number(entries: dict[str, str], key: str, default: int, where: str) -> int:
    given = entries.get(key)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 20):
        raise ReadError(f"the {key} of external data is {given!r:.60}", where=where)
    return int(given)
