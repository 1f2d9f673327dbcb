"""Waits for a lock file that another process holds, while somebody needs it and the holder may still release it.

A process that holds a lock writes its process id into the file, so that waiting ones can report it. The lock itself is the
system's: it is released when the process ends, whatever the file contains."""

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
"""Polling interval in seconds."""

TOLD = 5.0
"""Seconds of waiting after which the user is told which process holds the lock."""

LOOK = 1.0
"""Seconds between later checks of that process."""

STOPPED = 10.0
"""Seconds of waiting for a stopped process, as by Ctrl-Z."""

LONGEST = 600.0
"""Maximum waiting time in seconds: a process that compiles for longer may hang, so the work is done twice instead."""


class _Wanted(threading.local):
    """Set in compiling threads once nobody needs their result any more, as after an interrupt."""

    abandoned: threading.Event | None = None


_wanted = _Wanted()


def work_until(abandoned: threading.Event) -> None:
    """Makes this thread stop waiting for locks once the event is set."""
    _wanted.abandoned = abandoned


class _LockFiles:
    """The lock files that this process has open. A forked process shares them with its parent, and a file stays locked until both
    have closed it, so the child closes those of threads that it does not have."""

    def __init__(self) -> None:
        self.threads: dict[int, int] = {}
        """The thread that opened each file, by file descriptor."""
        renewed_in_children(self)

    def renew(self) -> None:
        me = threading.get_ident()
        for number in [number for number, thread in self.threads.items() if thread != me]:
            del self.threads[number]
            os.close(number)


_files = _LockFiles()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A lock for a file: one thread of one process at a time is inside. It is released when the process ends.
    Raises AcceleratorError if the holder does not release it."""
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    _files.threads[number] = threading.get_ident()
    try:
        lock(number, path)
        yield
    finally:
        del _files.threads[number]
        os.close(number)


def lock(number: int, path: Path) -> None:
    """Locks an open file. Raises KeyboardInterrupt if nobody needs it any more: a thread in a blocking system call would keep the
    process from ending."""
    if not _taken(number):
        abandoned, wait = _wanted.abandoned or threading.Event(), _Wait(number, path)
        while not _taken(number):
            if abandoned.wait(PATIENCE):
                raise KeyboardInterrupt
            wait.look()
    with suppress(OSError):  # the disk may be full: then the holder is not known
        os.ftruncate(number, 0)
        os.pwrite(number, str(os.getpid()).encode(), 0)


def _taken(number: int) -> bool:
    """Tries to take the lock; True if it succeeded."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Wait:
    """Progress of waiting for a lock that somebody else holds."""

    def __init__(self, number: int, path: Path) -> None:
        self._number = number
        self._path = path
        self._begun = self._at_work = time.monotonic()
        self._next = self._begun + TOLD
        self._is_told = False

    def look(self) -> None:
        """Tells the user, once, which process holds the lock; raises AcceleratorError if it takes too long."""
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
    """The id of the process that holds the lock, from the file; None if unknown."""
    try:
        return int(os.pread(number, 20, 0))
    except (OSError, ValueError):
        return None


def _title(holder: int | None) -> str:
    if holder == os.getpid():
        return "another thread of this process"
    return "another process" if holder is None else f"process {holder}"


def _is_stopped(process: int | None) -> bool:
    """True if the process is stopped, and continues only on a signal. False if the system does not tell."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"
