"""Whether independent subgraphs run side by side: tried, measured, and kept where it is faster."""

from __future__ import annotations

from partita.accelerators.process.forking import Guard

WORTH = 0.001
"""Seconds: calls shorter than this are never run side by side unasked."""

TRIES = 3
"""The number of calls of each kind that are measured, after one of each kind that is not."""

GAIN = 0.9
"""Side by side has to take less than this part of the time."""


class Trial:
    """The first calls alternate; then the faster way stays."""

    def __init__(self, decided: bool | None) -> None:
        self.decided = decided
        """Do independent subgraphs run side by side? None while both ways are being tried."""
        self._guard = Guard()
        self._asked = 0
        self._seconds: dict[bool, list[float]] = {False: [], True: []}

    def next(self) -> bool:
        """Does this call run side by side?"""
        if self.decided is not None:
            return self.decided
        with self._guard.lock:
            self._asked += 1
            return self._asked % 2 == 0

    def note(self, side_by_side: bool, seconds: float) -> None:
        """Note the seconds that a call took."""
        if self.decided is not None:
            return
        with self._guard.lock:
            self._seconds[side_by_side].append(seconds)
            turns, levels = self._seconds[False], self._seconds[True]
            if len(turns) > 1 and min(turns) < WORTH:
                self.decided = False
            elif min(len(turns), len(levels)) > TRIES:
                self.decided = min(levels[1:]) < GAIN * min(turns[1:])
