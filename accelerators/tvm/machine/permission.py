"""Permission to use the processor's tiles (AMX), which Linux grants a process on request.

It holds for all threads, also running ones, and after a fork. Without it the first instruction on tiles ends the process."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

from partita.accelerators.tvm.machine.processor import host_features

ARCH_PRCTL = 158
"""Number of the system call on x86-64."""

ASK = 0x1023
"""ARCH_REQ_XCOMP_PERM: request a component of the processor's state."""

TILES = 18
"""Number of the tile-data component."""


@cache
def usable_features() -> frozenset[str]:
    """The host's extensions, without tiles if the system refuses them. The request is made once per process."""
    features = host_features()
    if "amx-tile" not in features or _is_permitted():
        return features
    return frozenset(name for name in features if not name.startswith("amx-"))


def _is_permitted() -> bool:
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, ASK, TILES) == 0)
