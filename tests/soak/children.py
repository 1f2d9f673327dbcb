"""Forked processes that are watched, and killed."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import attrs

HANG = 120.0
"""Seconds after which a process counts as hanging."""


@attrs.frozen
class End:
    """How a process ended."""

    status: int
    """Its exit status; negative: the signal."""
    hung: bool
    """Did it take longer than it may?"""
    killed: bool
    """Was it killed on purpose?"""
    printed: str
    """What it wrote on its error stream."""

    @property
    def wrong(self) -> str | None:
        """"hangs", "crashes" or "differences", if it ended as it should not."""
        if self.killed or self.status == 0:
            return None
        return "hangs" if self.hung else "crashes" if self.status < 0 else "differences"


def forked(action: Callable[[], object], folder: Path, kill_after: float | None = None, seconds: float = HANG) -> End:
    """Run it in a forked process of a session of its own. Its exit status is 1 if it raises, or returns False."""
    return ended(start(action, folder), kill_after, seconds)


@attrs.frozen
class Child:
    """A process that runs."""

    number: int
    """Its process number."""
    log: Path
    """Its error stream."""
    started: float
    """When it started."""


def start(action: Callable[[], object], folder: Path) -> Child:
    """Begin the action in a child process, without waiting for its end."""
    log = folder / f"log-{time.monotonic_ns()}"
    sys.stdout.flush()
    number = os.fork()
    if number:
        return Child(number, log, time.monotonic())
    status = 1
    try:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        warnings.simplefilter("ignore")
        status = 1 if action() is False else 0
    except BaseException:  # noqa: BLE001  the parent reads it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def ended(child: Child, kill_after: float | None = None, seconds: float = HANG) -> End:
    """Wait for its end, or bring it about. What it started ends with it."""
    limit = child.started + (seconds if kill_after is None else kill_after)
    pause, killed, hung = 0.0005, False, False
    while True:
        number, raw = os.waitpid(child.number, os.WNOHANG)
        if number:
            break
        if time.monotonic() > limit and not (killed or hung):
            killed, hung = kill_after is not None, kill_after is None
            os.killpg(child.number, signal.SIGKILL) if _has_session(child.number) else os.kill(child.number, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    result = child.log.read_text(errors="replace")[-2000:] if child.log.exists() else ""
    child.log.unlink(missing_ok=True)
    return End(os.waitstatus_to_exitcode(raw), hung, killed, result)


def _has_session(number: int) -> bool:
    try:
        return os.getpgid(number) == number
    except ProcessLookupError:
        return False


def files_open() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """The bytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
