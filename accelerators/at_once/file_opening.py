"""Opens a file as a model that answers before the file is read, or before the graph that was read from it is compiled."""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, BinaryIO

from partita.accelerators.at_once.file_model import FileModel, Making
from partita.accelerators.at_once.ort_safe_ops import is_plain
from partita.accelerators.at_once.ort_session import WholeSession, whole_session
from partita.accelerators.process.working_folder import working_folder
from partita.graph.file_state import FileState, file_state, open_state

if TYPE_CHECKING:
    from partita.graph.graph import Graph


def opened(path: str, device: Any, config: Any, threads: int) -> FileModel | None:
    """The model; None if onnxruntime must not run the unchanged file."""
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
    """The same for a graph that was read from a file; None also if it may differ from the file."""
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
    """True if the node may differ from the file's: affinities and writable arrays can be changed."""
    return node.affinity is not None or (node.value is not None and node.value.flags.writeable)


def _open(path: str) -> BinaryIO | None:
    """The open file; None if it is not a regular file."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            return open(path, "rb")  # the model's file is read after the first answer, though it may be deleted by then
    except (OSError, ValueError):
        pass
    return None


def _session(file: BinaryIO, state: FileState, threads: int) -> WholeSession | None:
    """The session of the file; None if onnxruntime must not run it unchanged, or it was changed meanwhile."""
    session = whole_session(state.path, threads) if is_plain(file) else None
    return session if file_state(state.path) == state else None


def _imported(_: Any) -> None:
    import partita.accelerators.compiling
    import partita.graph.readers.onnx  # noqa: F401


def _read(held: BinaryIO, state: FileState) -> Any:
    """The graph of the file in the state that the session read, even if the file was replaced or deleted since."""
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
    """Closes the file. This is a step of its own: if a fork happens before it ends, the child can read again."""
    held.close()
    return graph


def _as_read(graph: Graph) -> Graph:
    """The graph without attributes and affinities that were set since it was checked."""
    from partita.accelerators.starting import without_affinities

    return without_affinities(graph.evolve(attrs={}) if graph.attrs else graph)


def _beginner(device: Any, config: Any) -> Callable[[Any], Any]:
    """The step that begins the compilation, with the configuration and working directory of now."""
    asked, home = deepcopy(config), working_folder()
    return lambda graph: _begun(graph, device, asked, home)


def _begun(graph: Any, device: Any, config: Any, home: str) -> Any:
    from partita.accelerators.compiling import begin

    return begin(graph, device, config, home)
