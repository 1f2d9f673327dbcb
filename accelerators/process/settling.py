"""Quiet between two engines that are timed in one process."""

from __future__ import annotations

import math
import time

PAUSE = 0.004
"""Seconds to look at, again and again, until hardly any processor time was used in them."""

RESTLESS = 0.5
"""Seconds after which threads that do not stop are waited for no longer."""


def settle() -> None:
    """Wait until this process's threads sleep. Some engines' spin on for a while after a call and slow down who comes next."""
    end = time.perf_counter() + RESTLESS
    used = math.inf
    while used > PAUSE / 4 and time.perf_counter() < end:
        before = time.process_time()
        time.sleep(PAUSE)
        used = time.process_time() - before
