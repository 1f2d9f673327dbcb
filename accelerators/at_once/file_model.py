"""A model of a file that onnxruntime has as it stands, and answers from, before Partita reads it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from accelerators.at_once.whole_session import WholeSession
from accelerators.process.ending import at_a_device, before_the_door_closes, door
from accelerators.process.forking import Guard, renewed_in_children
from accelerators.running.outputs import Outputs

if TYPE_CHECKING:
    from accelerators.running.compiled_model import CompiledModel

HELD_BACK = 1.0
"""Seconds that reading the file waits for the first answer, so as not to take time from it."""

Steps = Sequence[Callable[[Any], Any]]
"""What makes the model: each step is given what the one before returned, the first None."""


class FileModel:
    """A CompiledModel to its users. Calls that fit are answered by the session; everything else is done by the model that is made
    of the file, behind the first answer or when it is asked for, and that takes all calls from then on. A file that no model can
    be made of has its error raised by what comes next."""

    def __init__(self, session: WholeSession, steps: Steps) -> None:
        self._session: WholeSession | None = session
        self._steps = steps
        self._guard = Guard(threading.RLock)
        self._model: CompiledModel | None = None
        self._error: Exception | None = None
        self._closed = False
        self._may_begin = threading.Event()
        self._has_answered = False
        renewed_in_children(self)
        _waiting.add(self)
        may_begin = self._may_begin
        reference = weakref.ref(self, lambda _: may_begin.set())
        self._thread = threading.Thread(target=_make, args=(reference, may_begin), name="partita-open", daemon=True)
        self._thread.start()

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Outputs:
        """The outputs for these inputs, as of any compiled model."""
        session = self._session
        if session is not None and out is None and not self._closed:
            door.enter()
            try:
                outputs = session.outputs(args, named)
            finally:
                door.leave()
            if outputs is not None:
                if not self._has_answered:
                    self._has_answered = True
                    self._may_begin.set()
                return outputs
        return self._made()(*args, out=out, **named)

    def _made(self) -> CompiledModel:
        """The model itself, made now unless it is there."""
        with self._guard.lock:
            if self._error is not None:
                raise self._error.with_traceback(None)  # else it would grow with each call
            if self._model is None:
                try:
                    self._model = self._through_all_steps()
                except Exception as error:
                    self._error, self._session = error, None
                    raise
                self._session, self._steps = None, ()
            return self._model

    def _through_all_steps(self) -> Any:
        model = None
        for step in self._steps:
            if self._closed:
                raise _closed()
            with at_a_device():
                model = step(model)
        return model

    def wait(self, timeout: float | None = None) -> FileModel:
        """This model, once its own devices are ready; the error if they cannot compile it, TimeoutError if it takes longer."""
        if timeout is not None:
            start = time.monotonic()
            self._may_begin.set()
            self._thread.join(max(timeout, 0.0))
            if self._thread.is_alive():
                raise TimeoutError
            timeout = max(timeout - (time.monotonic() - start), 0.0)
        self._made().wait(timeout)
        return self

    def close(self) -> None:
        """Close the model, and give up what is not ready."""
        self._closed = True
        self._may_begin.set()
        with self._guard.lock:
            if self._model is not None:
                self._model.close()
            self._session = None

    def renew(self) -> None:
        """A forked process has none of the session's threads: there the model is made when it is next asked for anything. The
        session stays, since its end would wait for its threads."""
        if self._session is not None:
            _of_parents.append(self._session)
            self._session = None

    def give_up(self) -> None:
        """Let the thread that makes the model end after the step that it is at."""
        if self._model is None:
            self._closed = True
            self._may_begin.set()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Its users ask whether it is a CompiledModel."""
        from accelerators.running.starting_model import StartingModel

        return StartingModel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)

    def __enter__(self) -> FileModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return self._made().__reduce__()

    def __repr__(self) -> str:
        return repr(self._made())


def _closed() -> Exception:
    from accelerators.errors import RunError

    return RunError("the model is closed", where="a model that starts", remedy="Compile it again")


def _make(reference: weakref.ref[FileModel], may_begin: threading.Event) -> None:
    """Make the model once it may begin, and have its own devices compiled. Its error is for whoever asks next."""
    may_begin.wait(HELD_BACK)
    model = reference()
    if model is None or model._closed:
        return
    try:
        _ = model._made().ready
    except Exception:  # noqa: BLE001  the model keeps it
        return


_of_parents: list[WholeSession] = []
"""The sessions that were there when this process was forked."""

_waiting: weakref.WeakSet[FileModel] = weakref.WeakSet()
"""The models that a thread may be making."""


def _end_of_interpreter() -> None:
    for model in list(_waiting):
        model.give_up()


before_the_door_closes(_end_of_interpreter)
