"""Background work while calls are being answered, on a thread of low priority."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from partita.accelerators.process.cores import usable_cores
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


STRETCH = 1.6
"""Duration of a call while there is background work, as a multiple of the shortest call, if one call follows another at once. The
work advances in the pause. Beside a running call it would delay that call by all the time that it gets, even on one core, since
the call's threads wait for each other at each op."""

SHORTEST_PAUSE = 0.0002
"""Seconds; the system cannot keep shorter ones."""


class CallPace:
    """Leaves time for background work between calls that keep the cores busy and follow each other at once. Calls that come
    later than the pause would have ended are not delayed."""

    def __init__(self) -> None:
        self._cores = usable_cores()
        self._shortest = float("inf")
        self._last_end = float("-inf")

    def start(self) -> tuple[float, float]:
        """The wall and processor time at the start of a call."""
        return time.perf_counter(), time.process_time()

    def end(self, start: tuple[float, float]) -> None:
        """Ends the call that started then, after a pause if the cores were busy."""
        began, used = start
        took = time.perf_counter() - began
        if time.process_time() - used > took * self._cores / 2:
            self._shortest = min(self._shortest, took)
            pause = STRETCH * self._shortest - took - max(0.0, began - self._last_end)
            if pause > SHORTEST_PAUSE:
                time.sleep(pause)
        self._last_end = time.perf_counter()


T = TypeVar("T")

NICENESS = 10
"""Priority decrement of background work: if calls keep all cores busy, it gets a tenth of each. With 5 it
gets a quarter, and the 99th percentile of calls was twice the steady one."""


def lowered() -> int:
    """The niceness of background work. The main thread's niceness is that of the calls."""
    return min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICENESS, 19)


def hands() -> int:
    """Number of threads for new work: one per core, but only one while there is background work, whatever its priority:
    several together would get as much of the cores as a call does."""
    return 1 if short_turns.are_on else usable_cores()


def behind(work: Callable[[], T], *, leaves_threads: bool = False) -> T:
    """Runs the work in a thread of low priority while this one waits, with short GIL intervals; returns its result.
    Threads that the work leaves behind would keep that priority: with `leaves_threads` it runs in this thread."""
    with short_turns:
        if leaves_threads or not sys.platform.startswith("linux"):  # only Linux has priorities per thread
            return work()
        return _lowered(work)


def _lowered(work: Callable[[], T]) -> T:
    """Runs the work in a thread of low priority."""
    results, errors, context = list[T](), list[BaseException](), contextvars.copy_context()

    def do() -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lowered())
        try:
            results.append(context.run(work))
        except BaseException as error:  # noqa: BLE001  any exception belongs to the waiting caller
            errors.append(error)

    thread = threading.Thread(target=do, name="partita-behind", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
