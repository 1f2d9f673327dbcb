"""A compiled model that answers at once on fast-starting devices, until its own devices are ready."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from partita.accelerators.building.report import CompileReport
from partita.accelerators.errors import RunError, forget_frames
from partita.accelerators.process.exit_barrier import at_a_device, before_the_door_closes
from partita.accelerators.running.compiled_model import CompiledModel
from partita.accelerators.running.outputs import Outputs
from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words

HELD_BACK = 1.0
"""Seconds that background compilation waits for the first answer, so as not to slow it down."""


@attrs.frozen(slots=True, eq=False)
class Work:
    """The compilation in the background."""

    compile: Callable[[], CompiledModel]
    """Compiles the model for its own devices."""
    give_up: Callable[[], None]
    """Ends the compilation early; called from another thread."""


class StartingModel(CompiledModel):
    """Called like any other model. Its graph, report and units are those of the devices that answer now; once its own devices are
    ready, they take the next calls. Running calls end where they began."""

    def __init__(self, first: CompiledModel, work: Work) -> None:
        super().__init__(
            first.graph, {unit.name: unit for unit in first.units}, _begun(first), first.settings, first.dead, first.measured,
            first._measuring_units,
        )
        self._work = work
        self._has_ended = False
        self._error: BaseException | None = None
        self._begin()

    def _begin(self) -> None:
        """Starts the background compilation. The thread holds only a weak reference: it ends when the model is dropped."""
        ready: Future[CompiledModel] = Future()
        ready.set_running_or_notify_cancel()
        self._ready: Future[CompiledModel] | None = ready
        give_up, may_begin = self._work.give_up, threading.Event()
        self._may_begin, self._has_answered = may_begin, False

        def end(_: Any) -> None:
            give_up()
            may_begin.set()

        reference = weakref.ref(self, end)
        _at_work.add(self)
        arguments = (reference, may_begin, self._work.compile, ready)
        threading.Thread(target=_work, args=arguments, name="partita-start", daemon=True).start()

    def __call__(self, /, *args: Any, out: Any = None, **named: Any) -> Outputs:
        """Calls the model; the first answer starts the background compilation."""
        outputs = super().__call__(*args, out=out, **named)
        if not self._has_answered:
            self._has_answered = True
            self._may_begin.set()
        return outputs

    @property
    def ready(self) -> Future[CompiledModel]:
        """The future of this model on its own devices; it holds the error if they cannot compile it."""
        with self._lock:
            if self._work_is_lost:
                self._begin()
                self._work_is_lost = False
        if not self._may_begin.is_set():
            self._may_begin.set()
        return self._ready or self._ended_future()

    def _ended_future(self) -> Future[CompiledModel]:
        """A finished future. It references the model but not vice versa, so that both are freed with their last user."""
        ready: Future[CompiledModel] = Future()
        self._settle(ready)
        return ready

    _work_is_lost = False
    _is_given_up = False

    def give_up(self) -> None:
        """Ends the work, whose result is not needed any more."""
        self._is_given_up = True
        self._work.give_up()
        self._may_begin.set()

    def renew(self) -> None:
        """Resets the model in a forked process, which lacks the compiling thread: it restarts on the next access of `ready`.
        Another thread may have held the locks of the event and the future, so these are replaced without being touched."""
        super().renew()
        self._may_begin, self._ready = threading.Event(), None
        self._work_is_lost = not self._has_ended

    def end(self, ready: Future[CompiledModel], error: BaseException | None) -> None:
        """Records the end of the work, and settles the future."""
        self._error, self._has_ended = error, True
        self._settle(ready)
        self._ready = None

    def _settle(self, ready: Future[CompiledModel]) -> None:
        if self._error is None:
            ready.set_result(self)
        else:
            ready.set_exception(self._error)

    def take_over(self, final: CompiledModel, seconds: float) -> None:
        """Switches to this model from the next call on."""
        self._adopt(final, ended(final.report, self.properties.devices, seconds))

    def stay(self, error: BaseException) -> None:
        """Keeps the devices that answer now, for good."""
        cause = error if isinstance(error, PartitaError) else error_in_words(error)
        note = f"its own devices are not ready, and {', '.join(self.properties.devices)} goes on: {cause}"
        if isinstance(self.report, CompileReport):
            self.report = attrs.evolve(self.report, notes=(*self.report.notes, note))
        warnings.warn(f"model {self.graph.name!r}: {note}", stacklevel=2)

    def export(self, path: Any, *, bodies: bool = True, key: bytes | None = None) -> None:
        """Write the model as compiled by its own devices, once they are ready."""
        self.wait()
        super().export(path, bodies=bodies, key=key)

    def close(self) -> None:
        """Close the model, and stop the background compilation."""
        super().close()
        self.give_up()


def _work(
    reference: weakref.ref[StartingModel],
    may_begin: threading.Event,
    compile: Callable[[], CompiledModel],
    ready: Future[CompiledModel],
) -> None:
    """Compiles once it may begin, and hands over the result."""
    start = time.perf_counter()
    may_begin.wait(HELD_BACK)
    final, error = None, None
    if not _is_over(reference()):
        try:
            with at_a_device():
                final = compile()
        except BaseException as raised:  # noqa: BLE001  any exception belongs to the future
            error = raised
    _hand_over(reference(), final, error, ready, time.perf_counter() - start)


def _hand_over(
    model: StartingModel | None,
    final: CompiledModel | None,
    error: BaseException | None,
    ready: Future[CompiledModel],
    seconds: float,
) -> None:
    """Passes the result, or the error, to the model and its future."""
    if model is None or _is_over(model):
        where = "a model that starts" if model is None else f"model {model.graph.name!r}"
        ready.set_exception(RunError("the model is closed", where=where, remedy="Compile it again"))
        if error is not None:
            forget_frames(error)
        if final is not None:
            final.close()
        return
    try:
        if final is not None:
            model.take_over(final, seconds)
        else:
            assert error is not None
            model.stay(error)
    except BaseException as raised:  # noqa: BLE001  warnings may be errors, for example; the future has to be settled in any case
        error = error or raised
    model.end(ready, error)
    del model  # the model keeps the error, whose traceback references this frame's variables


def _is_over(model: StartingModel | None) -> bool:
    """True if nobody will call the model any more."""
    return model is None or model._closed or model._is_given_up


def _begun(first: CompiledModel) -> Any:
    """The report of the devices that answer, with a note on that."""
    if not isinstance(first.report, CompileReport):
        return first.report
    note = f"{', '.join(first.properties.devices)} answers until the model's own devices are ready"
    return attrs.evolve(first.report, notes=(*first.report.notes, note))


def ended(report: Any, devices: Sequence[str], seconds: float) -> Any:
    """The report of a model's own devices, with a note on what answered before."""
    if not isinstance(report, CompileReport):
        return report
    note = f"for the first {seconds:.1f} s, while it was compiled, {', '.join(devices)} answered"
    return attrs.evolve(report, notes=(*report.notes, note))


_at_work: weakref.WeakSet[StartingModel] = weakref.WeakSet()
"""The models that may be compiling in the background."""


def _end_of_interpreter() -> None:
    for model in list(_at_work):
        model.give_up()


before_the_door_closes(_end_of_interpreter)
