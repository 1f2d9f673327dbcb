"""Pipelining of requests through the devices.

Consecutive steps of a model on one device are a stage. Each stage takes requests one at a time, in the order in which they
were started: while the second device works on the first request, the first one works on the second. Results
come in that order too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import attrs

from partita.accelerators.process.forking import Guard, renewed_in_children
from partita.accelerators.runtime.steps import RunPlan, Step


class Submit(Protocol):
    """Runs a call on another thread."""

    def __call__(self, call: Callable[[], Any], placed: Callable[[], None] | None = None) -> Future[Any]:
        """A future of the call's result. `placed` is called when the call has its place in the queue, before the next one has."""


Run = Callable[["PipelinedRequest | None"], Any]
"""Runs a request; its argument is the PipelinedRequest, or None if it is not pipelined."""


class Pipeline:
    """The stages of a plan, and the requests in progress."""

    def __init__(self, plan: RunPlan, decided: bool | None = True) -> None:
        devices = [step.unit.device.label for step in plan.steps]
        starts = [i for i in range(len(devices)) if i == 0 or devices[i] != devices[i - 1]]
        self.stages = len(starts)
        """Number of stages."""
        self.trial = PipelineTrial(decided)
        """Decides if requests are pipelined."""
        self._plan = plan  # kept alive, so that the id of a step is not reused by another plan's
        self._stage = {id(step): sum(start <= i for start in starts) - 1 for i, step in enumerate(plan.steps)}
        renewed_in_children(self)
        self.renew()

    def renew(self) -> None:
        """Resets the pipeline in a forked process, in which no request is in progress."""
        self._changed = threading.Condition()
        self._number = 0
        self._passed: dict[int, int] = {}
        """The number of finished stages of each request in progress, by request number."""

    def submit(self, submit: Submit, run: Run) -> Future[Any]:
        """Submits a request, pipelined or not."""
        window = self.trial.begin()
        if window is None:
            return self._in_turn(submit, run) if self.trial.decided else submit(lambda: run(None))
        try:
            future = self._in_turn(submit, run) if window.in_turn else submit(lambda: run(None))
        except BaseException:
            self.trial.end(window, succeeded=False)
            raise
        future.add_done_callback(lambda done: self.trial.end(window, _succeeded(done)))
        return future

    def _in_turn(self, submit: Submit, run: Run) -> Future[Any]:
        """Submits a pipelined request; `run` is called with it."""
        request = PipelinedRequest(self)
        future = submit(lambda: self._run(request, run), lambda: self._enter(request))
        future.add_done_callback(lambda done: self._over(request.number))
        return future

    def _enter(self, request: PipelinedRequest) -> None:
        """Numbers a request that has its place in the queue."""
        with self._changed:
            self._number += 1
            request.number = self._number
            self._passed[request.number] = 0

    def _run(self, request: PipelinedRequest, run: Run) -> Any:
        """Runs the request, and returns when all earlier ones have ended."""
        try:
            return run(request)
        finally:
            with self._changed:
                if request.number in self._passed:  # a request that timed out is gone, and would block all later ones
                    self._passed[request.number] = self.stages
                self._changed.notify_all()
                self._changed.wait_for(lambda: all(other >= request.number for other in self._passed))

    def _over(self, number: int) -> None:
        with self._changed:
            self._passed.pop(number, None)
            self._changed.notify_all()

    def step(self, number: int, step: Step, run: Callable[[], None]) -> None:
        """Runs a step of a request once earlier requests have left the step's stage; a step of another plan runs at once."""
        stage = self._stage.get(id(step))
        if stage is not None:
            self._wait(number, stage)
        run()

    def _wait(self, number: int, stage: int) -> None:
        """Waits until earlier requests have left the stage."""
        with self._changed:
            if self._passed.get(number, stage) < stage:
                self._passed[number] = stage
                self._changed.notify_all()
            self._changed.wait_for(lambda: all(left > stage for other, left in self._passed.items() if other < number))


def _succeeded(done: Future[Any]) -> bool:
    return not done.cancelled() and done.exception() is None


class PipelinedRequest:
    """One request in the pipeline; it observes the executor's steps."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.number = 0
        """The request's sequence number, set when it has its place in the queue."""

    def __call__(self, step: Step, run: Callable[[], None]) -> None:
        """Runs a step when its stage is free."""
        self._pipeline.step(self.number, step, run)


WINDOW = 16
"""Number of consecutive requests that run in one way before the other is tried."""

TRIES = 3
"""Number of windows of each way that are compared, after a warm-up window of each."""

GAIN = 0.9
"""Pipelining is kept if it takes less than this fraction of the time."""


@attrs.define(eq=False)
class Window:
    """Consecutive requests that run in the same way."""

    in_turn: bool
    """True if they are pipelined."""
    started: int = 0
    """Number of started requests."""
    ended: int = 0
    """Number of ended requests."""
    first_end: float = 0.0
    """The time at which the first of them ended."""
    counts: bool = True
    """True if the model was always busy and all of them succeeded."""


class PipelineTrial:
    """Windows of requests alternate between both ways; then the faster way stays.

    A window lasts from the end of its first request to the end of its last one. It does not count if the model was idle in
    between: then the time measures how often requests arrive, not how fast they run."""

    def __init__(self, decided: bool | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.decided = decided
        """True if requests are pipelined. None while both ways are being tried."""
        self._clock = clock
        self._guard = Guard()
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        renewed_in_children(self)
        self.renew()

    def renew(self) -> None:
        """Resets the trial in a forked process, in which no request runs."""
        self._running = 0
        self._window = Window(in_turn=False)

    def begin(self) -> Window | None:
        """The window of a request that starts now; None if the way is decided."""
        if self.decided is not None:
            return None
        with self._guard.lock:
            if self._window.started == WINDOW:
                self._window = Window(in_turn=not self._window.in_turn)
            window = self._window
            window.counts &= self._running > 0 or window.started == 0
            window.started += 1
            self._running += 1
            return window

    def end(self, window: Window, succeeded: bool) -> None:
        """Records the end of a request of the window."""
        with self._guard.lock:
            now = self._clock()
            self._running -= 1
            window.ended += 1
            window.counts &= succeeded
            window.first_end = now if window.ended == 1 else window.first_end
            if window.ended == WINDOW and window.counts and self.decided is None:
                self._compare(window.in_turn, now - window.first_end)

    def _compare(self, in_turn: bool, seconds: float) -> None:
        self._seconds[in_turn].append(seconds)
        anyhow, turns = self._seconds[False], self._seconds[True]
        if min(len(anyhow), len(turns)) > TRIES:
            self.decided = min(turns[1:]) < GAIN * min(anyhow[1:])
