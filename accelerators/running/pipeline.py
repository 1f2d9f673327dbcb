"""Requests that follow one another through the devices, as workpieces through machines.

The steps of a model that run one after another on one device are a stage. At each stage requests are taken in the order in which
they were started, one at a time: while the second device works on the first request, the first one works on the second. Results
come in that order too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from accelerators.process.forking import renewed_in_children
from accelerators.running.steps import RunPlan, Step


class Pipeline:
    """The stages of a plan, and the requests that are on their way through them."""

    def __init__(self, plan: RunPlan) -> None:
        devices = [step.unit.device.label for step in plan.steps]
        starts = [i for i in range(len(devices)) if i == 0 or devices[i] != devices[i - 1]]
        self.stages = len(starts)
        """How many stages there are."""
        self._stage = {id(step): sum(start <= i for start in starts) - 1 for i, step in enumerate(plan.steps)}
        renewed_in_children(self)
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked process, in which no request is on its way."""
        self._changed = threading.Condition()
        self._submitting = threading.Lock()
        self._number = 0
        self._passed: dict[int, int] = {}
        """By number of each request that is not over: the stages that it has left behind."""

    def submit(self, submit: Callable[[Callable[[], Any]], Future[Any]], run: Callable[[Request], Any]) -> Future[Any]:
        """Have a request submitted that runs in its turn; `run` is called with it."""
        with self._submitting:
            with self._changed:
                self._number += 1
                request = Request(self, self._number)
                self._passed[request.number] = 0
            try:
                future = submit(lambda: self._run(request, run))
            except BaseException:
                self._over(request.number)
                raise
            future.add_done_callback(lambda done: self._over(request.number))
            return future

    def _run(self, request: Request, run: Callable[[Request], Any]) -> Any:
        """Run the request, and end it when all those before it have ended."""
        try:
            return run(request)
        finally:
            with self._changed:
                self._passed[request.number] = self.stages
                self._changed.notify_all()
                self._changed.wait_for(lambda: all(other >= request.number for other in self._passed))

    def _over(self, number: int) -> None:
        with self._changed:
            self._passed.pop(number, None)
            self._changed.notify_all()

    def step(self, number: int, step: Step, run: Callable[[], None]) -> None:
        """Run a step of a request once those before it have left the step's stage."""
        stage = self._stage[id(step)]
        with self._changed:
            if self._passed.get(number, stage) < stage:
                self._passed[number] = stage
                self._changed.notify_all()
            self._changed.wait_for(lambda: all(left > stage for other, left in self._passed.items() if other < number))
        run()


class Request:
    """The way of one request through the stages; it observes the executor's steps."""

    def __init__(self, pipeline: Pipeline, number: int) -> None:
        self._pipeline = pipeline
        self.number = number
        """How many were started until this one."""

    def __call__(self, step: Step, run: Callable[[], None]) -> None:
        """Run a step in its turn."""
        self._pipeline.step(self.number, step, run)
