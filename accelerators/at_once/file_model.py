"""A model of an unchanged file that onnxruntime has loaded, and that answers before Partita reads it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from partita.accelerators.at_once.ort_session import WholeSession
from partita.accelerators.errors import forget_frames
from partita.accelerators.process.background import behind
from partita.accelerators.process.exit_barrier import at_a_device, before_the_door_closes, door
from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.running.outputs import Outputs

if TYPE_CHECKING:
    from partita.accelerators.running.compiled_model import CompiledModel
    from partita.accelerators.starting import Beginning

HELD_BACK = 1.0
"""Seconds that reading the file waits for the first answer, so as not to slow it down."""


class FileModel:
    """A CompiledModel to its users. Until the model's own devices are ready, the session answers the calls that fit; for anything
    else a StartingModel is made, which takes all later calls. If the file is invalid, the next access raises its
    error."""

    def __init__(self, session: WholeSession, making: Making) -> None:
        self._session: WholeSession | None = session
        self._making = making
        self._guard = Guard(threading.RLock)
        self._model: CompiledModel | None = None
        self._may_begin = threading.Event()
        self._has_answered = False
        self._is_forked = False
        ready: Future[FileModel] = Future()
        ready.set_running_or_notify_cancel()
        self._ready: Future[FileModel] | None = ready
        renewed_in_children(self)
        _waiting.add(self)
        may_begin = self._may_begin
        weakref.finalize(self, making.give_up).atexit = False
        reference = weakref.ref(self, lambda _: may_begin.set())
        arguments = (reference, making, may_begin, ready)
        self._thread = threading.Thread(target=_make, args=arguments, name="partita-open", daemon=True)
        self._thread.start()

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Outputs:
        """The outputs for these inputs, as of any compiled model."""
        session = self._session
        if session is not None and out is None and not self._making.is_over:
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
        """The model itself, made now unless it exists."""
        with self._guard.lock:
            if self._model is None:
                try:
                    beginning = self._making.begun()
                except Exception:
                    self._session = None
                    raise
                with self._making.open():
                    self._model = beginning.starting() or beginning.own()
                self._session = None
            return self._model

    def owned(self, beginning: Beginning, seconds: float) -> CompiledModel:
        """The model, which is on its own devices unless a StartingModel was needed before they were ready, or they failed."""
        session = None
        with self._guard.lock:
            if self._making.is_given_up:
                raise closed()
            if self._model is None:
                with suppress(Exception):
                    self._model = beginning.ready_after(seconds)
                    session, self._session = self._session, None
            model = self._made()
        if session is not None:
            session.close()
        return model

    @property
    def ready(self) -> Future[Any]:
        """The future of this model on its own devices; it holds the error if there is none."""
        if self._is_forked:
            return self._made().ready
        if not self._may_begin.is_set():
            self._may_begin.set()
        return self._ready or self._ended_future()

    def _ended_future(self) -> Future[FileModel]:
        """A finished future. It references the model but not vice versa, so that both are freed with their last user."""
        ready: Future[FileModel] = Future()
        ready.set_result(self)
        return ready

    def end(self, ready: Future[FileModel]) -> None:
        """Settles the future: the model's own devices are ready."""
        ready.set_result(self)
        self._ready = None

    def wait(self, timeout: float | None = None) -> FileModel:
        """This model, once its own devices are ready; their error if they cannot compile it, TimeoutError if it takes longer."""
        start = time.monotonic()
        self._may_begin.set()
        self._thread.join(None if timeout is None else max(timeout, 0.0))
        if self._thread.is_alive():
            raise TimeoutError
        self._made().wait(None if timeout is None else max(timeout - (time.monotonic() - start), 0.0))
        return self

    def close(self) -> None:
        """Close the model, and stop the background work."""
        self._making.give_up()
        self._may_begin.set()
        with self._guard.lock:
            if self._model is not None:
                self._model.close()
            self._session = None

    def renew(self) -> None:
        """A forked process has none of the session's threads: there the model is made on the next access. The session is kept
        alive, since its destructor would wait for its threads."""
        self._is_forked, self._may_begin = True, threading.Event()
        if self._session is not None:
            _of_parents.append(self._session)
            self._session = None

    def give_up(self) -> None:
        """Stops the background thread after its current step."""
        if self._model is None:
            self._making.give_up()
            self._may_begin.set()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class of the model, since users check if it is a CompiledModel."""
        from partita.accelerators.running.starting_model import StartingModel

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


def _make(reference: weakref.ref[FileModel], making: Making, may_begin: threading.Event, ready: Future[FileModel]) -> None:
    """Makes the model once it may begin, and compiles it for its own devices. The next access raises an error of this. The thread
    does not keep the model alive: it ends when the model is dropped."""
    may_begin.wait(HELD_BACK)
    start, final = time.perf_counter(), None
    try:
        beginning = making.begun(answers_meanwhile=True)
        try:
            with making.open():
                final = beginning.own()
        except Exception as error:  # noqa: BLE001  the next access of the model raises it
            if making.is_given_up:
                forget_frames(error)
        theirs = _held(reference).owned(beginning, time.perf_counter() - start).ready
    except BaseException as error:  # noqa: BLE001  the model keeps it
        if final is not None:
            final.close()
        ready.set_exception(error.with_traceback(None))  # the traceback would keep the model alive
        return
    theirs.add_done_callback(lambda future: _hand_on(future, reference, ready))


def _held(reference: weakref.ref[FileModel]) -> FileModel:
    """The model; raises if it was dropped."""
    model = reference()
    if model is None:
        raise closed()
    return model


def _hand_on(theirs: Future[CompiledModel], reference: weakref.ref[FileModel], ready: Future[FileModel]) -> None:
    """Passes the result of the model's own future on to the file model's."""
    error, model = theirs.exception(), reference()
    if error is None and model is not None:
        model.end(ready)
    else:
        ready.set_exception(error or closed())


_of_parents: list[WholeSession] = []
"""The sessions that existed when this process was forked."""

_waiting: weakref.WeakSet[FileModel] = weakref.WeakSet()
"""The models whose background thread may be running."""


def _end_of_interpreter() -> None:
    for model in list(_waiting):
        model.give_up()


before_the_door_closes(_end_of_interpreter)


Steps = Sequence[Callable[[Any], Any]]
"""The steps: each takes the result of the one before, the first None. The last one returns a Beginning."""


class Making:
    """Runs each step once. It does not reference the model, so that dropping the model frees it at once."""

    def __init__(self, steps: Steps) -> None:
        self._left: tuple[Steps, Any] = (steps, None)
        """The remaining steps, and the result of the one before them."""
        self._guard = Guard(threading.RLock)
        self._beginning: Beginning | None = None
        self.error: Exception | None = None
        """The error, if no model can be made of the file."""
        self.is_given_up = False
        """True if the model was closed, or dropped."""

    @property
    def is_over(self) -> bool:
        """True if there will be no model."""
        return self.is_given_up or self.error is not None

    def begun(self, *, answers_meanwhile: bool = False) -> Beginning:
        """The Beginning of the file's model, made now unless it exists. With `answers_meanwhile`, calls take precedence."""
        with self._guard.lock:
            if self.error is not None:
                raise self.error.with_traceback(None)  # else the traceback would grow with each call
            if self._beginning is None:
                try:
                    self._beginning = self._through_all_steps(answers_meanwhile)
                except Exception as error:
                    self.error, self._left = error, ((), None)
                    raise
                self._left = (), None
                if self.is_given_up:
                    self._beginning.give_up()
            return self._beginning

    def _through_all_steps(self, answers_meanwhile: bool) -> Any:
        """Runs the remaining steps, and returns the last result: none runs twice, even if Ctrl-C or a fork interrupts."""
        while self._left[0]:
            (step, *others), before = self._left
            with self.open():
                work = partial(step, before)
                self._left = others, behind(work) if answers_meanwhile else work()
        return self._left[1]

    @contextmanager
    def open(self) -> Iterator[None]:
        """A context that delays the end of the interpreter; raises if the model was given up."""
        if self.is_given_up:
            raise closed()
        with at_a_device():
            yield

    def give_up(self) -> None:
        """Starts no further step, and stops a running compilation."""
        self.is_given_up = True
        if self._beginning is not None:
            self._beginning.give_up()


def closed() -> Exception:
    """The error for a model that was given up."""
    from partita.accelerators.errors import RunError

    return RunError("the model is closed", where="a model that starts", remedy="Compile it again")
