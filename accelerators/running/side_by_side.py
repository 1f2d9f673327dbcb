"""Decides if independent subgraphs run concurrently, by measuring both ways and keeping the faster one."""

from __future__ import annotations

from partita.accelerators.process.forking import Guard

WORTH = 0.001
"""Seconds: shorter calls run concurrently only if PARALLEL says so."""

TRIES = 3
"""Number of measured calls of each kind, after a warm-up call of each."""

GAIN = 0.9
"""Concurrent runs are kept if they take less than this fraction of the time."""


class Trial:
    """The first calls alternate; then the faster way stays."""

    def __init__(self, decided: bool | None) -> None:
        self.decided = decided
        """True if independent subgraphs run concurrently. None while both ways are being tried."""
        self._guard = Guard()
        self._asked = 0
        self._seconds: dict[bool, list[float]] = {False: [], True: []}

    def next(self) -> bool:
        """True if this call runs independent subgraphs concurrently."""
        if self.decided is not None:
            return self.decided
        with self._guard.lock:
            self._asked += 1
            return self._asked % 2 == 0

    def note(self, side_by_side: bool, seconds: float) -> None:
        """Records the seconds of a call."""
        if self.decided is not None:
            return
        with self._guard.lock:
            self._seconds[side_by_side].append(seconds)
            turns, levels = self._seconds[False], self._seconds[True]
            if len(turns) > 1 and min(turns) < WORTH:
                self.decided = False
            elif min(len(turns), len(levels)) > TRIES:
                self.decided = min(levels[1:]) < GAIN * min(turns[1:])
