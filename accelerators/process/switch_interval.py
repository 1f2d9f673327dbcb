"""Shortens Python's GIL switch interval during background work, so that calls get the GIL back soon."""

from __future__ import annotations

import sys

from partita.accelerators.process.forking import Guard, renewed_in_children

TURN = 0.0002
"""The GIL switch interval in seconds during background work. Python's default of 5 ms is as long as a call of a small model,
which would wait that long twice."""


class ShortTurns:
    """Inside `with short_turns:` the interval is short, for any number of threads; afterwards it is restored."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._inside = 0
        self._before = self._short = sys.getswitchinterval()
        renewed_in_children(self)

    @property
    def are_on(self) -> bool:
        """True if there is background work."""
        return self._inside > 0

    def __enter__(self) -> None:
        with self._guard.lock:
            if not self._inside:
                self._before = sys.getswitchinterval()
                _set(min(TURN, self._before))
                self._short = sys.getswitchinterval()
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._guard.lock:
            if self._inside:  # it may be 0 in a process that was forked inside
                self._inside -= 1
                if not self._inside:
                    self._restore()

    def renew(self) -> None:
        """Resets the interval in a forked process, which has no background work."""
        if self._inside:
            self._inside = 0
            self._restore()

    def _restore(self) -> None:
        """Restores the interval, unless somebody else has changed it meanwhile."""
        if sys.getswitchinterval() == self._short:
            _set(self._before)


def _set(seconds: float) -> None:
    """Sets the interval: Python truncates to microseconds, even a value that it returned itself."""
    sys.setswitchinterval(seconds + 5e-7)


short_turns = ShortTurns()
"""The object of this process."""
