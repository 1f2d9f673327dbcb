"""Interpreter exit while daemon threads use devices.

Python ends such a thread when it next wants to run Python code: as it returns from an engine's library, where C++ then aborts
the whole process. Therefore the exit waits until no thread is inside a device, and lets none enter: daemon threads
that come later block in `enter`, and end with the process."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from partita.accelerators.process.forking import renewed_in_children

PATIENCE = 10.0
"""Maximum seconds that the interpreter's exit waits for running calls."""


class Door:
    """Counts the calls inside devices."""

    def __init__(self) -> None:
        self.inside: deque[int] = deque()
        """The threads inside, once for each entry."""
        self.closed_by: int | None = None
        """The thread that ends the interpreter; it may still enter."""
        renewed_in_children(self)

    def enter(self) -> None:
        """Marks the begin of using a device; `leave` has to follow."""
        me = threading.get_ident()
        self.inside.append(me)
        if self.closed_by is not None and me != self.closed_by and self.inside.count(me) == 1:
            self.inside.remove(me)
            _stay()

    def leave(self) -> None:
        """Marks the end of using the device."""
        self.inside.remove(threading.get_ident())

    def renew(self) -> None:
        """Resets the count in a forked process, where only the forking thread may be inside."""
        me = threading.get_ident()
        self.inside = deque([me] * self.inside.count(me))

    def close(self) -> None:
        """Blocks new entries, and waits until all other threads have left."""
        me = self.closed_by = threading.get_ident()
        end = time.monotonic() + PATIENCE
        while any(thread != me for thread in list(self.inside)) and time.monotonic() < end:
            time.sleep(0.001)
        for action in _last:
            action()


_last: list[Callable[[], None]] = []


def when_the_door_is_closed(action: Callable[[], None]) -> None:
    """Registers an action for interpreter exit, once no thread is inside a device."""
    _last.append(action)


def _stay() -> None:
    """Blocks forever, because the interpreter is ending."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


door = Door()
"""The door of this process."""


@contextmanager
def at_a_device() -> Iterator[None]:
    """A context that delays interpreter exit. (`enter` and `leave` cost a microsecond less.)"""
    door.enter()
    try:
        yield
    finally:
        door.leave()


def main_has_ended() -> bool:
    """True if the main thread has ended; non-daemon threads and exit handlers may still run."""
    return not threading.main_thread().is_alive()


atexit.register(door.close)


def before_the_door_closes(action: Callable[[], None]) -> None:
    """Registers an action for interpreter exit, while all threads may still use devices."""
    atexit.register(action)


T = TypeVar("T")


class Pool(ThreadPoolExecutor):
    """A pool for work that somebody waits for. Once the main thread has ended, Python starts no more pool threads, while
    non-daemon threads and exit handlers still run: `submit` then runs the work itself."""

    def submit(self, work: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        """The future of the work."""
        if not main_has_ended():
            try:
                return super().submit(work, *args, **named)
            except RuntimeError:
                if not main_has_ended():
                    raise
        future = Future[T]()
        try:
            future.set_result(work(*args, **named))
        except BaseException as error:  # noqa: BLE001  any exception belongs to the waiting caller
            future.set_exception(error)
        return future
