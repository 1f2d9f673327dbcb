"""Waiting for a lock file that another process holds, for as long as somebody wants what is waited for."""

from __future__ import annotations

import fcntl
import threading

PATIENCE = 0.02
"""Seconds between two looks."""


class _Wanted(threading.local):
    """In threads that compile: set once nobody waits for them any more, as after an interrupt."""

    abandoned: threading.Event | None = None


_wanted = _Wanted()


def work_until(abandoned: threading.Event) -> None:
    """From now on this thread waits for no lock once the event is set."""
    _wanted.abandoned = abandoned


def lock(number: int) -> None:
    """Hold the lock of an open file. KeyboardInterrupt if nobody wants it any more: a thread that stayed in the system's own wait
    would keep the whole process from ending."""
    abandoned = _wanted.abandoned
    if abandoned is None:
        fcntl.flock(number, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if abandoned.wait(PATIENCE):
                raise KeyboardInterrupt from None
