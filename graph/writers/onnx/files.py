"""Saving of ONNX files, atomically."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from partita.graph.atomic_write import no_file, open_aside
from partita.graph.errors import WriteError, check_path
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph, require_graph
from partita.graph.writers.onnx.model import ModelWriter, complete_outputs, to_model

EXTERNAL_ABOVE = 1 << 30
"""Graphs with more bytes of constants than this store them in a separate file."""

_ALIGNMENT = 4096


def save(
    graph: Graph, path: str | os.PathLike[str], *, external: bool | None = None, drop_control: bool = False
) -> None:
    """Writes the graph as an ONNX file, atomically.

    Large constants go to a file beside it, "NAME.DIGEST.data", if there is more than 1 GiB of them or with `external`;
    one that an earlier save of the same path left is removed. Control dependencies are an error unless
    `drop_control`."""
    require_graph(graph)
    path = check_path("save", path, WriteError)
    folder = os.path.dirname(os.path.abspath(path))
    cause = no_file(path) or (None if os.path.isdir(folder) else f"there is no folder {folder!r}")
    if cause is not None:
        raise WriteError(cause, where=path)
    aside = external if external is not None else constant_bytes(graph) > EXTERNAL_ABOVE
    try:
        if aside:
            _save_both(graph, path, folder, drop_control)
        else:
            model = to_model(graph, drop_control=drop_control)
            _replace(path, folder, _serialized(model, path))
            _remove_stale(path, folder, None)
    except OSError as error:
        raise WriteError(f"the file cannot be written: {error.strerror or error}", where=path) from None


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants, including those in bodies, each array once."""
    sizes: dict[int, int] = {}
    stack, seen = [graph], {id(graph)}
    while stack:
        for node in stack.pop().nodes:
            if node.value is not None:
                sizes[id(node.value)] = node.value.nbytes
            else:
                fresh = [body for _, body in node.bodies if id(body) not in seen]
                seen.update(map(id, fresh))
                stack += fresh
    return sum(sizes.values())


class DataFile:
    """The data file of a model while it is written."""

    def __init__(self, file: BinaryIO, location: str) -> None:
        self.location = location
        """The location in the model until the file's digest is known."""
        self._file = file
        self._digest = hashlib.blake2b(digest_size=8)
        self._size = 0
        self._known: dict[tuple[int, int], tuple[int, int, Any]] = {}

    def add(self, array: np.ndarray[Any, Any]) -> tuple[int, int]:
        """Appends the array's bytes, unless they are there already, and returns offset and length."""
        key = (id(array), array.nbytes)
        if key not in self._known:
            self._put(bytes(-self._size % _ALIGNMENT))
            start = self._size
            self._put(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            self._known[key] = start, array.nbytes, array
        return self._known[key][:2]

    def _put(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)

    def digest(self) -> str:
        """The digest of the content, 16 characters."""
        return self._digest.hexdigest()


def _save_both(graph: Graph, path: str, folder: str, drop_control: bool) -> None:
    """Writes first the data file, under a unique name, then the model that refers to it, which replaces the old one."""
    with _temporary(folder) as (file, written):
        data = DataFile(file, "data")
        with collector_paused():
            model = ModelWriter(graph, drop_control=drop_control, aside=data).model
        complete_outputs(graph, model)
        file.flush()
        name = f"{os.path.basename(path)}.{data.digest()}.data"
        _rename_location(model, name)
        serialized = _serialized(model, path)
        os.replace(written, os.path.join(folder, name))
    try:
        _replace(path, folder, serialized)
    except BaseException:
        _remove_stale(path, folder, None)
        raise
    _remove_stale(path, folder, name)


def _rename_location(model: Any, name: str) -> None:
    from onnx.external_data_helper import _get_all_tensors

    for tensor in _get_all_tensors(model):
        for item in tensor.external_data:
            if item.key == "location":
                item.value = name


def _serialized(model: Any, path: str) -> bytes:
    try:
        return model.SerializeToString()  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 (protobuf raises ValueError or its own EncodeError, by version)
        raise WriteError(
            f"the model does not fit into one file: {error}", where=path, remedy="Save with external=True"
        ) from None


def _replace(path: str, folder: str, data: bytes) -> None:
    with _temporary(folder) as (file, written):
        file.write(data)
        file.flush()
        os.replace(written, path)


@contextmanager
def _temporary(folder: str) -> Iterator[tuple[BinaryIO, str]]:
    """A new file in the folder, which is deleted afterwards unless it was renamed."""
    number, path = open_aside(folder)
    try:
        with os.fdopen(number, "wb") as file:
            yield file, path
    finally:
        if os.path.exists(path):
            os.remove(path)


def _remove_stale(path: str, folder: str, current: str | None) -> None:
    """Removes the data files of earlier saves of the same path."""
    ours = re.compile(re.escape(os.path.basename(path)) + r"\.[0-9a-f]{16}\.data")
    for name in os.listdir(folder):
        if ours.fullmatch(name) and name != current:
            os.remove(os.path.join(folder, name))
