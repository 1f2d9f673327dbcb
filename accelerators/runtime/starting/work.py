"""The work behind a model that answers at once. It imports little: a file's model answers before most of Partita is loaded."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from partita.accelerators.errors import RunError, forget_frames
from partita.accelerators.process.background import CallPace, behind
from partita.accelerators.process.exit_barrier import at_a_device, before_the_door_closes
from partita.accelerators.process.forking import Guard, renewed_in_children

if TYPE_CHECKING:
    from partita.accelerators.runtime.compiled_model import CompiledModel
    from partita.accelerators.runtime.starting.devices import Devices

HELD_BACK = 1.0
"""Seconds that the work waits for the first answer, so as not to slow it down."""

T = TypeVar("T")


class DoneOnce(Generic[T]):
    """Called with the work: concurrent callers wait, and get the same result or error. A forked process redoes work that its
    parent had not finished. The work is not kept, since it may reference the owner of this."""

    def __init__(self) -> None:
        self._guard = Guard()
        self.results: list[T] = []
        """The result, once there is one."""
        self.error: Exception | None = None
        """The error of the work."""

    def __call__(self, work: Callable[[], T]) -> T:
        with self._guard.lock:
            if self.error is not None:
                raise self.error.with_traceback(None)  # else the traceback would grow with each call
            if not self.results:
                try:
                    self.results.append(work())
                except Exception as error:  # Ctrl-C is not a result of the work
                    self.error = error
                    raise
            return self.results[0]


class Work:
    """The compilation behind a model's answers. It does not reference the model, so that dropping the model ends it."""

    def __init__(self, begin: Callable[[], Devices]) -> None:
        """`begin` reads and checks what is to be compiled; it may be called again in a forked process."""
        self._begin: Callable[[], Devices] | None = begin
        self._begun = DoneOnce["Devices"]()
        self.is_given_up = False
        """True if the model was closed, or dropped."""
        self.error: BaseException | None = None
        """The reason why the model's own devices do not answer."""
        self._has_ended = False
        self.pace = CallPace()
        self.renew()
        renewed_in_children(self)

    def renew(self) -> None:
        """Resets the work in a forked process, which lacks the thread: it restarts on the next access of the model's `ready`.
        Another thread may have held the locks of the event and the future, so these are replaced without being touched."""
        self.may_begin = threading.Event()
        self.ready: Future[Any] | None = None
        """The future of the model on its own devices, until it is settled. Later ones reference the model but not vice versa,
        so that both are freed with their last user."""
        self._restarting = threading.Lock()

    @property
    def is_over(self) -> bool:
        """True if there will be no model."""
        return self.is_given_up or self._begun.error is not None

    def devices(self, *, answers_meanwhile: bool = False) -> Devices:
        """The model's devices, now unless they exist. With `answers_meanwhile`, calls take precedence."""

        def work() -> Devices:
            self.check_wanted()
            assert self._begin is not None
            with at_a_device():
                return behind(self._begin) if answers_meanwhile else self._begin()

        devices = self._begun(work)
        self._begin = None
        if self.is_given_up:
            devices.give_up()
        return devices

    def check_wanted(self) -> None:
        """Raises an error if the work was given up."""
        if self.is_given_up:
            raise closed()

    def answered(self, start: tuple[float, float]) -> None:
        """Ends a call that `pace` started. The first one starts the work; the next ones leave it some time."""
        if not self.may_begin.is_set():
            self.may_begin.set()
        elif self.ready is not None:
            self.pace.end(start)

    def start(self, model: Starting) -> None:
        """Starts the work, unless it has ended or is under way. It begins with the first answer, or soon."""
        with self._restarting:
            if self.ready is None and not self._has_ended:
                self.ready = Future()
                self.ready.set_running_or_notify_cancel()
                _at_work.add(self)
                arguments = (weakref.ref(model), self.ready, self.may_begin)
                threading.Thread(target=self._compile, args=arguments, name="partita-start", daemon=True).start()

    def _compile(self, reference: weakref.ref[Starting], ready: Future[Any], may_begin: threading.Event) -> None:
        """Compiles once it may begin, and hands over the result."""
        start, final, error = time.perf_counter(), None, None
        may_begin.wait(HELD_BACK)
        try:
            devices = self.devices(answers_meanwhile=True)
            with at_a_device():
                final = devices.own()
        except BaseException as raised:  # noqa: BLE001  any exception belongs to the future
            error = raised
        model = reference()
        if model is None or self.is_given_up:
            if error is not None:
                forget_frames(error)
            error = closed()
        try:
            if model is not None and final is not None and error is None:
                model.take_over(final, time.perf_counter() - start)
            elif final is not None:
                final.close()
            elif model is not None and not self.is_given_up:
                assert error is not None
                model.stay(error)
        except BaseException as raised:  # noqa: BLE001  warnings may be errors, for example
            error = error or raised
        self.error, self._has_ended = error, True
        if error is None:
            ready.set_result(model)
        else:
            ready.set_exception(error)
        self.ready = None
        del model  # the future keeps the error, whose traceback references this frame's variables

    def give_up(self) -> None:
        """Ends the work, whose result is not needed any more. It waits for no lock."""
        self.is_given_up = True
        for devices in self._begun.results:
            devices.give_up()
        self.may_begin.set()


def closed() -> Exception:
    """The error for a model that was given up."""
    return RunError("the model is closed", where="a model that starts", remedy="Compile it again")


_at_work: weakref.WeakSet[Work] = weakref.WeakSet()
"""The work that may be under way."""


def _end_of_interpreter() -> None:
    for work in list(_at_work):
        work.give_up()


before_the_door_closes(_end_of_interpreter)


class Starting(ABC):
    """A model that answers at once, until its own devices are ready."""

    _work: Work

    def _start(self, work: Work) -> None:
        self._work = work
        weakref.finalize(self, work.give_up).atexit = False
        work.start(self)

    @abstractmethod
    def take_over(self, final: CompiledModel, seconds: float) -> None:
        """Switches to this model from the next call on."""

    @abstractmethod
    def stay(self, error: BaseException) -> None:
        """Keeps the devices that answer now, for good."""

    @property
    def ready(self) -> Future[Any]:
        """The future of this model on its own devices; it holds the error if they cannot compile it."""
        self._work.start(self)
        self._work.may_begin.set()
        ready = self._work.ready
        if ready is None:
            ready = Future()
            if self._work.error is None:
                ready.set_result(self)
            else:
                ready.set_exception(self._work.error)
        return ready

    def wait(self, timeout: float | None = None) -> Any:
        """This model, once its own devices are ready; their error if they cannot compile it, TimeoutError if it takes longer."""
        return self.ready.result(timeout)


def working_folder() -> str:
    """The working directory; empty if it was removed, so that relative paths are unchanged."""
    try:
        return os.getcwd()
    except OSError:
        return ""
