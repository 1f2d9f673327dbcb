"""Work behind calls that are being answered, on a thread that gives way to theirs."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from partita.accelerators.process.cores import usable_cores
from partita.accelerators.process.short_turns import short_turns

T = TypeVar("T")

NICENESS = 10
"""So much lower is the priority of what works behind calls: where they keep all cores busy it gets a tenth of each. With 5 it
gets a quarter, and the 99th percentile of calls was twice the steady one."""


def lowered() -> int:
    """The priority of what works behind calls, as the system counts it. The main thread's is that of the calls."""
    return min(os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICENESS, 19)


def hands() -> int:
    """On how many threads work that starts now is shared out: one for each core, and a single one while anything works behind
    calls, whatever its priority: several would get as much of the cores together as a call does."""
    return 1 if short_turns.are_on else usable_cores()


def behind(work: Callable[[], T], *, leaves_threads: bool = False) -> T:
    """What the work returns or raises, done by a thread of low priority while this one waits, in short turns with the calls.
    Threads that the work starts, and that stay, would have that priority too: work that leaves any is done with this one's."""
    with short_turns:
        if leaves_threads or not sys.platform.startswith("linux"):  # elsewhere threads have no priorities of their own
            return work()
        return _lowered(work)


def _lowered(work: Callable[[], T]) -> T:
    """The same of the work alone."""
    results, errors, context = list[T](), list[BaseException](), contextvars.copy_context()

    def do() -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lowered())
        try:
            results.append(context.run(work))
        except BaseException as error:  # noqa: BLE001  whatever it is belongs to who waits
            errors.append(error)

    thread = threading.Thread(target=do, name="partita-behind", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
