"""Whether requests pass through the devices in turn: tried on the requests that come, measured, and kept where it is faster."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from partita.accelerators.process.forking import Guard, renewed_in_children

WINDOW = 16
"""The requests, one after another, that run in one way before the other way has its turn."""

TRIES = 3
"""The number of windows of each way that are compared, after one of each that is not."""

GAIN = 0.9
"""Requests in turn have to take less than this part of the time."""


@attrs.define(eq=False)
class Window:
    """Requests that were started one after another and run in the same way."""

    in_turn: bool
    """Do they pass through the devices in turn?"""
    started: int = 0
    """How many were started."""
    ended: int = 0
    """How many are over."""
    first_end: float = 0.0
    """The time at which the first of them was over."""
    counts: bool = True
    """Was the model busy all the time, and did all of them succeed?"""


class PipelineTrial:
    """Windows of requests alternate between both ways; then the faster way stays.

    A window lasts from the end of its first request to the end of its last one. It does not count if the model had nothing to do
    in between: then the time says how often requests come, not how fast they run."""

    def __init__(self, decided: bool | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.decided = decided
        """Do requests pass through the devices in turn? None while both ways are being tried."""
        self._clock = clock
        self._guard = Guard()
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        renewed_in_children(self)
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked process, in which no request runs."""
        self._running = 0
        self._window = Window(in_turn=False)

    def begin(self) -> Window | None:
        """The window of a request that is started now; None where the way is decided."""
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
        """A request of the window is over."""
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
