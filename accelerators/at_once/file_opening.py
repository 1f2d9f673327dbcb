"""Opens a file as a model that answers before the file is read."""

from __future__ import annotations

import os
import stat
import weakref
from typing import Any, BinaryIO

from accelerators.at_once.file_model import FileModel
from accelerators.at_once.plain_files import is_plain
from accelerators.at_once.whole_session import whole_session


def opened(path: str, device: Any, config: Any, threads: int) -> FileModel | None:
    """The model; None where onnxruntime may not have the file as it stands."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        file = open(path, "rb")  # noqa: SIM115  the model's file is read behind the first answer, though it may be gone by then
    except (OSError, ValueError):
        return None
    stamp = _stamp(os.fstat(file.fileno()))
    session = whole_session(path, threads) if is_plain(file) else None
    if session is None or _now(path) != stamp:
        file.close()
        return None
    whole = os.path.abspath(path)
    model = FileModel(session, [_imported, lambda _: _read(file, whole, stamp), lambda graph: _compiled(graph, device, config)])
    weakref.finalize(model, file.close)
    return model


def _imported(_: Any) -> None:
    import accelerators.compiling  # noqa: F401
    import graph.readers.onnx  # noqa: F401


def _read(held: BinaryIO, path: str, stamp: object) -> Any:
    """The graph of the file, which is what it was when the session read it, though it may be gone by now."""
    from graph.errors import ReadError
    from graph.readers.onnx import load_onnx

    if _now(path) == stamp:
        graph = load_onnx(path)
    else:
        held.seek(0)
        graph = load_onnx(held)
    if _stamp(os.fstat(held.fileno())) != stamp:
        raise ReadError("the file was changed while it was opened", where=path, remedy="Compile the model again")
    held.close()
    return graph


def _compiled(graph: Any, device: Any, config: Any) -> Any:
    from accelerators.compiling import compile

    return compile(graph, device, config)


def _now(path: str) -> object:
    try:
        return _stamp(os.stat(path))
    except OSError:
        return None


def _stamp(of: os.stat_result) -> object:
    """What tells a file from another, and from itself at another time."""
    return of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns
