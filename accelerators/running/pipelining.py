"""Decides if requests are pipelined, by measuring both ways on incoming requests and keeping the faster one."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from partita.accelerators.process.forking import Guard, renewed_in_children

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
