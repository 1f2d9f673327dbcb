"""A compiled model that answers at once: on devices that start fast, until those that it was compiled for are ready."""

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
from partita.accelerators.errors import RunError
from partita.accelerators.process.ending import at_a_device, before_the_door_closes
from partita.accelerators.process.frames import forget_frames
from partita.accelerators.running.compiled_model import CompiledModel
from partita.accelerators.running.outputs import Outputs
from partita.graph.errors import PartitaError
from partita.graph.words import error_in_words

HELD_BACK = 1.0
"""Seconds that the work waits for the first answer, so as not to take time from it."""


@attrs.frozen(slots=True, eq=False)
class Work:
    """The work that is done in the background."""

    compile: Callable[[], CompiledModel]
    """Compiles the model for its own devices."""
    give_up: Callable[[], None]
    """Ends that early; called from another thread."""


class StartingModel(CompiledModel):
    """Called like any other model. What it holds of a model (its graph, report, units) is that of the devices that answer now;
    once its own devices are ready they take the next calls, and calls that run end where they began."""

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
        """Compile in the background. The thread holds the model weakly: one that nobody has any more is given up."""
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
        """As of any model; with the first answer the work in the background begins."""
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
        """A future that has ended. It holds the model, which does not hold it, so that both go with whoever has them."""
        ready: Future[CompiledModel] = Future()
        self._settle(ready)
        return ready

    _work_is_lost = False
    _is_given_up = False

    def give_up(self) -> None:
        """End the work, of which nobody will see the result."""
        self._is_given_up = True
        self._work.give_up()
        self._may_begin.set()

    def renew(self) -> None:
        """A forked process does not have the thread that compiles: it begins anew when somebody asks for `ready`. Another
        thread may have held the locks of the event and the future, which are therefore made anew, and not asked."""
        super().renew()
        self._may_begin, self._ready = threading.Event(), None
        self._work_is_lost = not self._has_ended

    def end(self, ready: Future[CompiledModel], error: BaseException | None) -> None:
        """Note that the work has ended, and tell whoever has its future."""
        self._error, self._has_ended = error, True
        self._settle(ready)
        self._ready = None

    def _settle(self, ready: Future[CompiledModel]) -> None:
        if self._error is None:
            ready.set_result(self)
        else:
            ready.set_exception(self._error)

    def take_over(self, final: CompiledModel, seconds: float) -> None:
        """From the next call on, run as this model does."""
        self._adopt(final, ended(final.report, self.properties.devices, seconds))

    def stay(self, error: BaseException) -> None:
        """Go on with the devices that answer now, for good."""
        cause = error if isinstance(error, PartitaError) else error_in_words(error)
        note = f"its own devices are not ready, and {', '.join(self.properties.devices)} goes on: {cause}"
        if isinstance(self.report, CompileReport):
            self.report = attrs.evolve(self.report, notes=(*self.report.notes, note))
        warnings.warn(f"model {self.graph.name!r}: {note}", stacklevel=2)

    def export(self, path: Any, *, bodies: bool = True, key: bytes | None = None) -> None:
        """Write the model as its own devices have compiled it, once they have."""
        self.wait()
        super().export(path, bodies=bodies, key=key)

    def close(self) -> None:
        """Close the model, and give up what is not ready."""
        super().close()
        self.give_up()


def _work(
    reference: weakref.ref[StartingModel],
    may_begin: threading.Event,
    compile: Callable[[], CompiledModel],
    ready: Future[CompiledModel],
) -> None:
    """Compile once it may begin, and hand over to the result."""
    start = time.perf_counter()
    may_begin.wait(HELD_BACK)
    final, error = None, None
    if not _is_over(reference()):
        try:
            with at_a_device():
                final = compile()
        except BaseException as raised:  # noqa: BLE001  whatever it is belongs to whoever asks for the future
            error = raised
    _hand_over(reference(), final, error, ready, time.perf_counter() - start)


def _hand_over(
    model: StartingModel | None,
    final: CompiledModel | None,
    error: BaseException | None,
    ready: Future[CompiledModel],
    seconds: float,
) -> None:
    """Give the result, or the error, to the model, and to whoever has its future."""
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
    except BaseException as raised:  # noqa: BLE001  where warnings are errors, for one; nobody who waits may wait for ever
        error = error or raised
    model.end(ready, error)
    del model  # The error, which the model keeps, holds what is in this function.


def _is_over(model: StartingModel | None) -> bool:
    """Whether nobody will call the model any more."""
    return model is None or model._closed or model._is_given_up


def _begun(first: CompiledModel) -> Any:
    """The report of the devices that answer, which says so."""
    if not isinstance(first.report, CompileReport):
        return first.report
    note = f"{', '.join(first.properties.devices)} answers until the model's own devices are ready"
    return attrs.evolve(first.report, notes=(*first.report.notes, note))


def ended(report: Any, devices: Sequence[str], seconds: float) -> Any:
    """The report of a model's own devices, which says what answered before."""
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
