"""Waiting for a lock file that another process holds, for as long as somebody wants what is waited for."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerators.process.forking import renewed_in_children

PATIENCE = 0.02
"""Seconds between two looks."""


class _Wanted(threading.local):
    """In threads that compile: set once nobody waits for them any more, as after an interrupt."""

    abandoned: threading.Event | None = None


_wanted = _Wanted()


def work_until(abandoned: threading.Event) -> None:
    """From now on this thread waits for no lock once the event is set."""
    _wanted.abandoned = abandoned


class _LockFiles:
    """The lock files that this process has open. A forked process shares them with its parent, and a file stays locked until both
    have closed it: the child closes those of threads that it does not have."""

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}
        """The thread that opened each file, by the file's number."""
        renewed_in_children(self)

    def renew(self) -> None:
        me = threading.get_ident()
        for number in [number for number, thread in self.threads.items() if thread != me]:
            del self.threads[number]
            os.close(number)


_files = _LockFiles()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Only one thread of one process at a time is inside for a file. The lock ends with the process that holds it."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _files.threads[number] = threading.get_ident()
    try:
        lock(number)
        yield
    finally:
        del _files.threads[number]
        os.close(number)


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
