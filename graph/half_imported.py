"""A fork while another thread imports a module.

The child has that module half, or not even that and its lock alone, and nobody there who will finish it: it cannot be imported
again. Therefore a fork waits until no other thread is importing, and lets none begin. This holds from the import of this module
on, which is the first of ours."""

from __future__ import annotations

import _frozen_importlib as machinery
import _imp
import concurrent.futures.thread  # noqa: F401  see below
import logging  # noqa: F401
import os
import time
from contextlib import suppress
from threading import get_ident
from typing import Any

PATIENCE = 30.0
"""Seconds that a fork waits for imports, of which one may itself wait for what the forking thread imports."""

LONGEST_PAUSE = 0.05
"""Seconds between two looks, at most."""


def _wait() -> None:
    """Take the lock without which no import goes on, at a moment when no other thread is at one."""
    end, pause = time.monotonic() + PATIENCE, 0.001
    _imp.acquire_lock()
    while any(lock.owner not in (None, get_ident()) for lock in _locks().values()) and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        _imp.acquire_lock()


def _locks() -> dict[str, Any]:
    """The lock of each module that is being imported. Its thread holds it from before the module is sought until it stands in its
    package; that the module is among those that are there, and not ready, is a part of that time only."""
    references = list(machinery._module_locks.items())  # type: ignore[attr-defined]
    return {name: lock for name, reference in references if (lock := reference()) is not None}


def _begin_child() -> None:
    """Forget the locks of threads that the child does not have: one may have been taken after the look, or PATIENCE was over."""
    for name, lock in _locks().items():
        if lock.owner != get_ident():
            machinery._module_locks.pop(name, None)  # type: ignore[attr-defined]
    with suppress(RuntimeError):  # the child's lock may be free already
        _imp.release_lock()


# What is registered last runs first. It has to hold no lock while it waits for other threads: logging and concurrent.futures,
# which take their own before a fork, are registered already.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait, after_in_parent=_imp.release_lock, after_in_child=_begin_child)
