"""Waits for idle threads between two engines that are timed in one process."""

from __future__ import annotations

import math
import time

PAUSE = 0.004
"""Sampling interval in seconds; it is repeated until the process uses hardly any processor time."""

RESTLESS = 0.5
"""Maximum seconds to wait for threads that do not stop."""


def settle() -> None:
    """Waits until this process's threads sleep. Some engines' threads spin after a call and slow down the next engine."""
    end = time.perf_counter() + RESTLESS
    used = math.inf
    while used > PAUSE / 4 and time.perf_counter() < end:
        before = time.process_time()
        time.sleep(PAUSE)
        used = time.process_time() - before
