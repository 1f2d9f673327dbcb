"""The end of the interpreter while daemon threads use devices.

Python ends such a thread when it next wants to run Python code: on its way out of an engine's library, which C++ answers by
aborting the whole process. Therefore the end waits until nobody is inside a device any more, and lets nobody in: daemon threads
that come later stay at the door, and go with the process."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from partita.accelerators.process.forking import renewed_in_children

PATIENCE = 10.0
"""Seconds that the end of the interpreter waits for what still runs."""


class Door:
    """Counts the calls that are inside a device."""

    def __init__(self) -> None:
        self.inside: deque[int] = deque()
        """The threads, each as often as it entered."""
        self.closed_by: int | None = None
        """The thread that ends the interpreter, once it does; it may still enter."""
        renewed_in_children(self)

    def enter(self) -> None:
        """Note that a device is about to be used; `leave` has to follow."""
        me = threading.get_ident()
        self.inside.append(me)
        if self.closed_by is not None and me != self.closed_by and self.inside.count(me) == 1:
            self.inside.remove(me)
            _stay()

    def leave(self) -> None:
        """Note that the use of the device is over."""
        self.inside.remove(threading.get_ident())

    def renew(self) -> None:
        """In a forked process, only the thread that forked may be inside."""
        me = threading.get_ident()
        self.inside = deque([me] * self.inside.count(me))

    def close(self) -> None:
        """Let nobody else in, and wait until all others are out."""
        me = self.closed_by = threading.get_ident()
        end = time.monotonic() + PATIENCE
        while any(thread != me for thread in list(self.inside)) and time.monotonic() < end:
            time.sleep(0.001)
        for action in _last:
            action()


_last: list[Callable[[], None]] = []


def when_the_door_is_closed(action: Callable[[], None]) -> None:
    """Call it when the interpreter ends, and nobody is inside a device any more."""
    _last.append(action)


def _stay() -> None:
    """Wait for ever, because the interpreter is ending."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


door = Door()
"""The one of this process."""


@contextmanager
def at_a_device() -> Iterator[None]:
    """Inside, the end of the interpreter waits. (`enter` and `leave` cost a microsecond less.)"""
    door.enter()
    try:
        yield
    finally:
        door.leave()


def main_has_ended() -> bool:
    """Is the program over, save for threads that are not daemons, and functions that were registered for its end?"""
    return not threading.main_thread().is_alive()


atexit.register(door.close)


def before_the_door_closes(action: Callable[[], None]) -> None:
    """Call it when the interpreter ends, while all threads may still use devices."""
    atexit.register(action)
