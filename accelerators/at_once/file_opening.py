"""Opens a file as a model that answers before the file is read, or before the graph that was read from it is compiled."""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, BinaryIO

from partita.accelerators.at_once.file_model import FileModel
from partita.accelerators.at_once.making import Making
from partita.accelerators.at_once.plain_files import is_plain
from partita.accelerators.at_once.whole_session import WholeSession, whole_session
from partita.accelerators.process.working import working_folder
from partita.graph.file_state import FileState, file_state, open_state

if TYPE_CHECKING:
    from partita.graph.graph import Graph


def opened(path: str, device: Any, config: Any, threads: int) -> FileModel | None:
    """The model; None where onnxruntime may not have the file as it stands."""
    file = _open(path)
    if file is None:
        return None
    state = open_state(path, file.fileno())
    session = _session(file, state, threads)
    if session is None:
        file.close()
        return None
    steps = [_imported, lambda _: _read(file, state), lambda graph: _closed_behind(graph, file), _beginner(device, config)]
    making = Making(steps)
    weakref.finalize(making, file.close)
    return FileModel(session, making)


def opened_graph(graph: Graph, device: Any, config: Any, threads: int) -> FileModel | None:
    """The same of a graph that was read from a file; None too where it may not be just what the file holds."""
    state = graph.file
    if state is None or graph.attrs or any(_differs(node) for node in graph.nodes):
        return None
    file = _open(state.path)
    if file is None:
        return None
    with file:
        is_same = open_state(state.path, file.fileno()) == state
        session = _session(file, state, threads) if is_same else None
    steps = [_imported, lambda _: _as_read(graph), _beginner(device, config)]
    return None if session is None else FileModel(session, Making(steps))


def _differs(node: Any) -> bool:
    """May the node be another than the file's? An affinity can be set, and an array that lets itself be written."""
    return node.affinity is not None or (node.value is not None and node.value.flags.writeable)


def _open(path: str) -> BinaryIO | None:
    """The file, if it is one."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            return open(path, "rb")  # the model's file is read behind the first answer, though it may be gone by then
    except (OSError, ValueError):
        pass
    return None


def _session(file: BinaryIO, state: FileState, threads: int) -> WholeSession | None:
    """The session of the file; None where onnxruntime may not have it as it stands, or it was changed meanwhile."""
    session = whole_session(state.path, threads) if is_plain(file) else None
    return session if file_state(state.path) == state else None


def _imported(_: Any) -> None:
    import partita.accelerators.compiling
    import partita.graph.readers.onnx  # noqa: F401


def _read(held: BinaryIO, state: FileState) -> Any:
    """The graph of the file, which is what it was when the session read it, though it may be gone by now."""
    from partita.graph.errors import ReadError
    from partita.graph.readers.onnx import load_onnx

    if file_state(state.path) == state:
        graph = load_onnx(state.path)
    else:
        held.seek(0)
        graph = load_onnx(held)
    if open_state(state.path, held.fileno()) != state:
        raise ReadError("the file was changed while it was opened", where=state.path, remedy="Compile the model again")
    return graph


def _closed_behind(graph: Any, held: BinaryIO) -> Any:
    """The graph of the file, now closed. This is a step of its own: where a fork comes before its end, the child reads again."""
    held.close()
    return graph


def _as_read(graph: Graph) -> Graph:
    """The graph, though attributes and affinities were set since it was looked at."""
    from partita.accelerators.starting import without_affinities

    return without_affinities(graph.evolve(attrs={}) if graph.attrs else graph)


def _beginner(device: Any, config: Any) -> Callable[[Any], Any]:
    """The step that lets the model of a graph begin, as the configuration and the process's folder are now."""
    asked, home = deepcopy(config), working_folder()
    return lambda graph: _begun(graph, device, asked, home)


def _begun(graph: Any, device: Any, config: Any, home: str) -> Any:
    from partita.accelerators.compiling import begin

    return begin(graph, device, config, home)
