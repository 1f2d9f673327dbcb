"""Python's lock while threads work behind calls: a call that wants it back has it soon."""

from __future__ import annotations

import sys

from partita.accelerators.process.forking import Guard, renewed_in_children

TURN = 0.0002
"""Seconds after which a thread that runs Python's code hands the lock to one that waits for it, while anything works behind
calls. Python's own are 5 ms, which is as long as a call of a small model takes: twice a call it would have waited so long."""


class ShortTurns:
    """Inside `with short_turns:` turns are short, however many threads are inside; then they are as long as they were before."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._inside = 0
        self._before = self._short = sys.getswitchinterval()
        renewed_in_children(self)

    @property
    def are_on(self) -> bool:
        """Does anything work behind calls?"""
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
            if self._inside:  # it is not in a process that was forked inside
                self._inside -= 1
                if not self._inside:
                    self._restore()

    def renew(self) -> None:
        """In a forked process nothing works behind calls."""
        if self._inside:
            self._inside = 0
            self._restore()

    def _restore(self) -> None:
        """Leave what somebody else has set meanwhile as it is."""
        if sys.getswitchinterval() == self._short:
            _set(self._before)


def _set(seconds: float) -> None:
    """Python cuts off what is less than a microsecond, and of what it says itself a whole one."""
    sys.setswitchinterval(seconds + 5e-7)


short_turns = ShortTurns()
"""Those of this process."""
