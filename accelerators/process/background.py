"""Background work while calls are being answered, on a thread of low priority."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.switch_interval import short_turns

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
