"""The timeline of actual calls: the steps of each request with their times, devices and threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from time import perf_counter
from typing import Any

import attrs

from partita.accelerators.process.forking import Guard
from partita.accelerators.runtime.executor import Observer
from partita.accelerators.runtime.steps import RunStep, Step
from partita.graph.formatting import counted

MOST = 20_000
"""Maximum number of steps that a timeline keeps; further ones are only counted."""


Tracing = Callable[[Observer | None], Observer]
"""Wraps another observer, which may delay steps, in one that records the steps of a request."""


@attrs.frozen(slots=True)
class Lap:
    """One step of one request."""

    request: int
    """The number of the request, from 1, in order of arrival."""
    name: str
    """The subgraph, or the copied value."""
    device: str
    """The device that ran it."""
    thread: str
    """The thread that called the device."""
    start_us: float
    """The start, in microseconds since the timeline began."""
    us: float
    """The duration in microseconds."""
    waited_us: float
    """The waiting time before it: in the queue, for a stage of a pipeline, or for the device."""
    is_copy: bool = False
    """True for a copy between two memories."""


@attrs.frozen(slots=True)
class Handover:
    """The transition of a request from one device or thread to another."""

    request: int
    """The request."""
    source: Lap
    """The step before it."""
    target: Lap
    """The step after it."""


class Timeline:
    """Records the steps of all calls of a model while it is open, from any thread."""

    def __init__(self, model: str) -> None:
        self.model = model
        """The model's name."""
        self.left_out = 0
        """Number of steps that were dropped because it was full."""
        self._begin = perf_counter()
        self._numbers = count(1)
        self._guard = Guard()
        self._laps: list[Lap] = []
        self._threads: dict[tuple[int | None, str], str] = {}
        self._alike: Counter[str] = Counter()

    @property
    def laps(self) -> tuple[Lap, ...]:
        """The finished steps, in the order in which they began."""
        with self._guard.lock:
            return tuple(sorted(self._laps, key=lambda lap: (lap.start_us, lap.request)))

    @property
    def total_us(self) -> float:
        """Microseconds from the start of the first step to the end of the last one."""
        laps = self.laps
        return max(lap.start_us + lap.us for lap in laps) - laps[0].start_us if laps else 0.0

    @property
    def handovers(self) -> tuple[Handover, ...]:
        """The transitions of requests between devices or threads."""
        last: dict[int, Lap] = {}
        handovers = []
        for lap in self.laps:
            before = last.get(lap.request)
            if before is not None and (before.device, before.thread) != (lap.device, lap.thread):
                handovers.append(Handover(lap.request, before, lap))
            last[lap.request] = lap
        return tuple(handovers)

    @property
    def most_at_once(self) -> int:
        """Maximum number of requests with a step running at the same time."""
        running: Counter[int] = Counter()
        most = 0
        laps = self.laps
        ends = [(lap.start_us, True, lap.request) for lap in laps] + [(lap.start_us + lap.us, False, lap.request) for lap in laps]
        for _, begins, request in sorted(ends):
            running[request] += 1 if begins else -1
            if not running[request]:
                del running[request]
            most = max(most, len(running))
        return most

    def request(self) -> Tracing:
        """The tracing of the next request: a function of the other observer of its steps."""
        number, since = next(self._numbers), [perf_counter()]

        def tracing(inner: Observer | None) -> Observer:
            def observe(step: Step, run: Callable[[], None]) -> None:
                asked = since[0]

                def timed() -> None:
                    start = perf_counter()
                    try:
                        run()
                    finally:
                        since[0] = perf_counter()
                        self._note(number, step, start, since[0], asked)

                if inner is None:
                    timed()
                else:
                    inner(step, timed)

            return observe

        return tracing

    def _note(self, number: int, step: Step, start: float, end: float, asked: float) -> None:
        is_copy = not isinstance(step, RunStep)
        name = f"copy {step.name}" if is_copy else step.unit.name  # type: ignore[union-attr]
        times = 1e6 * (start - self._begin), 1e6 * (end - start), 1e6 * max(0.0, start - asked)
        with self._guard.lock:
            if len(self._laps) < MOST:
                self._laps.append(Lap(number, name, step.unit.device.label, self._thread(), *times, is_copy))
            else:
                self.left_out += 1

    def _thread(self) -> str:
        """The name of this thread, numbered if another thread has the same name. Thread identities are reused after a thread has
        ended, so the key is identity and name."""
        thread = threading.current_thread()
        key = thread.ident, thread.name
        if key not in self._threads:
            self._alike[thread.name] += 1
            number = self._alike[thread.name]
            self._threads[key] = f"{thread.name} #{number}" if number > 1 else thread.name
        return self._threads[key]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"model": self.model, "left_out": self.left_out, "laps": [attrs.asdict(lap) for lap in self.laps]}

    def __str__(self) -> str:
        laps = self.laps
        requests, threads = {lap.request for lap in laps}, {lap.thread for lap in laps}
        head = f"{self.model}: {counted(len(requests), 'request')} in {self.total_us:,.0f} µs"
        threaded = f"on {counted(len(threads), 'thread')}, {counted(len(self.handovers), 'hand-over')}"
        lines = [f"{head}, at most {self.most_at_once} at once, {threaded}"]
        for device in dict.fromkeys(lap.device for lap in laps):
            own = [lap for lap in laps if lap.device == device]
            busy, waited = sum(lap.us for lap in own), sum(lap.waited_us for lap in own)
            lines.append(f"  {device}: {counted(len(own), 'step')}, {busy:,.0f} µs at work, waited for {waited:,.0f} µs")
        return "\n".join(lines + ([f"  {counted(self.left_out, 'step')} left out"] if self.left_out else []))
