"""A model of an unchanged file that onnxruntime has loaded, and that answers before Partita reads it."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, BinaryIO

from partita.accelerators.arrays.outputs import Outputs
from partita.accelerators.engines.onnxruntime.plain_files import is_plain
from partita.accelerators.engines.onnxruntime.whole_session import WholeSession, whole_session
from partita.accelerators.process.exit_barrier import at_a_device, door
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.runtime.starting.work import Starting, Work, working_folder
from partita.graph.errors import ReadError
from partita.graph.file_state import FileState, file_state, open_state

if TYPE_CHECKING:
    from partita.accelerators.runtime.compiled_model import CompiledModel
    from partita.accelerators.runtime.starting.devices import Devices
    from partita.graph.graph import Graph


class FileModel(Starting, AbstractContextManager["FileModel"]):
    """A compiled model that is not there yet: the session answers the calls that fit. Anything else is done by the model itself,
    which is made for it, and from then on for all. If the file is invalid, the next access raises its error. It counts as a
    CompiledModel, which is too much to load before the first answer."""

    loads_compiled_model = True
    """Makes `isinstance` take it for a CompiledModel."""

    def __init__(self, session: WholeSession, work: Work) -> None:
        self._session: WholeSession | None = session
        self._guard = Guard(threading.RLock)
        self._model: CompiledModel | None = None
        renewed_in_children(self)
        self._start(work)

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Outputs:
        """The outputs for these inputs, as of any compiled model."""
        session = self._session
        if session is not None and out is None and not self._work.is_over:
            start = self._work.pace.start()
            door.enter()
            try:
                outputs = session.outputs(args, named)
            finally:
                door.leave()
            if outputs is not None:
                self._work.answered(start)
                return outputs
        return self._made()(*args, out=out, **named)

    def _made(self) -> CompiledModel:
        """The model itself, made now unless it exists."""
        with self._guard.lock:
            if self._model is None:
                try:
                    devices = self._work.devices()
                    self._work.check_wanted()
                    with at_a_device():
                        self._model = devices.starting(self._work) or devices.own()
                finally:
                    self._session = None
            return self._model

    def take_over(self, final: CompiledModel, seconds: float) -> None:
        """Switches to this model from the next call on."""
        session = None
        with self._guard.lock:
            self._work.check_wanted()
            if self._model is None:
                self._model = self._work.devices().ready_after(seconds)
                session, self._session = self._session, None
            elif isinstance(self._model, Starting):
                self._model.take_over(final, seconds)
        if session is not None:
            session.close()

    def stay(self, error: BaseException) -> None:
        """Keeps the devices that answer now, for good."""
        model = self._made()
        if isinstance(model, Starting):
            model.stay(error)

    def close(self) -> None:
        """Close the model, and stop the background work."""
        self._work.give_up()
        with self._guard.lock:
            if self._model is not None:
                self._model.close()
            self._session = None

    def renew(self) -> None:
        """A forked process has none of the session's threads. The session is kept alive, since its destructor would wait for
        them."""
        if self._session is not None:
            _of_parents.append(self._session)
            self._session = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return self._made().__reduce__()

    def __repr__(self) -> str:
        return repr(self._made())


_of_parents: list[WholeSession] = []
"""The sessions that existed when this process was forked."""


Begin = Callable[[Callable[[], "Graph"], Any, Any, str], "Devices"]
"""The devices for a graph, which it reads, a device string, a configuration and a working directory; `compiling.begin`."""


def opened(path: str, device: Any, config: Any, threads: int, begin: Begin) -> FileModel | None:
    """The model of a file; None if onnxruntime must not run it unchanged."""
    file = _open(path)
    if file is None:
        return None
    state = open_state(path, file.fileno())
    session = _session(file, state, threads)
    if session is None:
        file.close()
        return None
    asked, home = deepcopy(config), working_folder()

    def begun() -> Devices:
        return begin(lambda: _read(file, state), device, asked, home)

    weakref.finalize(begun, file.close)
    return FileModel(session, Work(begun))


def opened_graph(graph: Graph, device: Any, config: Any, threads: int, begin: Begin) -> FileModel | None:
    """The same for a graph that was read from a file; None also if it may differ from the file."""
    state = graph.file
    if not isinstance(state, FileState) or graph.attrs or any(_differs(node) for node in graph.nodes):
        return None
    file = _open(state.path)
    if file is None:
        return None
    with file:
        is_same = open_state(state.path, file.fileno()) == state
        session = _session(file, state, threads) if is_same else None
    asked, home = deepcopy(config), working_folder()
    return None if session is None else FileModel(session, Work(lambda: begin(lambda: _as_read(graph), device, asked, home)))


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


def _read(held: BinaryIO, state: FileState) -> Graph:
    """The graph of the file in the state that the session read, even if the file was replaced or deleted since."""
    from partita.graph.readers.onnx import load_onnx  # start-up

    if file_state(state.path) == state:
        graph = load_onnx(state.path)
    else:
        held.seek(0)
        graph = load_onnx(held)
    if open_state(state.path, held.fileno()) != state:
        raise ReadError("the file was changed while it was opened", where=state.path, remedy="Compile the model again")
    return graph


def _as_read(graph: Graph) -> Graph:
    """The graph without attributes and affinities that were set since it was checked."""
    from partita.accelerators.runtime.starting.devices import without_affinities  # start-up

    return without_affinities(graph.evolve(attrs={}) if graph.attrs else graph)
