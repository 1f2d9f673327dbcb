"""Waiting for what happens soon, and for processes to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def is_running(number: int) -> bool:
    """Is there such a process, and has it not ended?"""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], bool], seconds: float = 300.0) -> bool:
    """Wait until it is so; False if it is not within that time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
