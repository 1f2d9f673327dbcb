"""Waiting for a lock file that another process holds, for as long as somebody wants what is waited for, and it may still come.

Whoever holds a lock writes its number into the file, so that those who wait can say for whom. The lock itself is the system's: it
ends with the process, however that ends, whatever the file says."""

from __future__ import annotations

import fcntl
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.process.forking import renewed_in_children

PATIENCE = 0.02
"""Seconds between two looks."""

TOLD = 5.0
"""Seconds after which the user is told who is waited for."""

LOOK = 1.0
"""Seconds between two looks at the process that is waited for, from then on."""

STOPPED = 10.0
"""Seconds that a process may be stopped, as by Ctrl-Z, before it is waited for no longer."""

LONGEST = 600.0
"""Seconds that anybody is waited for: whoever compiles for longer may hang, and the work is rather done twice."""


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
    """Only one thread of one process at a time is inside for a file. The lock ends with the process that holds it.
    AcceleratorError if that does not let go of it."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    _files.threads[number] = threading.get_ident()
    try:
        lock(number, path)
        yield
    finally:
        del _files.threads[number]
        os.close(number)


def lock(number: int, path: Path) -> None:
    """Hold the lock of an open file. KeyboardInterrupt if nobody wants it any more: a thread that stayed in the system's own wait
    would keep the whole process from ending."""
    if not _taken(number):
        abandoned, wait = _wanted.abandoned or threading.Event(), _Wait(number, path)
        while not _taken(number):
            if abandoned.wait(PATIENCE):
                raise KeyboardInterrupt
            wait.look()
    with suppress(OSError):  # A full disk: nobody will know who it is.
        os.ftruncate(number, 0)
        os.pwrite(number, str(os.getpid()).encode(), 0)


def _taken(number: int) -> bool:
    """Is the lock held now?"""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Wait:
    """What there is to say of a lock that somebody else holds, as time goes by."""

    def __init__(self, number: int, path: Path) -> None:
        self._number = number
        self._path = path
        self._begun = self._at_work = time.monotonic()
        self._next = self._begun + TOLD
        self._is_told = False

    def look(self) -> None:
        """Tell the user, once, who is waited for; AcceleratorError if that has taken too long."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        holder = _holder(self._number)
        if not _is_stopped(holder):
            self._at_work = now
        if not self._is_told and holder != os.getpid():
            self._is_told = True
            until = f"it is waited for, {LONGEST:g} s at most, and {STOPPED:g} s while it is stopped"
            warnings.warn(f"{_title(holder)} is compiling under the lock {self._path}: {until}", stacklevel=2)
        if now - self._at_work >= STOPPED:
            raise self._given_up(f"{_title(holder)} holds the lock, and is stopped")
        if now - self._begun >= LONGEST:
            raise self._given_up(f"{_title(holder)} has held the lock for {LONGEST:g} s")

    def _given_up(self, cause: str) -> AcceleratorError:
        return AcceleratorError(cause, where=str(self._path), remedy="Let that process go on, or end it")


def _holder(number: int) -> int | None:
    """The number of the process that holds the lock, as the file says; None if it does not."""
    try:
        return int(os.pread(number, 20, 0))
    except (OSError, ValueError):
        return None


def _title(holder: int | None) -> str:
    if holder == os.getpid():
        return "another thread of this process"
    return "another process" if holder is None else f"process {holder}"


def _is_stopped(process: int | None) -> bool:
    """Does the process stand still, so that it runs on only when somebody wants that? Unknown where the system does not say."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"
