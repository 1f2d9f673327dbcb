"""Requests that follow one another through the devices, as workpieces through machines.

The steps of a model that run one after another on one device are a stage. At each stage requests are taken in the order in which
they were started, one at a time: while the second device works on the first request, the first one works on the second. Results
come in that order too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from partita.accelerators.process.forking import renewed_in_children
from partita.accelerators.running.pipelining import PipelineTrial
from partita.accelerators.running.steps import RunPlan, Step


class Submit(Protocol):
    """Has a call run on another thread."""

    def __call__(self, call: Callable[[], Any], placed: Callable[[], None] | None = None) -> Future[Any]:
        """A future of what the call returns. `placed` is called when the call has its place in the queue, before the next has."""


Run = Callable[["Request | None"], Any]
"""Runs a request; it is given the way that the request takes, or None where it takes no turns."""


class Pipeline:
    """The stages of a plan, and the requests that are on their way through them."""

    def __init__(self, plan: RunPlan, decided: bool | None = True) -> None:
        devices = [step.unit.device.label for step in plan.steps]
        starts = [i for i in range(len(devices)) if i == 0 or devices[i] != devices[i - 1]]
        self.stages = len(starts)
        """How many stages there are."""
        self.trial = PipelineTrial(decided)
        """Do requests pass through them in turn?"""
        self._plan = plan  # held, so that no step of another plan is taken for one of these
        self._stage = {id(step): sum(start <= i for start in starts) - 1 for i, step in enumerate(plan.steps)}
        renewed_in_children(self)
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked process, in which no request is on its way."""
        self._changed = threading.Condition()
        self._number = 0
        self._passed: dict[int, int] = {}
        """By number of each request that is not over: the stages that it has left behind."""

    def submit(self, submit: Submit, run: Run) -> Future[Any]:
        """Have a request submitted, in its turn or not."""
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
        """Have a request submitted that runs in its turn; `run` is called with it."""
        request = Request(self)
        future = submit(lambda: self._run(request, run), lambda: self._enter(request))
        future.add_done_callback(lambda done: self._over(request.number))
        return future

    def _enter(self, request: Request) -> None:
        """Number a request that has its place in the queue."""
        with self._changed:
            self._number += 1
            request.number = self._number
            self._passed[request.number] = 0

    def _run(self, request: Request, run: Run) -> Any:
        """Run the request, and end it when all those before it have ended."""
        try:
            return run(request)
        finally:
            with self._changed:
                if request.number in self._passed:  # One whose time was over has gone, and would hold up all behind it.
                    self._passed[request.number] = self.stages
                self._changed.notify_all()
                self._changed.wait_for(lambda: all(other >= request.number for other in self._passed))

    def _over(self, number: int) -> None:
        with self._changed:
            self._passed.pop(number, None)
            self._changed.notify_all()

    def step(self, number: int, step: Step, run: Callable[[], None]) -> None:
        """Run a step of a request once those before it have left the step's stage; one of another plan at once."""
        stage = self._stage.get(id(step))
        if stage is not None:
            self._wait(number, stage)
        run()

    def _wait(self, number: int, stage: int) -> None:
        """Wait until the requests before this one have left the stage."""
        with self._changed:
            if self._passed.get(number, stage) < stage:
                self._passed[number] = stage
                self._changed.notify_all()
            self._changed.wait_for(lambda: all(left > stage for other, left in self._passed.items() if other < number))


def _succeeded(done: Future[Any]) -> bool:
    return not done.cancelled() and done.exception() is None


class Request:
    """The way of one request through the stages; it observes the executor's steps."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.number = 0
        """How many were started until this one; known when it has its place in the queue."""

    def __call__(self, step: Step, run: Callable[[], None]) -> None:
        """Run a step in its turn."""
        self._pipeline.step(self.number, step, run)
